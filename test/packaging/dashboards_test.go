//go:build e2e && dashboards

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package packaging

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// event is what the test did to the cluster, and when, in milliseconds since 1970.
type event struct {
	Name string `json:"name"`
	Time int64  `json:"time"`
}

// standard is the configuration whose initializers run in both clusters.
const standard = "standard"

// dashboards is a control plane whose metrics are recorded while programs fail.
type dashboards struct {
	c      *framework.Cluster
	s      *scraper
	events []event
}

// record scrapes every two seconds into the folder of a picture.
func (d *dashboards) record(t *testing.T, picture string, length time.Duration) {
	t.Helper()
	d.s.dir = filepath.Join(d.c.Dir, picture)
	if err := os.MkdirAll(d.s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	every := time.NewTicker(2 * time.Second)
	defer every.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); <-every.C {
		d.s.scrape(t)
	}
}

// happens records an event, and writes those so far.
func (d *dashboards) happens(t *testing.T, name string) {
	t.Helper()
	d.events = append(d.events, event{name, time.Now().UnixMilli()})
	data, err := json.Marshal(d.events)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.s.dir, "events.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// evaluate returns the alerts of what was recorded. It fails if a panel has no data.
func (d *dashboards) evaluate(t *testing.T) observed {
	t.Helper()
	found := d.s.evaluate(t, "--picture="+filepath.Join(t.TempDir(), "dashboard.svg"))
	if len(found.Unknown) > 0 {
		t.Errorf("no program exports %v", found.Unknown)
	}
	return found
}

// startDashboards runs a control plane with two initializers, one of which takes two seconds, and creates namespaces.
func startDashboards(t *testing.T) (d *dashboards, population *os.Process) {
	t.Helper()
	c := framework.Connect(t)
	health := "127.0.0.1:" + framework.FreePort(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Populate(t, "standard", framework.ConfigMapManifest("inside", "x"))
	population = c.StartPopulation(t, "--health-bind-address="+health)
	const network = "network.example.com"
	c.RunInitializers(t, func(ctx context.Context, _ string, _ *corev1.Namespace) error {
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
		return ctx.Err()
	}, network)
	d = &dashboards{c: c, s: newScraper(t, c, health)}
	if _, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: standard}, Initializers: framework.Initializers(network, framework.PopulationInitializer),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.AskToRetry(t)
	createRegularly(t, c)
	return d, population
}

// addHanging adds an initializer whose program reports that it serves it, and never acts. Namespaces wait two seconds for it.
func (d *dashboards) addHanging(t *testing.T) {
	t.Helper()
	ignore, seconds := v1alpha1.Ignore, int32(2)
	hanging := v1alpha1.RegisteredInitializer{Name: "dns.example.com", FailurePolicy: &ignore, TimeoutSeconds: &seconds, Ordering: &v1alpha1.InitializerOrdering{}}
	client := d.c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	if _, err := client.Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "dns"}, Initializers: []v1alpha1.RegisteredInitializer{hanging},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	report := func(ctx context.Context) error {
		reported := fmt.Appendf(nil, `{"status":{"initializers":[{"name":%q,"reportTime":%q}]}}`, hanging.Name, time.Now().UTC().Format(metav1.RFC3339Micro))
		_, err := client.Patch(ctx, "dns", types.MergePatchType, reported, metav1.PatchOptions{}, "status")
		return err
	}
	if err := report(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() {
		for t.Context().Err() == nil {
			time.Sleep(20 * time.Second)
			_ = report(t.Context()) // fails while nsinit-apiserver is stopped
		}
	}()
}

// TestDashboards records the metrics of a healthy and of a failing cluster for the pictures in docs/images. hack/dashboards.sh
// runs it and draws them. It fails if a panel has no data, if the healthy cluster has an active alert, or if one of those does
// not fire that the document describes below the picture of the failing one.
func TestDashboards(t *testing.T) {
	d, population := startDashboards(t)
	d.record(t, "healthy", 220*time.Second) // the pictures do not show the first minute
	if found := d.evaluate(t); len(found.Active) > 0 {
		t.Errorf("the cluster is healthy, and active are %v", found.Active)
	}

	const failing = "failing"
	d.record(t, failing, 100*time.Second)
	d.addHanging(t)
	d.happens(t, "dns.example.com is added, and hangs")
	d.record(t, failing, time.Minute)
	if err := population.Kill(); err != nil {
		t.Fatal(err)
	}
	d.happens(t, "policy-population is killed")
	d.record(t, failing, 220*time.Second) // a report is valid for a minute, and the alert waits for two
	d.c.Dev(t, "stop", "nsinit-apiserver")
	t.Cleanup(func() { d.c.Dev(t, "start", "nsinit-apiserver"); d.c.WaitServing(t) })
	d.happens(t, "nsinit-apiserver is stopped")
	d.record(t, failing, 100*time.Second)

	found := d.evaluate(t)
	t.Logf("firing are %v", found.Firing)
	for _, alert := range []string{"NsinitDeadlinesMissed", "NsinitInitializerNotServed", "NsinitUnavailable"} {
		if !slices.Contains(found.Firing, alert) {
			t.Errorf("%s does not fire", alert)
		}
	}
}

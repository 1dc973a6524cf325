//go:build e2e

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
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// scraper scrapes the programs as Prometheus does, and evaluates the alerts and the dashboard with Prometheus'
// libraries.
type scraper struct {
	c       *framework.Cluster
	dir     string
	targets map[string]*rest.Config
}

// observed is the state of the alerts and the dashboard.
type observed struct {
	Active  map[string][]string
	Firing  []string
	Unknown map[string][]string
	Empty   []string
}

func newScraper(t *testing.T, c *framework.Cluster, initializer string) *scraper {
	t.Helper()
	c.Build(t, "test/monitoring", "monitoring", ".")
	return &scraper{c: c, dir: t.TempDir(), targets: map[string]*rest.Config{
		"kube-apiserver":            c.Admin,
		"nsinit-apiserver":          c.Direct(t),
		"nsinit-controller-manager": c.DirectController(t),
		"policy-population":         {Host: "http://" + initializer},
	}}
}

// scrape scrapes once. It omits programs that do not answer.
func (s *scraper) scrape(t *testing.T) {
	t.Helper()
	for job, config := range s.targets {
		text, err := framework.Scrape(t.Context(), config)
		if err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(s.dir, fmt.Sprintf("%d-%s.txt", time.Now().UnixMilli(), job)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// observe scrapes, and evaluates.
func (s *scraper) observe(t *testing.T) observed {
	t.Helper()
	s.scrape(t)
	return s.evaluate(t)
}

// evaluate evaluates the scraped samples.
func (s *scraper) evaluate(t *testing.T, more ...string) observed {
	t.Helper()
	monitoring := filepath.Join(s.c.Root, "artifacts", "deploy", "components", "service-monitor")
	command := exec.CommandContext(t.Context(), filepath.Join(framework.BinDir(), "monitoring"),
		append([]string{"--rules=" + filepath.Join(monitoring, "alerts.yaml"), "--dashboard=" + filepath.Join(monitoring, "dashboard.json"), "--scrapes=" + s.dir}, more...)...)
	command.Stderr = t.Output()
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var found observed
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// waitActive scrapes until an alert is active.
func (s *scraper) waitActive(t *testing.T, alert string) {
	t.Helper()
	began := time.Now()
	framework.Eventually(t, "alert "+alert+" is active", func(context.Context) error {
		found := s.observe(t)
		if len(found.Active[alert]) == 0 {
			time.Sleep(time.Second)
			return fmt.Errorf("active are %v", found.Active)
		}
		t.Logf("%s after %s: %v", alert, time.Since(began).Round(time.Second), found.Active[alert])
		return nil
	})
}

// createRegularly creates a namespace every two seconds until the test ends, and its tenant writes into it too early.
func createRegularly(t *testing.T, c *framework.Cluster) {
	t.Helper()
	tenant := c.As("e2e-tenant")
	c.Tenant(t)
	stop := make(chan struct{})
	var load sync.WaitGroup
	t.Cleanup(func() { close(stop); load.Wait() })
	load.Go(func() {
		var names []string
		defer func() {
			for _, name := range names {
				if err := c.Core.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			}
		}()
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Second):
			}
			namespace, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("ns")}}, metav1.CreateOptions{})
			if err == nil {
				names = append(names, namespace.Name)
				_ = framework.WriteOnce(t.Context(), tenant, namespace.Name)
			}
		}
	})
}

// TestMonitoring: every metric of the alerts and of the dashboard exists, and every panel shows data while namespaces
// are created. Alerts are inactive in normal operation, and active when their cause exists.
func TestMonitoring(t *testing.T) {
	c := framework.Connect(t)
	health := "127.0.0.1:" + framework.FreePort(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	population := c.Populate(t, "monitored", framework.ConfigMapManifest("inside", "x"))
	c.StartPopulation(t, "--health-bind-address="+health)
	s := newScraper(t, c, health)
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	c.AskToRetry(t)

	// One namespace waits all the time.
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "hold.example.com", MatchConditions: []v1alpha1.MatchCondition{
		{Name: "held", Expression: `namespaceObject.metadata.name.startsWith("held-")`},
	}})
	held, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("held")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.LeaveLater(t, held.Name)

	// Another one is deleted, and its participant does not clean up.
	const participant = "participant.example.com"
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: participant, Finalizer: true, MatchConditions: []v1alpha1.MatchCondition{
		{Name: "deleted", Expression: `namespaceObject.metadata.name.startsWith("deleted-")`},
	}})
	deleted, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("deleted")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.WaitCurrent(t, deleted.Name, participant)
	c.DeleteNamespace(t, deleted.Name)
	t.Cleanup(func() { c.ReleaseParticipant(t, deleted.Name, participant) })

	createRegularly(t, c)

	var found observed
	began := time.Now()
	framework.Eventually(t, "every panel shows something", func(context.Context) error {
		found = s.observe(t)
		time.Sleep(time.Second)
		if len(found.Unknown) > 0 || len(found.Empty) > 0 {
			return fmt.Errorf("no program exports %v, and these panels are empty: %q", found.Unknown, found.Empty)
		}
		return nil
	})
	t.Logf("every panel shows something after %s", time.Since(began).Round(time.Second))
	if len(found.Active) > 0 {
		t.Errorf("active are %v", found.Active)
	}

	ignore, seconds := v1alpha1.Ignore, int32(1)
	absent := c.Configure(t, v1alpha1.RegisteredInitializer{Name: "absent.example.com", FailurePolicy: &ignore, TimeoutSeconds: &seconds})
	reported := fmt.Appendf(nil, `{"status":{"initializers":[{"name":"absent.example.com","reportTime":%q}]}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	if _, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Patch(t.Context(), absent.Name, types.MergePatchType, reported, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	s.waitActive(t, "NsinitDeadlinesMissed")

	if err := c.Nsinit.NsinitV1alpha1().NamespacePopulations().Delete(t.Context(), population.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitActive(t, "NsinitInitializerFails")

	s.waitActive(t, "NsinitInitializerNotServed")

	c.Dev(t, "stop", "nsinit-apiserver")
	t.Cleanup(func() { c.Dev(t, "start", "nsinit-apiserver"); c.WaitServing(t) })
	s.waitActive(t, "NsinitUnavailable")
	s.waitActive(t, "NsinitControllerFailing")
	c.Dev(t, "start", "nsinit-apiserver")
	c.WaitServing(t)

	c.Dev(t, "stop", "nsinit-controller-manager")
	t.Cleanup(func() { c.Dev(t, "start", "nsinit-controller-manager") })
	s.waitActive(t, "NsinitNoLeader")
	c.Dev(t, "start", "nsinit-controller-manager")

	s.scrape(t)
	picture := filepath.Join(c.Dir, "dashboard.svg")
	s.evaluate(t, "--picture="+picture)
	t.Log("the dashboard of this run is", picture)
}

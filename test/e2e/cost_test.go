//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestRequests counts the requests for a namespace with one initializer of the SDK, which writes one object: those to
// kube-apiserver, which include those that it passes on to nsinit-apiserver, and those to nsinit-apiserver. Without nsinit
// there are three: the namespace, its ServiceAccount and its ConfigMap.
func TestRequests(t *testing.T) {
	const (
		count      = 60
		mostToKube = 13.0
		mostToOurs = 4.5
	)
	c := framework.Connect(t)
	counted := &requestCounter{Cluster: c, counts: map[string]float64{}}
	config := rest.CopyConfig(c.Admin)
	config.Wrap(counted.wrap)
	sdk := *c
	sdk.Core, sdk.Nsinit = kubernetes.NewForConfigOrDie(config), versioned.NewForConfigOrDie(config)
	run(t, &sdk, func(ctx context.Context, _ string, namespace *corev1.Namespace) error {
		return framework.WriteConfigMap(ctx, sdk.Core, namespace.Name)
	}, "cost.example.com")
	c.Configure(t, framework.Initializers("cost.example.com")...)
	openAll(t, c, 5) // connections and caches are filled
	before := counted.settled(t)
	openAll(t, c, count)
	totals := map[string]float64{}
	after := counted.settled(t)
	for _, what := range slices.Sorted(maps.Keys(after)) {
		each := (after[what] - before[what]) / count
		server, _, _ := strings.Cut(what, ": ")
		if strings.HasSuffix(what, ":nsinit-controller-manager") && (strings.Contains(what, ": create events ") || strings.Contains(what, ": update namespaces/status ")) {
			each = min(each, 1) // on a busy machine, turns are longer than a second, and are reported
		}
		totals[server] += each
		if each >= 0.1 {
			t.Logf("%-80s %5.2f", what, each)
		}
	}
	t.Logf("for each of %d namespaces: %.1f requests to kube-apiserver, %.1f to nsinit-apiserver", count, totals[toKube], totals[toOurs])
	if totals[toKube] > mostToKube || totals[toOurs] > mostToOurs || totals[toKube] < 3 || totals[toOurs] < 1 {
		t.Errorf("there should be at most %.1f and %.1f", mostToKube, mostToOurs)
	}
}

const toKube, toOurs = "kube-apiserver", "nsinit-apiserver"

// requestCounter counts requests by server, user, verb and resource: reads of the SDK by its client, other requests to
// kube-apiserver by the audit log, and those to nsinit-apiserver by its metrics. Lists, watches, and requests about leases
// and permissions are not counted: their number does not depend on the number of namespaces.
type requestCounter struct {
	*framework.Cluster
	from int64 // position in the audit log

	mu     sync.Mutex
	counts map[string]float64
}

func (r *requestCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if query := request.URL.Query(); request.Method == http.MethodGet && !query.Has("watch") && !query.Has("fieldSelector") {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.counts[toKube+": get by the SDK"]++
		}
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// settled returns the counts when no more requests about namespaces and NamespaceLifecycles follow for a while.
func (r *requestCounter) settled(t *testing.T) map[string]float64 {
	t.Helper()
	var counts map[string]float64
	ofNamespaces := func(counts map[string]float64) map[string]float64 {
		counts = maps.Clone(counts)
		maps.DeleteFunc(counts, func(what string, _ float64) bool {
			return !strings.Contains(what, " namespaces") && !strings.Contains(what, " namespacelifecycles")
		})
		return counts
	}
	framework.Eventually(t, "the requests for the namespaces have ended", func(ctx context.Context) error {
		time.Sleep(time.Second)
		events, from := r.AuditSince(t, r.from)
		r.from = from
		metrics, err := r.Metrics(t)
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, event := range events {
			if event.Verb != "list" && event.Verb != "watch" && event.ObjectRef.Resource != "leases" && event.ObjectRef.Resource != "" {
				r.counts[fmt.Sprintf("%s: %s %s by %s", toKube, event.Verb, path.Join(event.ObjectRef.Resource, event.ObjectRef.Subresource), event.User.Username)]++
			}
		}
		r.countMetrics(t, metrics)
		before := counts
		if counts = maps.Clone(r.counts); !maps.Equal(ofNamespaces(before), ofNamespaces(counts)) {
			return errors.New("there are new ones")
		}
		return nil
	})
	return counts
}

// countMetrics counts the requests to nsinit-apiserver.
func (r *requestCounter) countMetrics(t *testing.T, metrics []byte) {
	t.Helper()
	label := func(line, name string) string {
		if found := regexp.MustCompile(`[{,]` + name + `="([^"]*)"`).FindStringSubmatch(line); found != nil {
			return found[1]
		}
		return ""
	}
	maps.DeleteFunc(r.counts, func(what string, _ float64) bool { return strings.HasPrefix(what, toOurs) })
	for line := range strings.Lines(string(metrics)) {
		resource, verb := label(line, "resource"), label(line, "verb")
		if !strings.HasPrefix(line, "apiserver_request_total{") || resource == "" || verb == "WATCH" || verb == "LIST" {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		if err != nil {
			t.Fatal(err)
		}
		r.counts[fmt.Sprintf("%s: %s %s", toOurs, verb, path.Join(resource, label(line, "subresource")))] += value
	}
}

// openAll creates namespaces, and returns when all are open. It makes one request for each.
func openAll(t *testing.T, c *framework.Cluster, count int) {
	t.Helper()
	prefix := framework.UniqueName("cost")
	ctx, cancel := context.WithTimeout(t.Context(), framework.Patience)
	defer cancel()
	list, err := c.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if _, err := c.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	open := map[string]bool{}
	lw := cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(c.Admin).CoreV1().RESTClient(), "namespaces", "", fields.Everything())
	if _, err := watchtools.Until(ctx, list.ResourceVersion, lw, func(event watch.Event) (bool, error) {
		n, ok := event.Object.(*corev1.Namespace)
		if ok && strings.HasPrefix(n.Name, prefix+"-") && utilnamespaces.TrueCondition(n.Status.Conditions, v1alpha1.ConditionReady) != nil {
			open[n.Name] = true
		}
		return len(open) == count, nil
	}); err != nil {
		t.Fatalf("%d of %d namespaces are open: %v", len(open), count, err)
	}
}

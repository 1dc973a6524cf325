//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/pkg/installation"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/counts"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// limits are what a namespace may cost at most.
type limits struct {
	KubeAPIServerRequests   float64 `json:"kubeAPIServerRequests"`
	NsinitAPIServerRequests float64 `json:"nsinitAPIServerRequests"`
	Commits                 float64 `json:"commits"`
	StoredBytes             float64 `json:"storedBytes"`
}

// TestCosts counts the requests and the writes to etcd for a namespace with one initializer of the SDK, which writes one
// object, and measures the size of its NamespaceLifecycle. On a busy machine, turns last long enough to be reported, which
// costs more. So the least of three measurements counts: a change that makes each namespace cost more fails all of them.
func TestCosts(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "perf", "limits.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var most limits
	if err := yaml.UnmarshalStrict(data, &most); err != nil {
		t.Fatal(err)
	}
	c := framework.Connect(t)
	counted := &requestCounter{Cluster: c, counts: map[string]float64{}}
	config := rest.CopyConfig(c.Admin)
	config.Wrap(counted.wrap)
	sdk := *c
	sdk.Core, sdk.Nsinit = kubernetes.NewForConfigOrDie(config), versioned.NewForConfigOrDie(config)
	sdk.RunInitializers(t, func(ctx context.Context, _ string, namespace *corev1.Namespace) error {
		return framework.WriteConfigMap(ctx, sdk.Core, namespace.Name)
	}, "cost.example.com")
	c.Configure(t, framework.Initializers("cost.example.com")...)
	openAll(t, c, 5) // connections and caches are filled
	for tries := 3; ; tries-- {
		problems := wrongCosts(counted.measure(t), most)
		if len(problems) == 0 {
			return
		}
		t.Log(strings.Join(problems, "\n"))
		if tries == 1 {
			t.Fatal("each measurement is outside of the limits in test/perf/limits.yaml")
		}
	}
}

// wrongCosts compares what a namespace costs with the limits, and with what it must cost at least.
func wrongCosts(got, most limits) (problems []string) {
	for what, test := range map[string]struct{ got, least, most float64 }{
		"requests to kube-apiserver":   {got.KubeAPIServerRequests, 3, most.KubeAPIServerRequests},
		"requests to nsinit-apiserver": {got.NsinitAPIServerRequests, 1, most.NsinitAPIServerRequests},
		"commits":                      {got.Commits, 8, most.Commits},
		"stored bytes":                 {got.StoredBytes, 100, most.StoredBytes},
	} {
		if test.got < test.least || test.got > test.most {
			problems = append(problems, fmt.Sprintf("%s: %.2f, not between %.2f and %.2f", what, test.got, test.least, test.most))
		}
	}
	return problems
}

// measure opens namespaces, and returns what each of them costs.
func (r *requestCounter) measure(t *testing.T) limits {
	t.Helper()
	const count = 60
	before := r.settled(t)
	prefix := openAll(t, r.Cluster, count)
	totals := map[string]float64{}
	after := r.settled(t)
	for _, what := range slices.Sorted(maps.Keys(after)) {
		each := (after[what] - before[what]) / count
		where, _, _ := strings.Cut(what, ": ")
		totals[where] += each
		if each >= 0.1 {
			t.Logf("%-80s %5.2f", what, each)
		}
	}
	costs := limits{totals[toKube], totals[toOurs], totals[toEtcd], storedBytes(t, r.Cluster, prefix+"-0")}
	t.Logf("for each of %d namespaces: %.1f requests to kube-apiserver, %.1f to nsinit-apiserver, %.1f commits, %.0f bytes", count,
		costs.KubeAPIServerRequests, costs.NsinitAPIServerRequests, costs.Commits, costs.StoredBytes)
	return costs
}

// storedBytes returns the size of a NamespaceLifecycle as it is stored: with the type, in protobuf.
func storedBytes(t *testing.T, c *framework.Cluster, name string) float64 {
	t.Helper()
	data, err := c.Nsinit.NsinitV1alpha1().RESTClient().Get().Resource("namespacelifecycles").Name(name).
		SetHeader("Accept", runtime.ContentTypeProtobuf).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return float64(len(data))
}

const (
	toKube, toOurs, toEtcd = "kube-apiserver", "nsinit-apiserver", "etcd"
	namespaceController    = "system:serviceaccount:kube-system:namespace-controller"
)

// isUnrelated reports whether the number of requests for a resource does not depend on the number of namespaces.
func isUnrelated(resource string) bool {
	return slices.Contains([]string{"", "leases", "subjectaccessreviews", "namespaceinitializerconfigurations"}, resource)
}

// isReview reports whether a request is one of those that nsinit-controller-manager sends every ten seconds, to check that the gate
// is in force. The cost of a namespace does not depend on how many of them a machine has time for.
func isReview(event framework.AuditEvent) bool {
	reads := []string{"configmaps", "mutatingadmissionpolicies", "validatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicybindings"}
	return event.Verb == "get" && slices.Contains(reads, event.ObjectRef.Resource) && slices.Contains([]string{"", installation.DefaultNamespace}, event.ObjectRef.Namespace) &&
		event.User.Username == "system:serviceaccount:"+installation.DefaultNamespace+":nsinit-controller-manager"
}

// requestCounter counts requests by server, user, verb and resource: reads of the SDK by its client, other requests to
// kube-apiserver by the audit log, and those to nsinit-apiserver by its metrics. Lists, watches, and requests about leases,
// permissions and configurations are not counted: their number does not depend on the number of namespaces. The deletions of
// the namespaces of other tests are not counted either.
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
	var all map[string]float64
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
		kube, kubeErr := counts.Read(ctx, r.Admin)
		ours, oursErr := counts.Read(ctx, r.Direct(t))
		if err := errors.Join(kubeErr, oursErr); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, event := range events {
			if event.Verb != "list" && event.Verb != "watch" && !isUnrelated(event.ObjectRef.Resource) && !isReview(event) && event.User.Username != namespaceController {
				r.counts[fmt.Sprintf("%s: %s %s by %s", toKube, event.Verb, path.Join(event.ObjectRef.Resource, event.ObjectRef.Subresource), event.User.Username)]++
			}
		}
		r.add(kube, ours)
		before := all
		if all = maps.Clone(r.counts); !maps.Equal(ofNamespaces(before), ofNamespaces(all)) {
			return errors.New("there are new ones")
		}
		return nil
	})
	return all
}

// add adds the requests to nsinit-apiserver, and the writes of both servers to etcd.
func (r *requestCounter) add(kube, ours counts.Counts) {
	maps.DeleteFunc(r.counts, func(what string, _ float64) bool {
		return strings.HasPrefix(what, toOurs) || strings.HasPrefix(what, toEtcd)
	})
	add := func(server string, all map[counts.Operation]float64) {
		for operation, count := range all {
			if resource, _, _ := strings.Cut(operation.Resource, "/"); isUnrelated(resource) {
				continue
			}
			r.counts[fmt.Sprintf("%s: %s %s", server, operation.Verb, operation.Resource)] += count
		}
	}
	add(toOurs, ours.Requests)
	add(toEtcd, kube.Writes)
	add(toEtcd, ours.Writes)
}

// maxClosed is how many namespaces openAll initializes at the same time. Those that wait for others cost more, because turns that last
// long are reported.
const maxClosed = 4

// openAll creates namespaces, and returns when all are open. It makes one request for each. Their names are the prefix that
// it returns, "-" and a number.
func openAll(t *testing.T, c *framework.Cluster, count int) (prefix string) {
	t.Helper()
	prefix = framework.UniqueName("cost")
	ctx, cancel := context.WithTimeout(t.Context(), framework.Patience)
	defer cancel()
	list, err := c.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	// The watch begins before the first namespace: kube-apiserver keeps few revisions, and a slow machine takes long for these requests.
	var creating errgroup.Group
	closed := make(chan struct{}, maxClosed)
	creating.Go(func() error {
		for i := range count {
			select {
			case closed <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			if _, err := c.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i)}}, metav1.CreateOptions{}); err != nil {
				cancel()
				return err
			}
		}
		return nil
	})
	open := map[string]bool{}
	lw := cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(c.Admin).CoreV1().RESTClient(), "namespaces", "", fields.Everything())
	_, err = watchtools.Until(ctx, list.ResourceVersion, lw, func(event watch.Event) (bool, error) {
		n, ok := event.Object.(*corev1.Namespace)
		if ok && !open[n.Name] && strings.HasPrefix(n.Name, prefix+"-") && utilnamespaces.TrueCondition(n.Status.Conditions, v1alpha1.ConditionReady) != nil {
			open[n.Name] = true
			<-closed
		}
		return len(open) == count, nil
	})
	if err := errors.Join(err, creating.Wait()); err != nil {
		t.Fatalf("%d of %d namespaces are open: %v", len(open), count, err)
	}
	return prefix
}

// awaitRepairs returns when policy-population watches the objects that it repairs. It reconciles every namespace when it begins to.
func awaitRepairs(t *testing.T, c *framework.Cluster) {
	t.Helper()
	name := openAll(t, c, 1) + "-0"
	quotas, limits := c.Core.CoreV1().ResourceQuotas(name), c.Core.CoreV1().LimitRanges(name)
	if err := errors.Join(quotas.Delete(t.Context(), "default", metav1.DeleteOptions{}), limits.Delete(t.Context(), "default", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the quota and the limits exist again", func(ctx context.Context) error {
		_, quotaErr := quotas.Get(ctx, "default", metav1.GetOptions{})
		_, limitErr := limits.Get(ctx, "default", metav1.GetOptions{})
		return errors.Join(quotaErr, limitErr)
	})
}

// TestPopulatedOnce: policy-population sends no request for a namespace after it opened. A repair of each one would be five more.
func TestPopulatedOnce(t *testing.T) {
	const count = 20
	c := framework.Connect(t)
	c.StartPopulation(t)
	c.PopulateAsInExample(t)
	awaitRepairs(t, c)
	r := &requestCounter{Cluster: c, counts: map[string]float64{}}
	r.settled(t)
	before := r.from
	prefix := openAll(t, c, count)
	r.settled(t)
	events, _ := c.AuditSince(t, before)
	slices.SortStableFunc(events, func(a, b framework.AuditEvent) int {
		return a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp)
	})
	lists := []string{"list", "watch"}
	requests := map[string][]string{} // of policy-population, after the last write of the status of the namespace, which opens it
	turns := 0
	for _, event := range events {
		name := cmp.Or(event.ObjectRef.Namespace, event.ObjectRef.Name)
		switch what := fmt.Sprintf("%s %s", event.Verb, path.Join(event.ObjectRef.Resource, event.ObjectRef.Subresource)); {
		case !strings.HasPrefix(name, prefix+"-") || slices.Contains(lists, event.Verb):
		case what == "patch namespaces/status":
			requests[name] = nil
		case event.User.Username == framework.PopulationUser:
			turns++
			requests[name] = append(requests[name], what)
		}
	}
	if turns < 8*count {
		t.Errorf("the audit log has %d requests of policy-population for %d namespaces", turns, count)
	}
	for name, after := range requests {
		if len(after) > 0 {
			t.Errorf("%s: %q after it opened", name, after)
		}
	}
}

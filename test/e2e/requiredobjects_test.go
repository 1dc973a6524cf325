//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// revisions are the revisions of the first event for each namespace.
type revisions struct {
	mu    sync.Mutex
	first map[string]int64
	// failed is the event that has ended the watch.
	failed watch.Event
}

// watchFirst stores the revision of the first event of each namespace that counts, from a revision on and until the test ends.
// kube-apiserver ends the watch of a client that is slow, so it is resumed.
func watchFirst(t *testing.T, since string, watcher cache.WatcherWithContext, counts func(watch.Event) bool, namespaceOf func(metav1.Object) string) *revisions {
	t.Helper()
	events, err := watchtools.NewRetryWatcherWithContext(t.Context(), since, watcher)
	if err != nil {
		t.Fatal(err)
	}
	r := &revisions{first: map[string]int64{}}
	go func() {
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				r.mu.Lock()
				r.failed = event
				r.mu.Unlock()
			}
			object, err := meta.Accessor(event.Object)
			if err != nil || !counts(event) {
				continue
			}
			r.mu.Lock()
			if name := namespaceOf(object); r.first[name] == 0 {
				r.first[name] = framework.Revision(object.GetResourceVersion())
			}
			r.mu.Unlock()
		}
	}()
	return r
}

// wait waits until there is a revision for each of the namespaces.
func (r *revisions) wait(t *testing.T, what string, names []string) {
	t.Helper()
	framework.Eventually(t, what, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, name := range names {
			if r.first[name] == 0 {
				return fmt.Errorf("not in namespace %s; the watch has ended with %+v", name, r.failed)
			}
		}
		return nil
	})
}

// limited is the label of the namespaces that get a quota.
const limited = "limited"

// populateQuota runs policy-population, which puts a quota into some namespaces and restricts their pods, until the test ends.
func populateQuota(t *testing.T, c *framework.Cluster) {
	t.Helper()
	c.GrantPopulation(t, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: []string{"get", "create", "patch", "delete"}})
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	c.StartPopulation(t)
	c.PopulateWith(t, "quota", v1alpha1.NamespacePopulationSpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{limited: "true"}},
		NamespaceMetadata: &v1alpha1.PopulationNamespaceMetadata{Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}},
		Manifests: []v1alpha1.PopulationManifest{{Name: "quota", Template: runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"configmaps":"1","count/secrets":"0"}}}`)}}},
	})
}

// tryPod returns an error if Pod Security does not refuse a privileged pod.
func tryPod(ctx context.Context, c *framework.Cluster, namespace string) error {
	_, err := c.Core.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "c"}}}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "restricted:`) {
		return fmt.Errorf("namespace %s: a privileged pod: %w", namespace, err)
	}
	return nil
}

// TestReadyMeansUsable creates 100 namespaces in a burst. kube-controller-manager needs some time to create their objects, and to count
// the quota of every second one. None of the namespaces opens before that, and none of these accepts a privileged pod.
func TestReadyMeansUsable(t *testing.T) {
	const count = 100
	c := framework.Connect(t)
	populateQuota(t, c)
	namespaces, err := c.Core.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	follow := func(resource, name string, counts func(watch.Event) bool, namespaceOf func(metav1.Object) string) *revisions {
		t.Helper()
		selector := fields.Everything()
		if name != "" {
			selector = fields.OneTermEqualSelector("metadata.name", name)
		}
		return watchFirst(t, namespaces.ResourceVersion, cache.NewListWatchFromClient(c.Core.CoreV1().RESTClient(), resource, "", selector), counts, namespaceOf)
	}
	added := func(event watch.Event) bool { return event.Type == watch.Added }
	var pods errgroup.Group
	tried := sets.New[string]() // only the watch uses it
	opened := follow("namespaces", "", func(event watch.Event) bool {
		namespace, ok := event.Object.(*corev1.Namespace)
		if !ok || event.Type != watch.Modified || helper.IsClosed(namespace) {
			return false
		}
		if namespace.Labels[limited] != "" && !tried.Has(namespace.Name) {
			tried.Insert(namespace.Name)
			pods.Go(func() error { return tryPod(t.Context(), c, namespace.Name) })
		}
		return true
	}, metav1.Object.GetName)
	accounts := follow("serviceaccounts", "default", added, metav1.Object.GetNamespace)
	certificates := follow("configmaps", "kube-root-ca.crt", added, metav1.Object.GetNamespace)
	quotas := follow("resourcequotas", "q", func(event watch.Event) bool {
		quota, ok := event.Object.(*corev1.ResourceQuota)
		return ok && len(quota.Status.Hard) == 2 && len(quota.Status.Used) == 2
	}, metav1.Object.GetNamespace)

	began := time.Now()
	names, counted := make([]string, count), []string(nil)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range names {
		names[i] = framework.UniqueName("usable")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}
		if i%2 == 0 {
			namespace.Labels, counted = map[string]string{limited: "true"}, append(counted, names[i])
		}
		group.Go(func() error {
			_, err := c.Core.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	opened.wait(t, "the namespaces are open", names)
	took := time.Since(began)
	accounts.wait(t, "the ServiceAccounts exist", names)
	certificates.wait(t, "the certificates exist", names)
	quotas.wait(t, "the quotas are in force", counted)
	if err := pods.Wait(); err != nil {
		t.Error(err)
	}
	early := 0
	for _, name := range names {
		if opened.first[name] < max(accounts.first[name], certificates.first[name], quotas.first[name]) {
			early++
		}
	}
	if early > 0 {
		t.Errorf("%d of %d namespaces were open before their objects existed, or before their quotas were in force", early, count)
	}
	t.Logf("%d namespaces were open after %.1f s, %d of them too early", count, took.Seconds(), early)
}

// TestReadyWithoutController: without kube-controller-manager, a namespace says which objects it waits for, and opens after
// five seconds. When the objects exist, it says so. A namespace with a quota stays closed.
func TestReadyWithoutController(t *testing.T) {
	c := framework.Connect(t)
	populateQuota(t, c)
	c.Dev(t, "stop", "kube-controller-manager")
	t.Cleanup(func() { c.Dev(t, "start", "kube-controller-manager") })
	const missing = `ServiceAccount "default" and ConfigMap "kube-root-ca.crt", which kube-controller-manager creates`

	began := time.Now()
	namespace := c.CreateNamespace(t, c.Admin)
	c.WaitCondition(t, namespace.Name, v1alpha1.ConditionInitializing, "True/ObjectsMissing waiting for "+missing+", since ")
	c.WaitReady(t, namespace.Name)
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("it opened after %s", took)
	}
	c.WaitCondition(t, namespace.Name, v1alpha1.ConditionReady, "True/ObjectsMissing ", "; the namespace was opened without "+missing)
	c.WaitWhy(t, namespace.Name, diagnosis.ObjectsMissing, diagnosis.Stuck)
	if status := c.MustPlugin(t, "status", namespace.Name); !strings.HasPrefix(status, "Namespace "+namespace.Name+": Active\n") || !strings.Contains(status, missing) {
		t.Errorf("status says: %s", status)
	}
	event := c.WaitEvents(t, namespace.Name, v1alpha1.ReasonObjectsMissing)[0]
	if event.Type != corev1.EventTypeWarning || !strings.Contains(event.Message, missing) {
		t.Errorf("event %s: %s", event.Type, event.Message)
	}

	withQuota, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("ns"), Labels: map[string]string{limited: "true"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.LeaveLater(t, withQuota.Name)
	c.WaitCondition(t, withQuota.Name, v1alpha1.ConditionInitializing, "True/", `quota/quota: ResourceQuota "q" is not ready: kube-controller-manager has not counted configmaps, count/secrets yet`)
	c.WaitWhy(t, withQuota.Name, diagnosis.QuotaNotInForce, diagnosis.Stuck, "--patience=1s")

	c.Dev(t, "start", "kube-controller-manager")
	c.WaitCondition(t, namespace.Name, v1alpha1.ConditionReady, "True/Initialized ")
	c.WaitReady(t, withQuota.Name)
}

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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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

// TestReadyMeansUsable creates 300 namespaces in a burst. kube-controller-manager needs some time to create their objects. None
// of the namespaces opens before it has both objects.
func TestReadyMeansUsable(t *testing.T) {
	const count = 300
	c := framework.Connect(t)
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
	opened := follow("namespaces", "", func(event watch.Event) bool {
		namespace, ok := event.Object.(*corev1.Namespace)
		return ok && event.Type == watch.Modified && !helper.IsClosed(namespace)
	}, metav1.Object.GetName)
	accounts := follow("serviceaccounts", "default", added, metav1.Object.GetNamespace)
	certificates := follow("configmaps", "kube-root-ca.crt", added, metav1.Object.GetNamespace)

	began := time.Now()
	names := make([]string, count)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range names {
		names[i] = framework.UniqueName("usable")
		group.Go(func() error {
			_, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}, metav1.CreateOptions{})
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
	early := 0
	for _, name := range names {
		if opened.first[name] < max(accounts.first[name], certificates.first[name]) {
			early++
		}
	}
	if early > 0 {
		t.Errorf("%d of %d namespaces were open before their objects existed", early, count)
	}
	t.Logf("%d namespaces were open after %.1f s, %d of them before their objects existed", count, took.Seconds(), early)
}

// TestReadyWithoutController: without kube-controller-manager, a namespace says which objects it waits for, and opens after
// five seconds. When the objects exist, it says so.
func TestReadyWithoutController(t *testing.T) {
	c := framework.Connect(t)
	c.Dev(t, "stop", "kube-controller-manager")
	t.Cleanup(func() { c.Dev(t, "start", "kube-controller-manager") })
	const missing = `ServiceAccount "default" and ConfigMap "kube-root-ca.crt", which kube-controller-manager creates`

	began := time.Now()
	namespace := c.CreateNamespace(t, c.Admin)
	c.WaitCondition(t, namespace.Name, v1alpha1.ConditionInitializing, "True/ObjectsMissing waiting for "+missing+", since ")
	c.WaitReady(t, namespace.Name)
	if took := time.Since(began); took < 5*time.Second || took > 20*time.Second {
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

	c.Dev(t, "start", "kube-controller-manager")
	c.WaitCondition(t, namespace.Name, v1alpha1.ConditionReady, "True/Initialized ")
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestBothStories: tenants create many namespaces at the same time, with both hooks in place, and write into
// them as soon as they can. A hook is killed each time it has finished a turn. All namespaces become Ready, and
// each has its contents before its tenant's first write.
func TestBothStories(t *testing.T) {
	const tenants, each = 10, 3
	c := framework.Connect(t)
	ctx := t.Context()
	s := c.StartLogStore(t, 0)
	c.PopulateAsInExample(t)
	type hook struct {
		initializer string
		start       func() *os.Process
		process     *os.Process
		kills       int
	}
	hooks := []*hook{{initializer: logIndex, start: s.Provision(t, nil)}, {initializer: framework.PopulationInitializer, start: func() *os.Process { return c.StartPopulation(t) }}}
	for _, h := range hooks {
		h.process = h.start()
	}
	c.WaitRegistered(t)
	config := c.User(t, "e2e-tenants", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "configmaps"}, Verbs: []string{"create", "get"}})
	c.AskToRetry(t)

	stop := make(chan struct{})
	var killer sync.WaitGroup
	seed := framework.Seed(t)
	for i, h := range hooks {
		killer.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // not a secret
			for finished := 0; ; h.kills++ {
				// A hook that is killed faster than it starts would never finish a turn.
				for next := finished + 5 + random.IntN(10); finished < next; finished = finishedTurns(ctx, c, h.initializer) {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
					}
				}
				_ = h.process.Kill()
				h.process = h.start()
			}
		})
	}

	began := time.Now()
	written := make([]*corev1.ConfigMap, tenants*each)
	tries := atomic.Int64{}
	var group sync.WaitGroup
	for tenant := range tenants {
		client := kubernetes.NewForConfigOrDie(config)
		for i := range each {
			group.Go(func() {
				namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName(fmt.Sprintf("tenant-%d", tenant))}}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				// The client retries by itself, but not long enough for the last namespaces on two busy cores.
				for deadline := time.Now().Add(10 * time.Minute); ; {
					tries.Add(1)
					configMap, err := client.CoreV1().ConfigMaps(namespace.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{})
					if err == nil {
						written[tenant*each+i] = configMap
						return
					}
					if !apierrors.IsTooManyRequests(err) && !apierrors.IsForbidden(err) || time.Now().After(deadline) {
						t.Errorf("namespace %s: %v", namespace.Name, err)
						return
					}
					time.Sleep(200 * time.Millisecond) // a person takes longer
				}
			})
		}
	}
	group.Wait()
	close(stop)
	killer.Wait()
	t.Logf("%d namespaces were written to after %s, in %d tries of their tenants", tenants*each, time.Since(began).Round(100*time.Millisecond), tries.Load())
	for _, h := range hooks {
		if t.Logf("%s was killed %d times", h.initializer, h.kills); h.kills == 0 {
			t.Errorf("%s was not killed, so the test shows nothing", h.initializer)
		}
	}
	if slices.Contains(written, nil) {
		t.FailNow()
	}

	indices, err := s.Indices(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range written {
		namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, first.Namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if utilnamespaces.TrueCondition(namespace.Status.Conditions, v1alpha1.ConditionReady) == nil {
			t.Errorf("namespace %s is not Ready: %+v", namespace.Name, namespace.Status.Conditions)
		}
		if indices["logs-"+string(namespace.UID)] != namespace.Name {
			t.Errorf("namespace %s has no index", namespace.Name)
		}
		checkInside(t, c, namespace, framework.Revision(first.ResourceVersion))
	}
	if len(indices) != len(written) {
		t.Errorf("the log store has %d indices for %d namespaces", len(indices), len(written))
	}

	began = time.Now()
	for _, first := range written {
		if err := c.Core.CoreV1().Namespaces().Delete(ctx, first.Namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	waitAllGone(t, c, written)
	t.Logf("all were deleted after %s", time.Since(began).Round(100*time.Millisecond))
	if indices, err := s.Indices(ctx); err != nil || len(indices) != 0 {
		t.Errorf("the log store still has %d indices, %v", len(indices), err)
	}
}

// finishedTurns returns the number of namespaces in which an initializer has finished its turn, or 0 on an error.
func finishedTurns(ctx context.Context, c *framework.Cluster, initializer string) int {
	list, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0
	}
	finished := 0
	for _, lifecycle := range list.Items {
		if helper.Planned(&lifecycle, initializer) != nil && !slices.Contains(helper.Pending(&lifecycle), initializer) {
			finished++
		}
	}
	return finished
}

// checkInside checks that the contents that the hooks created in a namespace are older than a revision.
func checkInside(t *testing.T, c *framework.Cluster, namespace *corev1.Namespace, first int64) {
	t.Helper()
	ctx := t.Context()
	for what, get := range map[string]func() (metav1.Object, error){
		"rolebinding/namespace-admin": func() (metav1.Object, error) {
			return c.Core.RbacV1().RoleBindings(namespace.Name).Get(ctx, "namespace-admin", metav1.GetOptions{})
		},
		"limitrange/default": func() (metav1.Object, error) {
			return c.Core.CoreV1().LimitRanges(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
		},
		"networkpolicy/default-deny": func() (metav1.Object, error) {
			return c.Core.NetworkingV1().NetworkPolicies(namespace.Name).Get(ctx, "default-deny", metav1.GetOptions{})
		},
		"configmap/log-index": func() (metav1.Object, error) {
			return c.Core.CoreV1().ConfigMaps(namespace.Name).Get(ctx, "log-index", metav1.GetOptions{})
		},
	} {
		object, err := get()
		switch {
		case err != nil:
			t.Errorf("%s in %s: %v", what, namespace.Name, err)
		case framework.Revision(object.GetResourceVersion()) >= first:
			t.Errorf("%s in %s has revision %s, and the tenant's first object %d", what, namespace.Name, object.GetResourceVersion(), first)
		}
	}
	// The revision of the quota changes later with its status.
	quota, err := c.Core.CoreV1().ResourceQuotas(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
	if err != nil || quota.Labels[v1alpha1.LabelPopulation] != "default" {
		t.Errorf("resourcequota/default in %s: %v", namespace.Name, err)
	}
}

// waitAllGone waits until namespaces are deleted. It fails if their number does not decrease for some time.
func waitAllGone(t *testing.T, c *framework.Cluster, in []*corev1.ConfigMap) {
	t.Helper()
	names := map[string]bool{}
	for _, object := range in {
		names[object.Namespace] = true
	}
	for before, since := len(names)+1, time.Now(); ; time.Sleep(200 * time.Millisecond) {
		list, err := c.Core.CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, namespace := range list.Items {
			if names[namespace.Name] {
				left = append(left, namespace.Name)
			}
		}
		switch {
		case len(left) == 0:
			return
		case len(left) < before:
			before, since = len(left), time.Now()
		case time.Since(since) > framework.Patience:
			t.Fatalf("these namespaces are not deleted: %s", strings.Join(left, " "))
		}
	}
}

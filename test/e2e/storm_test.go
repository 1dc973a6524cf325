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
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestDeletionStorm deletes 25 namespaces while nsinit's programs are killed and started at random. All of them are
// removed, none before its participant has cleaned up, and new namespaces of the same names keep their content.
func TestDeletionStorm(t *testing.T) {
	const (
		count       = 25
		participant = "storm.example.com"
		limit       = 10 * time.Minute
	)
	seed := framework.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
	c := framework.Connect(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: participant, Finalizer: true})
	c.ActAs(t, participant)
	cleaned := cleanUpAs(t, c, participant)
	namespaces := c.Core.CoreV1().Namespaces()

	create := func() []*corev1.Namespace {
		t.Helper()
		all := make([]*corev1.Namespace, count)
		var group errgroup.Group
		group.SetLimit(8)
		for i := range all {
			group.Go(func() (err error) {
				all[i], err = namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("storm-%d", i)}}, metav1.CreateOptions{})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	fill := func(all []*corev1.Namespace) {
		t.Helper()
		for _, namespace := range all {
			c.WaitReady(t, namespace.Name)
			if err := framework.WriteConfigMap(t.Context(), c.Core, namespace.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := create()
	fill(all)

	storm, calm := context.WithCancel(t.Context())
	defer calm()
	var group sync.WaitGroup
	kills := 0
	group.Go(func() {
		programs := []string{"nsinit-etcd", "nsinit-apiserver", "nsinit-controller-manager"}
		// On a machine on which nothing succeeds between two kills, the number of kills is the end.
		for kills < 40 && storm.Err() == nil {
			program := programs[random.IntN(len(programs))]
			c.Dev(t, "kill", program)
			c.Dev(t, "start", program)
			kills++
			select {
			case <-storm.Done():
			case <-time.After(time.Duration(2+random.IntN(4)) * time.Second):
			}
		}
	})
	began := time.Now()
	for _, namespace := range all {
		if err := namespaces.Delete(t.Context(), namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	left := slices.Clone(all)
	err := wait.PollUntilContextTimeout(t.Context(), 500*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		list, err := namespaces.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // kube-apiserver is busy
		}
		left = slices.DeleteFunc(left, func(namespace *corev1.Namespace) bool {
			if slices.ContainsFunc(list.Items, func(one corev1.Namespace) bool { return one.UID == namespace.UID }) {
				return false
			}
			if !cleaned.has(namespace.UID) {
				t.Errorf("%s was removed, and its participant has not cleaned up", namespace.Name)
			}
			return true
		})
		return len(left) == 0, nil
	})
	if err != nil {
		t.Fatalf("%d namespaces are left: %v", len(left), err)
	}
	took := time.Since(began)

	// The same names again, while the storm continues for a while.
	all = create()
	calm()
	group.Wait()
	c.WaitServing(t)
	fill(all)
	time.Sleep(2 * time.Second) // a late initializer would act now
	for _, namespace := range all {
		live, err := namespaces.Get(t.Context(), namespace.Name, metav1.GetOptions{})
		if err != nil || live.UID != namespace.UID || live.DeletionTimestamp != nil {
			t.Errorf("%s was created again, and is %v: %v", namespace.Name, live, err)
		}
		list, err := c.Core.CoreV1().ConfigMaps(namespace.Name).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("%s was created again, and its content is %v: %v", namespace.Name, list.Items, err)
		}
	}
	t.Logf("%d namespaces left in %.1f s, with %d kills", count, took.Seconds(), kills)
}

// marks are UIDs of namespaces.
type marks struct {
	mu  sync.Mutex
	all map[types.UID]bool
}

func (m *marks) has(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[uid]
}

func (m *marks) add(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[uid] = true
}

// cleanUpAs acts as a participant of deletions until the test ends: it marks each namespace as cleaned up, and then
// removes its name from the NamespaceLifecycle.
func cleanUpAs(t *testing.T, c *framework.Cluster, participant v1alpha1.FinalizerName) *marks {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	config := rest.CopyConfig(c.Admin)
	config.Timeout = 5 * time.Second
	client := versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceLifecycles()
	cleaned := &marks{all: map[types.UID]bool{}}
	go func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			list, err := client.List(ctx, metav1.ListOptions{FieldSelector: "status.phase=" + string(v1alpha1.LifecycleTerminating)})
			if err != nil {
				continue
			}
			for _, lifecycle := range list.Items {
				if !slices.Contains(lifecycle.Spec.Finalizers, participant) {
					continue
				}
				cleaned.add(lifecycle.Spec.NamespaceUID)
				lifecycle.Spec.Finalizers = slices.DeleteFunc(lifecycle.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == participant })
				_, _ = client.Finalize(ctx, lifecycle.Name, &lifecycle, metav1.UpdateOptions{})
			}
		}
	}()
	return cleaned
}

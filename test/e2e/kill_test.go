//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// observer follows one namespace: at which revision it opened, and at which a tenant's
// first object was stored.
type observer struct {
	opened  chan int64
	written chan int64
}

// observe starts to follow a namespace. A tenant writes into it as often as it can, until
// the first write passes.
func (c *cluster) observe(t *testing.T, tenant kubernetes.Interface, namespace *corev1.Namespace) *observer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	o := &observer{opened: make(chan int64, 1), written: make(chan int64, 1)}
	lw := cache.NewListWatchFromClient(c.core.CoreV1().RESTClient(), "namespaces", "", fields.OneTermEqualSelector("metadata.name", namespace.Name))
	go func() {
		_, _ = watchtools.Until(ctx, namespace.ResourceVersion, lw, func(event watch.Event) (bool, error) {
			n, ok := event.Object.(*corev1.Namespace)
			if !ok || n.UID != namespace.UID {
				return false, nil
			}
			if _, closed := n.Labels[v1alpha1.LabelInitializing]; closed {
				return false, nil
			}
			o.opened <- revision(n.ResourceVersion)
			return true, nil
		})
	}()
	go func() {
		for ctx.Err() == nil {
			object, err := tenant.CoreV1().ConfigMaps(namespace.Name).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}, metav1.CreateOptions{})
			if err == nil {
				o.written <- revision(object.ResourceVersion)
				return
			}
		}
	}()
	return o
}

// check waits for both, and compares them: no tenant's object is stored before the
// revision that opened the gate.
func (o *observer) check(t *testing.T) {
	t.Helper()
	var opened, written int64
	for range 2 {
		select {
		case opened = <-o.opened:
		case written = <-o.written:
		case <-t.Context().Done():
			t.Fatal("the test was ended")
		}
	}
	if opened == 0 || written <= opened {
		t.Errorf("the gate opened at revision %d, the tenant's first object is of revision %d", opened, written)
	}
}

func revision(resourceVersion string) int64 {
	r, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return -1
	}
	return r
}

// TestKill kills either program of nsinit at every step of the story, and starts it again.
// The gate never opens early, and the namespace becomes Ready.
func TestKill(t *testing.T) {
	c := connect(t)
	tenant := c.tenant(t)
	c.configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true}, v1alpha1.RegisteredInitializer{Name: "two.example.com"})
	steps := []string{"after the creation", "in the turn of the first", "after the first", "after the last", "after the deletion"}
	for _, program := range []string{"nsinit-apiserver", "nsinit-controller-manager"} {
		for kill, step := range steps {
			t.Run(fmt.Sprintf("%s %s", program, step), func(t *testing.T) {
				at := func(now int) {
					if now == kill {
						c.dev(t, "kill", program)
						c.dev(t, "start", program)
					}
				}
				namespace := c.createNamespace(t, c.admin)
				o := c.observe(t, tenant, namespace)
				at(0)
				c.waitCurrent(t, namespace.Name, "one.example.com")
				at(1)
				c.removeFirst(t, namespace.Name)
				at(2)
				c.waitCurrent(t, namespace.Name, "two.example.com")
				if !c.isClosed(t, namespace.Name) {
					t.Fatal("the gate is open although an initializer is pending")
				}
				c.removeFirst(t, namespace.Name)
				at(3)
				c.waitReady(t, namespace.Name)
				o.check(t)

				if err := c.core.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				at(4)
				c.releaseParticipant(t, namespace.Name, "one.example.com")
				c.waitNoRecord(t, namespace.Name)
				c.waitNoNamespace(t, namespace.Name)
			})
		}
	}
}

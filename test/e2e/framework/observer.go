/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// writePause is the pause of a tenant between two writes into a closed namespace.
const writePause = 20 * time.Millisecond

// Observer observes one namespace.
type Observer struct {
	// Opened receives the revision at which the namespace opened, and Written that of the tenant's first object.
	Opened, Written chan int64
}

// Observe starts to observe a namespace. A tenant writes into it again and again until a write succeeds.
func (c *Cluster) Observe(t *testing.T, tenant kubernetes.Interface, namespace *corev1.Namespace) *Observer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	o := &Observer{Opened: make(chan int64, 1), Written: make(chan int64, 1)}
	lw := cache.NewListWatchFromClient(c.Core.CoreV1().RESTClient(), "namespaces", "", fields.OneTermEqualSelector("metadata.name", namespace.Name))
	go func() {
		_, _ = watchtools.Until(ctx, namespace.ResourceVersion, lw, func(event watch.Event) (bool, error) {
			n, ok := event.Object.(*corev1.Namespace)
			if !ok || n.UID != namespace.UID {
				return false, nil
			}
			if _, closed := n.Labels[v1alpha1.LabelInitializing]; closed {
				return false, nil
			}
			o.Opened <- Revision(n.ResourceVersion)
			return true, nil
		})
	}()
	go func() {
		for ; ctx.Err() == nil; time.Sleep(writePause) {
			object, err := tenant.CoreV1().ConfigMaps(namespace.Name).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}, metav1.CreateOptions{})
			if err == nil {
				o.Written <- Revision(object.ResourceVersion)
				return
			}
		}
	}()
	return o
}

// Check waits for both revisions, at most for Patience, and checks that the namespace opened first.
func (o *Observer) Check(t *testing.T) {
	t.Helper()
	var opened, written int64
	for deadline := time.After(Patience); opened == 0 || written == 0; {
		select {
		case opened = <-o.Opened:
		case written = <-o.Written:
		case <-deadline:
			t.Fatalf("after %s, the gate opened at revision %d, the tenant's first object is of revision %d", Patience, opened, written)
		}
	}
	if written <= opened {
		t.Errorf("the gate opened at revision %d, the tenant's first object is of revision %d", opened, written)
	}
}

// Revision returns a resourceVersion as a number, or -1.
func Revision(resourceVersion string) int64 {
	r, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return -1
	}
	return r
}

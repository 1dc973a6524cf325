/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestOver: the end of a turn in a former namespace, which the watch shows late, does not end the turn in the next one.
func TestOver(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	lifecycle := func(namespace types.UID) *v1alpha1.NamespaceLifecycle {
		return &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "ns"}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: namespace}}
	}
	r := &Runner{queue: queue, ended: sets.New[ended](), turns: map[string]*call{"ns": {lifecycle: lifecycle("now"), operation: initialize, end: end}}}
	r.over(initialize, lifecycle("former"))
	r.over(finalize, lifecycle("now"))
	if ctx.Err() != nil {
		t.Error("the turn was ended by another one")
	}
	r.over(initialize, lifecycle("now"))
	if ctx.Err() == nil {
		t.Error("the turn was not ended")
	}
}

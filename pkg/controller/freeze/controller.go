/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package freeze

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/pkg/util/workers"
)

// Name is the name of the controller in logs and metrics.
const Name = "freeze"

// maxRetryDelay bounds the delay after a failed write for the same reason.
const maxRetryDelay = 30 * time.Second

// Dependencies is what a Controller works with.
type Dependencies struct {
	Core       kubernetes.Interface
	Namespaces coreinformers.NamespaceInformer
	Events     record.EventRecorder
	Clock      clock.WithTicker
}

// Controller maintains the condition.
type Controller struct {
	Dependencies

	synced cache.InformerSynced
	queue  workers.Queue
}

// New returns a controller that is not running yet. It registers a handler with the informer, which must be started
// afterwards.
func New(d Dependencies) (*Controller, error) {
	c := &Controller{Dependencies: d, queue: workers.NewQueue(Name, d.Clock, 20*time.Millisecond, maxRetryDelay)}
	handler, err := d.Namespaces.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, object any) { c.enqueue(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch namespaces: %w", err)
	}
	c.synced = handler.HasSynced
	return c, nil
}

// enqueue adds a namespace whose condition is not up to date.
func (c *Controller) enqueue(object any) {
	if namespace, ok := object.(*corev1.Namespace); ok && missing(namespace) != nil {
		c.queue.Add(namespace.Name)
	}
}

// Run writes conditions until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced) {
		return errors.New("stopped before the caches were filled")
	}
	workers.Run(ctx, c.queue, 1, c.reconcile)
	return nil
}

// reconcile writes the condition of a namespace. If the cache is behind, the write fails with a conflict.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	namespace, err := c.Namespaces.Lister().Get(name)
	if err != nil {
		return utilapierrors.IgnoreAbsent(err)
	}
	condition := missing(namespace)
	if condition == nil {
		return nil
	}
	read := namespace
	namespace = read.DeepCopy()
	condition.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	utilnamespaces.SetCondition(&namespace.Status.Conditions, *condition)
	_, err = utilnamespaces.PatchStatus(ctx, c.Core.CoreV1(), read, namespace)
	switch {
	case apierrors.IsConflict(err):
		return err
	case err != nil:
		return utilapierrors.IgnoreAbsent(fmt.Errorf("cannot write the condition %s: %w", v1alpha1.ConditionFrozen, err))
	}
	klog.FromContext(ctx).Info("Reported", "namespace", name, "uid", namespace.UID, "reason", condition.Reason, "message", condition.Message)
	c.Events.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: name, UID: namespace.UID}, corev1.EventTypeNormal, condition.Reason, condition.Message)
	return nil
}

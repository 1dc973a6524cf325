/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package termination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// Name is the name of the controller in flags, logs and metrics.
const Name = "namespace-termination"

const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = time.Minute
)

// Dependencies is what a Controller works with.
type Dependencies struct {
	Core       kubernetes.Interface
	Metadata   metadata.Interface
	Namespaces coreinformers.NamespaceInformer
	// Discover returns the namespaced resources of every group in its preferred version, and the
	// errors of the groups that could not be discovered.
	Discover func() ([]*metav1.APIResourceList, error)
	Clock    clock.WithTicker
}

// Controller deletes the content of terminating namespaces.
type Controller struct {
	Dependencies

	synced cache.InformerSynced
	queue  workers.Queue
}

// New returns a controller that is not running yet.
func New(d Dependencies) (*Controller, error) {
	c := &Controller{
		Dependencies: d,
		queue:        workers.NewQueue(Name, d.Clock, minRetryDelay, maxRetryDelay),
	}
	registration, err := cache.NewTypedSharedIndexInformer[*corev1.Namespace](d.Namespaces.Informer()).AddTypedEventHandler(coreinformers.NamespaceHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: c.updated,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch namespaces: %w", err)
	}
	c.synced = registration.HasSynced
	return c, nil
}

func (c *Controller) enqueue(namespace *corev1.Namespace) {
	if namespace.DeletionTimestamp != nil {
		c.queue.Add(namespace.Name)
	}
}

// updated ignores updates that do not change the finalizers of a terminating namespace, such as the
// conditions that the controller writes. Otherwise each retry would cause the next.
func (c *Controller) updated(oldNamespace, newNamespace *corev1.Namespace) {
	if oldNamespace.DeletionTimestamp != nil && oldNamespace.UID == newNamespace.UID &&
		slices.Equal(oldNamespace.Spec.Finalizers, newNamespace.Spec.Finalizers) && slices.Equal(oldNamespace.Finalizers, newNamespace.Finalizers) {
		return
	}
	c.enqueue(newNamespace)
}

// Run reconciles at most count namespaces at a time until the context ends.
func (c *Controller) Run(ctx context.Context, count int) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced) {
		return errors.New("stopped before the cache was filled")
	}
	workers.Run(ctx, c.queue, count, c.reconcile)
	return nil
}

// reconcile takes the next step for a terminating namespace. It reads the namespace live, so that it
// deletes nothing in another namespace of that name.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case utilapierrors.IsAbsent(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot read the namespace: %w", err)
	case namespace.DeletionTimestamp == nil:
		return nil
	case slices.Contains(namespace.Finalizers, v1alpha1.ContentFinalizer):
		return nil // a participant holds the content; the removal of the finalizer re-queues the name
	case len(namespace.Spec.Finalizers) == 0 && len(namespace.Finalizers) == 0:
		return c.remove(ctx, namespace)
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating {
		terminating := namespace.DeepCopy()
		terminating.Status.Phase = corev1.NamespaceTerminating
		if namespace, err = c.Core.CoreV1().Namespaces().UpdateStatus(ctx, terminating, metav1.UpdateOptions{}); err != nil {
			return utilapierrors.IgnoreAbsent(fmt.Errorf("cannot set the phase: %w", err))
		}
	}
	if slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return c.empty(ctx, namespace)
	}
	return nil // other finalizers hold the namespace
}

// remove deletes a namespace whose finalizers were empty before it was deleted. It deletes the content,
// then sends a second DELETE. It writes no condition, because an update would remove the namespace.
func (c *Controller) remove(ctx context.Context, namespace *corev1.Namespace) error {
	found, err := c.deleteContent(ctx, namespace)
	if err != nil {
		return fmt.Errorf("cannot delete the content of the namespace: %w", err)
	}
	if wait := found.wait(c.Clock.Now()); wait > 0 {
		klog.FromContext(ctx).Info("The namespace has no finalizers, and its content is not deleted yet", "namespace", namespace.Name, "remaining", found.remains())
		c.queue.AddAfter(namespace.Name, wait)
		return nil
	}
	err = c.Core.CoreV1().Namespaces().Delete(ctx, namespace.Name, *metav1.NewPreconditionDeleteOptions(string(namespace.UID)))
	return utilapierrors.IgnoreAbsent(err)
}

// empty deletes the content of a namespace, and reports what is left. It removes the finalizer
// "kubernetes" when nothing is left.
func (c *Controller) empty(ctx context.Context, namespace *corev1.Namespace) error {
	found, err := c.deleteContent(ctx, namespace)
	updated := namespace.DeepCopy()
	if found.describe(updated, c.Clock.Now()) {
		namespace, updateErr := c.Core.CoreV1().Namespaces().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
		if updateErr != nil {
			return utilapierrors.IgnoreAbsent(errors.Join(err, fmt.Errorf("cannot write the conditions: %w", updateErr)))
		}
		updated = namespace
	}
	if err != nil {
		return err
	}
	if wait := found.wait(c.Clock.Now()); wait > 0 {
		c.queue.AddAfter(namespace.Name, wait)
		return nil
	}
	finalized := updated.DeepCopy()
	finalized.Spec.Finalizers = slices.DeleteFunc(finalized.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	if _, err := c.Core.CoreV1().Namespaces().Finalize(ctx, finalized, metav1.UpdateOptions{}); err != nil {
		return utilapierrors.IgnoreAbsent(fmt.Errorf("cannot remove the finalizer %q: %w", corev1.FinalizerKubernetes, err))
	}
	klog.FromContext(ctx).Info("Deleted the content of the namespace", "namespace", namespace.Name, "uid", namespace.UID)
	return nil
}

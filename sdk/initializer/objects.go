/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/cached"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// Object is a *corev1.Pod or a *batchv1.Job.
type Object interface {
	runtime.Object
	metav1.Object
}

// ObjectFunc acts on one pod or Job that waits for the initializer. It must be idempotent for each IdempotencyKey. If it returns nil,
// the Runner removes the initializer from the object. An error that Fail marked is not retried: the object waits until the deadline of
// the initializer, or until a user acts.
type ObjectFunc func(ctx context.Context, object Object) error

type objectKey struct{}

// objectCall is a call of InitializeObject. Its context has it as a value.
type objectCall struct {
	runner *Runner
	key    string
	end    context.CancelFunc
	// deleted says that the watch does not show the object any more.
	deleted bool
}

// objectTurns calls InitializeObject.
type objectTurns struct {
	runner    *Runner
	queue     workers.Queue
	informers map[string]cache.SharedIndexInformer

	mu sync.Mutex
	// ended are the objects whose call has ended for good, by UID, and calls the calls in progress.
	ended map[types.UID]bool
	calls map[types.UID]*objectCall
}

// watchObjects creates the informers of pods that wait, and of Jobs with the label of the initializer.
func (r *Runner) watchObjects() error {
	watch := func(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(r.options.Core, 0, informers.WithTweakListOptions(tweak), informers.WithTransform(cached.WithoutManagedFields))
	}
	o := &objectTurns{
		runner: r, queue: workers.NewQueue(r.options.Name+"-objects", r.options.Clock, minRetryDelay, maxRetryDelay),
		ended: map[types.UID]bool{}, calls: map[types.UID]*objectCall{},
		informers: map[string]cache.SharedIndexInformer{
			"pods": watch(func(list *metav1.ListOptions) {
				list.LabelSelector, list.FieldSelector = v1alpha1.LabelInitializing, fields.OneTermEqualSelector("spec.nodeName", "").String()
			}).Core().V1().Pods().Informer(),
			"jobs": watch(func(list *metav1.ListOptions) { list.LabelSelector = v1alpha1.LabelInitializing + "," + v1alpha1.PendingPrefix + r.options.Name }).Batch().V1().Jobs().Informer(),
		},
	}
	r.objects = o
	for resource, informer := range o.informers {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { o.changed(resource, nil, object) },
			UpdateFunc: func(old, object any) { o.changed(resource, old, object) },
			DeleteFunc: o.deleted,
		}); err != nil {
			return err
		}
	}
	return nil
}

// changed adds an object that has its turn now and did not have it before. A call goes on, and a failed one is retried after its delay.
func (o *objectTurns) changed(resource string, old, updated any) {
	object, ok := updated.(Object)
	before, existed := old.(Object)
	switch {
	case !ok:
	case !o.hasTurn(object):
		o.over(object.GetUID(), false)
	case !existed || before.GetUID() != object.GetUID() || !o.hasTurn(before):
		o.queue.Add(resource + "/" + object.GetNamespace() + "/" + object.GetName())
	}
	if existed && ok && before.GetUID() != object.GetUID() {
		o.over(before.GetUID(), true)
	}
}

func (o *objectTurns) deleted(any any) {
	if tombstone, ok := any.(cache.DeletedFinalStateUnknown); ok {
		any = tombstone.Obj
	}
	if object, ok := any.(Object); ok {
		o.over(object.GetUID(), true)
	}
}

func (o *objectTurns) hasTurn(object Object) bool {
	pending := helper.PendingOfObject(object)
	return len(pending) > 0 && pending[0] == o.runner.options.Name && object.GetDeletionTimestamp() == nil
}

// over ends the call for an object that no longer waits.
func (o *objectTurns) over(uid types.UID, deleted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.calls[uid]; c != nil {
		c.end()
		c.deleted = c.deleted || deleted
	}
	if deleted {
		delete(o.ended, uid)
	}
}

func (o *objectTurns) listed() bool {
	return o.informers["pods"].HasSynced() && o.informers["jobs"].HasSynced()
}

func (o *objectTurns) run(ctx context.Context) {
	for _, informer := range o.informers {
		go informer.RunWithContext(ctx)
	}
	if cache.WaitForCacheSync(ctx.Done(), o.listed) {
		workers.Run(ctx, o.queue, o.runner.options.Workers, o.take)
	}
}

// take calls the function for an object, if it has its turn.
func (o *objectTurns) take(ctx context.Context, key string) error {
	resource, name, _ := strings.Cut(key, "/")
	stored, _, _ := o.informers[resource].GetStore().GetByKey(name) // a cache has no error
	object, ok := stored.(Object)
	if !ok || !o.hasTurn(object) {
		return nil
	}
	r, uid := o.runner, object.GetUID()
	c := &objectCall{runner: r, key: fmt.Sprintf("%s/%s/%s", uid, r.options.Name, initialize)}
	callCtx, end := context.WithCancel(context.WithValue(ctx, objectKey{}, c))
	defer end()
	c.end = end
	o.mu.Lock()
	if o.ended[uid] {
		o.mu.Unlock()
		return nil
	}
	o.calls[uid] = c
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.calls, uid)
	}()
	ended := r.metrics.began(initialize, r.options.Clock.Now)
	result, err := o.conclude(callCtx, resource, object, o.call(callCtx, object))
	ended(result)
	return err
}

func (o *objectTurns) call(ctx context.Context, object Object) (err error) {
	defer recovered(ctx, &err)
	return o.runner.options.InitializeObject(ctx, object.DeepCopyObject().(Object))
}

// conclude writes the result of a call, and returns the value of the label result.
func (o *objectTurns) conclude(ctx context.Context, resource string, object Object, err error) (string, error) {
	r, logger := o.runner, klog.FromContext(ctx)
	finish := func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if c := o.calls[object.GetUID()]; c != nil && !c.deleted {
			o.ended[object.GetUID()] = true
		}
	}
	switch {
	case r.options.DryRun:
		finish()
		logger.Info("Dry run: called the function, and changed nothing", "err", err)
		return resultOver, nil
	case ctx.Err() != nil:
		return resultOver, nil // the object does not wait any more, or the process stops
	case err == nil:
		if err := o.remove(ctx, resource, object); err != nil {
			return resultError, err
		}
		finish()
		logger.Info("Done with the object")
		return resultDone, nil
	}
	r.options.Events.Eventf(object, corev1.EventTypeWarning, eventInitializerError, "Initializer %q: %s", r.options.Name, shorten(err.Error()))
	if _, permanent := errors.AsType[*failure](err); permanent {
		finish()
		logger.Error(err, "The initialization of the object failed")
		return resultFailed, nil
	}
	return resultError, err
}

// remove removes the initializer from an object. kube-apiserver starts a Job with the last one.
func (o *objectTurns) remove(ctx context.Context, resource string, object Object) error {
	name := v1alpha1.PendingPrefix + o.runner.options.Name
	metadata := map[string]any{"uid": object.GetUID()}
	patch := map[string]any{"metadata": metadata}
	if resource == "pods" {
		patch["spec"] = map[string]any{"schedulingGates": []any{map[string]any{"$patch": "delete", "name": name}}}
	} else {
		metadata["labels"] = map[string]any{name: nil}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	if resource == "pods" {
		_, err = o.runner.options.Core.CoreV1().Pods(object.GetNamespace()).Patch(ctx, object.GetName(), types.StrategicMergePatchType, data, metav1.PatchOptions{})
	} else {
		_, err = o.runner.options.Core.BatchV1().Jobs(object.GetNamespace()).Patch(ctx, object.GetName(), types.StrategicMergePatchType, data, metav1.PatchOptions{})
	}
	if apierrors.IsConflict(err) { // another object of this name
		return nil
	}
	return utilapierrors.IgnoreAbsent(err)
}

var (
	_ Object = (*corev1.Pod)(nil)
	_ Object = (*batchv1.Job)(nil)
)

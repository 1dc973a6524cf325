/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
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

// objectTurns are the pods and Jobs that may have their turn.
type objectTurns struct {
	runner    *Runner
	queue     workers.Queue
	informers map[string]cache.SharedIndexInformer
}

// watchObjects creates the informers of pods that wait, and of Jobs with the label of the initializer.
func (r *Runner) watchObjects() error {
	watch := func(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(r.options.Core, 0, informers.WithTweakListOptions(tweak), informers.WithTransform(cached.WithoutManagedFields))
	}
	o := &objectTurns{
		runner: r, queue: workers.NewFairQueue(r.options.Name+"-objects", r.options.Clock, minRetryDelay, maxRetryDelay, namespaceOf),
		informers: map[string]cache.SharedIndexInformer{
			"pods": watch(func(list *metav1.ListOptions) {
				list.LabelSelector, list.FieldSelector = v1alpha1.LabelInitializing, fields.OneTermEqualSelector("spec.nodeName", "").String()
			}).Core().V1().Pods().Informer(),
			"jobs": watch(func(list *metav1.ListOptions) {
				list.LabelSelector = v1alpha1.LabelInitializing + "," + v1alpha1.PendingPrefix + r.options.Name
			}).Batch().V1().Jobs().Informer(),
		},
	}
	r.objects = o
	for resource, informer := range o.informers {
		r.informers = append(r.informers, informer)
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { o.changed(resource, nil, object) },
			UpdateFunc: func(old, object any) { o.changed(resource, old, object) },
			DeleteFunc: func(object any) { o.deleted(resource, object) },
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
	if existed && ok && before.GetUID() != object.GetUID() {
		o.deleted(resource, before)
		existed = false
	}
	switch {
	case !ok:
	case !o.hasTurn(object):
		o.over(resource, object, false)
	case !existed || !o.hasTurn(before):
		o.queue.Add(keyOf(resource, object))
	}
}

func (o *objectTurns) deleted(resource string, any any) {
	if tombstone, ok := any.(cache.DeletedFinalStateUnknown); ok {
		any = tombstone.Obj
	}
	if object, ok := any.(Object); ok {
		o.over(resource, object, true)
	}
}

func keyOf(resource string, object Object) string {
	return resource + "/" + cache.MetaObjectToName(object).String()
}

// namespaceOf returns the namespace of the object of a key: the objects of one tenant must not delay those of others.
func namespaceOf(key string) string { return strings.Split(key, "/")[1] }

func (o *objectTurns) hasTurn(object Object) bool {
	pending := helper.PendingOfObject(object)
	return len(pending) > 0 && pending[0] == o.runner.options.Name && object.GetDeletionTimestamp() == nil
}

// over ends the call for an object that no longer waits, or that the watch does not show any more.
func (o *objectTurns) over(resource string, object Object, deleted bool) {
	o.runner.mu.Lock()
	defer o.runner.mu.Unlock()
	if turn := o.runner.turns[keyOf(resource, object)]; turn != nil && turn.object.GetUID() == object.GetUID() {
		turn.end()
	}
	if deleted {
		delete(o.runner.ended, ended{object.GetUID(), initialize})
	}
}

// take calls the function for an object, if it has its turn.
func (o *objectTurns) take(ctx context.Context, key string) error {
	resource, name, _ := strings.Cut(key, "/")
	stored, _, _ := o.informers[resource].GetStore().GetByKey(name) // a cache has no error
	object, ok := stored.(Object)
	if !ok || !o.hasTurn(object) || !o.runner.endedAt(ended{object.GetUID(), initialize}).IsZero() {
		return nil
	}
	return o.runner.perform(ctx, key, &call{runner: o.runner, object: object, operation: initialize})
}

// removeFromObject removes the initializer from a pod or Job. kube-apiserver starts a Job with the last one.
func (r *Runner) removeFromObject(ctx context.Context, object Object) error {
	name := v1alpha1.PendingPrefix + r.options.Name
	metadata, spec := map[string]any{"uid": object.GetUID()}, map[string]any{}
	_, isPod := object.(*corev1.Pod)
	if isPod {
		spec["schedulingGates"] = []any{map[string]any{"$patch": "delete", "name": name}}
	} else {
		metadata["labels"] = map[string]any{name: nil}
	}
	data, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return err
	}
	if isPod {
		_, err = r.options.Core.CoreV1().Pods(object.GetNamespace()).Patch(ctx, object.GetName(), types.StrategicMergePatchType, data, metav1.PatchOptions{})
	} else {
		_, err = r.options.Core.BatchV1().Jobs(object.GetNamespace()).Patch(ctx, object.GetName(), types.StrategicMergePatchType, data, metav1.PatchOptions{})
	}
	if apierrors.IsConflict(err) { // another object of this name
		return errors.Join(errOver, err)
	}
	return notFoundIsOver(err)
}

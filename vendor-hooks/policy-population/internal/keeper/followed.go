/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package keeper

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/tombstone"
)

// followed are the resources whose objects are watched, while the Keeper runs.
type followed struct {
	mu    sync.Mutex
	known map[schema.GroupVersionResource]struct{}
	// watch begins to watch a resource. It is nil before the Keeper runs.
	watch func(schema.GroupVersionResource)
}

// begin watches what was asked for so far, and what will be.
func (f *followed) begin(watch func(schema.GroupVersionResource)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = watch
	for resource := range f.known {
		watch(resource)
	}
}

func (f *followed) add(resource schema.GroupVersionResource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.known[resource]; known {
		return
	}
	if f.known == nil {
		f.known = map[schema.GroupVersionResource]struct{}{}
	}
	f.known[resource] = struct{}{}
	if f.watch != nil {
		f.watch(resource)
	}
}

// Follow watches the objects of a kind that populations hold, from now on or from when the Keeper
// runs. One that was stripped of its label looks like one that was deleted, and gets it back.
func (k *Keeper) Follow(kind schema.GroupVersionKind) {
	mapping, err := k.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return // the kind is not known, which is told by who applies it
	}
	k.followed.add(mapping.Resource)
}

// watch returns the informer of a resource.
func (k *Keeper) watch(ctx context.Context, resource schema.GroupVersionResource) cache.SharedIndexInformer {
	logger := klog.FromContext(ctx).WithValues("resource", resource)
	informer := metadatainformer.NewFilteredMetadataInformer(k.Metadata, resource, metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) { options.LabelSelector = v1alpha1.LabelPopulation }).Informer()
	if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			logger.Error(err, "Cannot watch what is to follow its manifest: it is looked at now and then alone. Grant list and watch")
			return
		}
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
	}); err != nil {
		logger.Error(err, "Cannot handle errors of a watch") // it was not started yet
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, updated any) {
			if drifted(old, updated) {
				k.objectChanged(updated)
			}
		},
		DeleteFunc: k.objectChanged,
	}); err != nil {
		logger.Error(err, "Cannot watch what is to follow its manifest") // nor this
	}
	logger.V(2).Info("Watching what is to follow its manifest")
	return informer
}

// objectChanged looks at the namespace of an object.
func (k *Keeper) objectChanged(object any) {
	metadata, ok := tombstone.Object[metav1.Object](object)
	if !ok {
		return
	}
	if namespace, err := namespaceOf(metadata); err == nil {
		k.namespaces.Add(namespace)
	}
}

// drifted says whether an update changed more than the status of an object, which controllers
// write often. Who owns which fields since when tells of every change.
func drifted(old, updated any) bool {
	before, ok := old.(metav1.Object)
	after, stillOK := updated.(metav1.Object)
	if !ok || !stillOK {
		return true
	}
	main := func(object metav1.Object) []metav1.ManagedFieldsEntry {
		return slices.DeleteFunc(slices.Clone(object.GetManagedFields()), func(entry metav1.ManagedFieldsEntry) bool { return entry.Subresource != "" })
	}
	return before.GetUID() != after.GetUID() || !equality.Semantic.DeepEqual(main(before), main(after)) ||
		!equality.Semantic.DeepEqual(before.GetLabels(), after.GetLabels()) || !equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil)
}

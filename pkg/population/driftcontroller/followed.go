/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package driftcontroller

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/tombstone"
)

// Followed are the resources whose objects the Controller watches while it runs.
type Followed struct {
	mapper meta.RESTMapper
	mu     sync.Mutex
	known  map[schema.GroupVersionResource]struct{}
	// watch begins to watch a resource. It is nil before the Controller runs.
	watch func(schema.GroupVersionResource)
}

// NewFollowed returns an empty set. The mapper tells the resource of a kind.
func NewFollowed(mapper meta.RESTMapper) *Followed {
	return &Followed{mapper: mapper, known: map[schema.GroupVersionResource]struct{}{}}
}

// Add adds a kind that populations hold. An object that was stripped of its label looks like one that was
// deleted, and gets it back.
func (f *Followed) Add(kind schema.GroupVersionKind) {
	mapping, err := f.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return // the kind is not known, which is reported by who applies it
	}
	f.add(mapping.Resource)
}

// begin watches the resources so far, and those that are added later.
func (f *Followed) begin(watch func(schema.GroupVersionResource)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = watch
	for resource := range f.known {
		watch(resource)
	}
}

func (f *Followed) add(resource schema.GroupVersionResource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.known[resource]; known {
		return
	}
	f.known[resource] = struct{}{}
	if f.watch != nil {
		f.watch(resource)
	}
}

// watch returns the informer of a resource.
func (c *Controller) watch(ctx context.Context, resource schema.GroupVersionResource) cache.SharedIndexInformer {
	logger := klog.FromContext(ctx).WithValues("resource", resource)
	informer := metadatainformer.NewFilteredMetadataInformer(c.Metadata, resource, metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) { options.LabelSelector = v1alpha1.LabelPopulation }).Informer()
	if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			logger.Error(err, "Cannot watch what is to follow its manifest: drift is corrected only at resync. Grant list and watch")
			return
		}
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
	}); err != nil {
		logger.Error(err, "Cannot handle errors of a watch") // it was not started yet
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, updated any) {
			if drifted(old, updated) {
				c.objectChanged(updated)
			}
		},
		DeleteFunc: c.objectChanged,
	}); err != nil {
		logger.Error(err, "Cannot watch what is to follow its manifest") // nor this
	}
	logger.V(2).Info("Watching what is to follow its manifest")
	return informer
}

// objectChanged looks at the namespace of an object.
func (c *Controller) objectChanged(object any) {
	metadata, ok := tombstone.Object[metav1.Object](object)
	if !ok {
		return
	}
	if namespace, err := namespaceOf(metadata); err == nil {
		c.namespaces.Add(namespace)
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

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// follow watches the resource of objects of populations while the Controller runs. It is called by a worker. An error can be retried.
func (c *Controller) follow(ctx context.Context, kind schema.GroupVersionKind) error {
	mapping, err := c.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil // the Populator reports an unknown kind
	}
	if err != nil {
		return err
	}
	resource := mapping.Resource
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followed.Has(resource) {
		return nil
	}
	c.followed.Insert(resource)
	ctx, end := context.WithCancel(ctx)
	informer := c.watch(ctx, resource, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.followed.Delete(resource)
		end()
	})
	c.running.Go(func() { informer.RunWithContext(ctx) })
	c.running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			c.enqueueAll() // what was deleted before is no event
		}
	})
	return nil
}

// watch returns the informer of a resource. It calls gone if the cluster does not have the resource any more. The removal of the label
// is an event like a deletion, so the label is restored.
func (c *Controller) watch(ctx context.Context, resource schema.GroupVersionResource, gone func()) cache.SharedIndexInformer {
	logger := klog.FromContext(ctx).WithValues("resource", resource)
	informer := cache.NewTypedSharedIndexInformer[*metav1.PartialObjectMetadata](
		metadatainformer.NewFilteredMetadataInformer(c.Metadata, resource, metav1.NamespaceAll, 0, cache.Indexers{},
			func(options *metav1.ListOptions) { options.LabelSelector = v1alpha1.LabelPopulation }).Informer())
	errs := []error{informer.SetTransform(slimmed), informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		switch {
		case apierrors.IsForbidden(err):
			logger.Error(err, "Cannot watch a resource: drift is corrected only at resync; grant list and watch")
		case apierrors.IsNotFound(err):
			logger.V(2).Info("A resource of populations does not exist any more")
			gone()
		default:
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
		}
	})}
	_, err := informer.AddTypedEventHandler(cache.TypedResourceEventHandlerDetailedFuncs[*metav1.PartialObjectMetadata]{
		AddFunc: func(object *metav1.PartialObjectMetadata, isInInitialList bool) {
			if !isInInitialList {
				c.observed(object, true, namespacesOf(object))
				return
			}
			for name := range namespacesOf(object) { // it may have changed since it was applied
				c.changes.Add(name)
			}
		},
		UpdateFunc: func(before, after *metav1.PartialObjectMetadata) {
			if before.UID != after.UID {
				c.deleted(before)
			}
			if drifted(before, after) {
				c.observed(after, false, namespacesOf(before).Union(namespacesOf(after))) // its owner can be removed
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[*metav1.PartialObjectMetadata]) {
			if deleted.OptionalObj != nil {
				c.deleted(deleted.OptionalObj)
			}
		},
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		logger.Error(err, "Cannot set up a watch")
	}
	logger.V(2).Info("Watching a resource of populations")
	return informer
}

const (
	// mainWrites and allWrites are annotations of the objects in memory: hashes of managedFields without and with subresources. labelsAndOwners
	// is that of the labels and owners. An object has the annotation statusLast if its last write was of a subresource, such as the status.
	mainWrites, allWrites, labelsAndOwners, statusLast = "main", "all", "labelsAndOwners", "statusLast"
)

// slimmed is a cache.TransformFunc that keeps of an object what drifted and namespacesOf need. Tenants choose the size of the rest.
func slimmed(object any) (any, error) {
	o, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	main, mainTime, otherTime := []metav1.ManagedFieldsEntry{}, time.Time{}, time.Time{}
	for _, entry := range o.ManagedFields {
		last := &otherTime
		if entry.Subresource == "" {
			main, last = append(main, entry), &mainTime
		}
		if entry.Time != nil && last.Before(entry.Time.Time) {
			*last = entry.Time.Time
		}
	}
	o.Annotations = map[string]string{allWrites: hashOf(o.ManagedFields), mainWrites: hashOf(main), labelsAndOwners: hashOf([]any{o.Labels, o.OwnerReferences})}
	if !mainTime.IsZero() && mainTime.Before(otherTime) && !otherTime.After(time.Now()) { // clients can write a time in the future
		o.Annotations[statusLast] = ""
	}
	if o.ManagedFields, o.Finalizers, o.Labels = nil, nil, nil; o.Namespace != "" {
		o.OwnerReferences = nil
	}
	return o, nil
}

func hashOf(metadata any) string {
	hash := sha256.New()
	_ = json.NewEncoder(hash).Encode(metadata) // decoded from JSON
	return string(hash.Sum(nil))
}

// drifted reports whether an update changed more than the status of an object, which controllers update often. Every
// change of a field changes managedFields, except a second change by the same client in the same second. Not every kind has a generation.
func drifted(before, after *metav1.PartialObjectMetadata) bool {
	differs := func(writes string) bool { return before.Annotations[writes] != after.Annotations[writes] }
	_, onlyStatus := after.Annotations[statusLast]
	return before.UID != after.UID || before.Generation != after.Generation || differs(mainWrites) || !onlyStatus && !differs(allWrites) && before.ResourceVersion != after.ResourceVersion ||
		differs(labelsAndOwners) || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}

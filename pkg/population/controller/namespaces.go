/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/cached"
)

// newNamespaces returns an informer of the metadata of the namespaces.
func newNamespaces(client metadata.Interface) (cache.TypedSharedIndexInformer[*metav1.PartialObjectMetadata], error) {
	informer := cache.NewTypedSharedIndexInformer[*metav1.PartialObjectMetadata](
		metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("namespaces"), "", 0, cache.Indexers{}, nil).Informer())
	if err := informer.SetTransform(cached.NamespaceMetadata); err != nil {
		return nil, err
	}
	return informer, informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			klog.FromContext(ctx).Error(err, "Cannot watch namespaces: changed labels take effect only at resync, and no rollout runs; grant list and watch")
			return
		}
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
	})
}

// Creator returns the user for whom a namespace was created, or nothing if it is not known.
func (c *Controller) Creator(name string) string {
	if namespace := c.namespace(name); namespace != nil {
		return helper.Creator(namespace)
	}
	return ""
}

// isClosed reports whether a namespace is known to be closed.
func (c *Controller) isClosed(name string) bool {
	namespace := c.namespace(name)
	return namespace != nil && metav1.HasLabel(namespace.ObjectMeta, v1alpha1.LabelInitializing)
}

// namespace returns a namespace, or nil if it is not known. It must not be changed.
func (c *Controller) namespace(name string) *metav1.PartialObjectMetadata {
	object, _, _ := c.namespaces.GetStore().GetByKey(name)
	namespace, _ := object.(*metav1.PartialObjectMetadata)
	return namespace
}

// listNamespaces returns the namespaces, sorted by name. They must not be changed.
func (c *Controller) listNamespaces() []*metav1.PartialObjectMetadata {
	var list []*metav1.PartialObjectMetadata
	for _, object := range c.namespaces.GetStore().List() {
		if namespace, ok := object.(*metav1.PartialObjectMetadata); ok {
			list = append(list, namespace)
		}
	}
	slices.SortFunc(list, func(a, b *metav1.PartialObjectMetadata) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// namespaceUpdated queues a namespace whose labels or creator have changed, or annotations that populations may repair, or that has opened
// after something changed in it, or without all of its objects. It queues the rollouts to which the change can matter.
func (c *Controller) namespaceUpdated(before, after *metav1.PartialObjectMetadata) {
	isSame, isSelectedAnew := before.UID == after.UID, selectsAnew(before, after)
	switch {
	case isSame && c.repairsMetadata() && (isSelectedAnew || !maps.Equal(before.Annotations, after.Annotations)):
		c.repairs.Add(after.Name)
	case isSame && isSelectedAnew:
		c.changes.Add(after.Name)
	}
	if isSame && metav1.HasLabel(before.ObjectMeta, v1alpha1.LabelInitializing) && !metav1.HasLabel(after.ObjectMeta, v1alpha1.LabelInitializing) {
		inventory, err := c.inventories.Get(after.Name)
		_, isClosed := c.closed.Load(after.Name)
		if isClosed || err == nil && !c.isPopulated(inventory) {
			c.changes.Add(after.Name)
		}
	}
	if !isSame || isSelectedAnew || population.IsOpen(before) != population.IsOpen(after) {
		c.enqueueRollouts()
	}
}

// repairsMetadata reports whether a population repairs the metadata of namespaces.
func (c *Controller) repairsMetadata() bool {
	populations, _ := c.populations.List(labels.Everything()) // a lister returns no error
	return slices.ContainsFunc(populations, func(p *v1alpha1.NamespacePopulation) bool {
		return p.Spec.NamespaceMetadata != nil && p.Spec.NamespaceMetadata.DriftPolicy == v1alpha1.DriftRepair
	})
}

// selectsAnew reports whether the labels of a namespace or its creator have changed. That it opens is no such change.
func selectsAnew(before, after *metav1.PartialObjectMetadata) bool {
	isGate := func(key, _ string) bool { return key == v1alpha1.LabelInitializing }
	old, now := maps.Clone(before.Labels), maps.Clone(after.Labels)
	maps.DeleteFunc(old, isGate)
	maps.DeleteFunc(now, isGate)
	creator := []string{v1alpha1.AnnotationCreatedBy, v1alpha1.AnnotationCreatedByGroups, v1alpha1.AnnotationOnBehalfOf}
	return !maps.Equal(old, now) || slices.ContainsFunc(creator, func(key string) bool {
		return before.Annotations[key] != after.Annotations[key]
	})
}

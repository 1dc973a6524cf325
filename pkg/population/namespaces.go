/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/cached"
)

// Namespaces are the metadata of the namespaces of the cluster.
type Namespaces struct {
	informer cache.SharedIndexInformer
}

// NewNamespaces returns Namespaces that are not running yet.
func NewNamespaces(client metadata.Interface) (*Namespaces, error) {
	n := &Namespaces{informer: metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("namespaces"), "", 0, cache.Indexers{}, nil).Informer()}
	if err := n.informer.SetTransform(cached.NamespaceMetadata); err != nil {
		return nil, err
	}
	return n, n.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			klog.FromContext(ctx).Error(err, "Cannot watch namespaces: changed labels take effect only at resync, and no rollout runs; grant list and watch")
			return
		}
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
	})
}

// OnLabels registers a function that is called with the name of a namespace when its labels or its creator change. That the
// namespace opens is no such change.
func (n *Namespaces) OnLabels(changed func(name string)) error {
	return n.onUpdate(selectsAnew, changed)
}

// OnOpen registers a function that is called with the name of a namespace when its gate opens.
func (n *Namespaces) OnOpen(opened func(name string)) error {
	return n.onUpdate(func(before, after *metav1.PartialObjectMetadata) bool {
		return metav1.HasLabel(before.ObjectMeta, v1alpha1.LabelInitializing) && !metav1.HasLabel(after.ObjectMeta, v1alpha1.LabelInitializing)
	}, opened)
}

// onUpdate calls a function with the name of each namespace that changes as is returns true for.
func (n *Namespaces) onUpdate(is func(before, after *metav1.PartialObjectMetadata) bool, call func(name string)) error {
	_, err := n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(oldObj, newObj any) {
		before, ok := oldObj.(*metav1.PartialObjectMetadata)
		after, stillOK := newObj.(*metav1.PartialObjectMetadata)
		if ok && stillOK && before.UID == after.UID && is(before, after) {
			call(after.Name)
		}
	}})
	return err
}

// selectsAnew reports whether the labels of a namespace or its creator have changed.
func selectsAnew(before, after *metav1.PartialObjectMetadata) bool {
	isGate := func(key, _ string) bool { return key == v1alpha1.LabelInitializing }
	old, now := maps.Clone(before.Labels), maps.Clone(after.Labels)
	maps.DeleteFunc(old, isGate)
	maps.DeleteFunc(now, isGate)
	return !maps.Equal(old, now) || slices.ContainsFunc([]string{v1alpha1.AnnotationCreatedBy, v1alpha1.AnnotationCreatedByGroups}, func(key string) bool {
		return before.Annotations[key] != after.Annotations[key]
	})
}

// OnChange registers a function that is called when a namespace is created, deleted or changed in a way that can matter to
// a population: by its labels, its creator, or its deletion.
func (n *Namespaces) OnChange(changed func()) error {
	_, err := n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() },
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*metav1.PartialObjectMetadata)
			after, stillOK := newObj.(*metav1.PartialObjectMetadata)
			if ok && stillOK && (before.UID != after.UID || IsOpen(before) != IsOpen(after) || selectsAnew(before, after)) {
				changed()
			}
		},
		DeleteFunc: func(any) { changed() },
	})
	return err
}

// Creator returns the user who created a namespace, or nothing if it is not known.
func (n *Namespaces) Creator(name string) string {
	object, _, _ := n.informer.GetStore().GetByKey(name)
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return ""
	}
	return namespace.Annotations[v1alpha1.AnnotationCreatedBy]
}

// HasSynced reports whether the namespaces were listed once.
func (n *Namespaces) HasSynced() bool { return n.informer.HasSynced() }

// List returns the namespaces, sorted by name. They must not be changed.
func (n *Namespaces) List() []*metav1.PartialObjectMetadata {
	var list []*metav1.PartialObjectMetadata
	for _, object := range n.informer.GetStore().List() {
		if namespace, ok := object.(*metav1.PartialObjectMetadata); ok {
			list = append(list, namespace)
		}
	}
	slices.SortFunc(list, func(a, b *metav1.PartialObjectMetadata) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Run follows the namespaces until the context ends.
func (n *Namespaces) Run(ctx context.Context) { n.informer.RunWithContext(ctx) }

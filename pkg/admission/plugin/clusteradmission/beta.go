/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// beta lists and watches unstructured objects, as a dynamic client does.
type beta interface {
	List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// orBeta lists and watches a kind in version v1, or in v1beta1 if the cluster does not serve v1. Both versions have the same
// fields. Kubernetes 1.34 and 1.35 serve MutatingAdmissionPolicies in v1beta1, if the administrator turns them on.
type orBeta[L runtime.Object] struct {
	client[L]
	beta beta
	// list and item are empty objects of the types in v1.
	list L
	item runtime.Object
}

// List implements client.
func (o orBeta[L]) List(ctx context.Context, options metav1.ListOptions) (L, error) {
	list, err := o.client.List(ctx, options)
	if !apierrors.IsNotFound(err) {
		return list, err
	}
	objects, err := o.beta.List(ctx, options)
	if err != nil {
		return list, err
	}
	list = o.list.DeepCopyObject().(L)
	return list, runtime.DefaultUnstructuredConverter.FromUnstructured(objects.UnstructuredContent(), list)
}

// Watch implements client.
func (o orBeta[L]) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := o.client.Watch(ctx, options)
	if !apierrors.IsNotFound(err) {
		return events, err
	}
	if events, err = o.beta.Watch(ctx, options); err != nil {
		return nil, err
	}
	return mapped(events, func(event watch.Event) (watch.Event, bool) {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok { // an error
			return event, true
		}
		item := o.item.DeepCopyObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.UnstructuredContent(), item); err != nil {
			status := apierrors.NewInternalError(err).Status()
			return watch.Event{Type: watch.Error, Object: &status}, true
		}
		event.Object = item
		return event, true
	}), nil
}

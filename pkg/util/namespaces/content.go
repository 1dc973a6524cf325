/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaces

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
)

// Resources returns the resources of discovery whose objects can be listed and deleted, and
// an error for each group version that cannot be parsed.
func Resources(lists []*metav1.APIResourceList) ([]schema.GroupVersionResource, error) {
	var failures []error
	var resources []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "delete") && slices.Contains(resource.Verbs, "list") {
				resources = append(resources, version.WithResource(resource.Name))
			}
		}
	}
	return resources, utilerrors.NewAggregate(failures)
}

// EachObject calls a function for each object of one resource. It lists in pages. A resource that is not
// served or cannot be listed has no objects.
func EachObject(ctx context.Context, client metadata.ResourceInterface, f func(*metav1.PartialObjectMetadata)) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if item, ok := object.(*metav1.PartialObjectMetadata); ok {
			f(item)
		}
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list: %w", err)
	}
	return nil
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// withoutVersion rejects the creation of an object that has a resourceVersion with status 400. The
// generic store answers 500.
func withoutVersion(object runtime.Object) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if version := accessor.GetResourceVersion(); version != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.resourceVersion is %q: leave it out of an object that is to be created", version))
	}
	return nil
}

// withReadableVersion rejects an update whose resourceVersion this server cannot have given with
// status 400. The generic store answers 500.
func withReadableVersion(info rest.UpdatedObjectInfo) rest.UpdatedObjectInfo {
	return rest.WrapUpdatedObjectInfo(info, func(_ context.Context, updated, _ runtime.Object) (runtime.Object, error) {
		accessor, err := meta.Accessor(updated)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if _, err := (storage.APIObjectVersioner{}).ObjectResourceVersion(updated); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.resourceVersion is %q, which this server never gives: read the object again", accessor.GetResourceVersion()))
		}
		return updated, nil
	})
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// withoutVersion rejects the creation of an object that has a resourceVersion with status 400. The
// generic store answers 500.
func withoutVersion(object runtime.Object) error {
	if version := object.(metav1.Object).GetResourceVersion(); version != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.resourceVersion is %q: leave it out of an object that is to be created", version))
	}
	return nil
}

// withReadableVersion rejects an update whose resourceVersion this server cannot have given with
// status 400. The generic store answers 500.
func withReadableVersion(info rest.UpdatedObjectInfo) rest.UpdatedObjectInfo {
	return rest.WrapUpdatedObjectInfo(info, func(_ context.Context, updated, _ runtime.Object) (runtime.Object, error) {
		if _, err := (storage.APIObjectVersioner{}).ObjectResourceVersion(updated); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.resourceVersion is %q, which this server never gives: read the object again", updated.(metav1.Object).GetResourceVersion()))
		}
		return updated, nil
	})
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apierrors

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsAbsent says whether an error means that the object which was asked for does not exist.
// While an aggregated API is not registered, its whole group is answered with 404, too,
// but not by an API server that knows the object's kind.
func IsAbsent(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && !slices.ContainsFunc(details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}

// IgnoreAbsent returns nil for an object that does not exist, and every other error as it is.
func IgnoreAbsent(err error) error {
	if IsAbsent(err) {
		return nil
	}
	return err
}

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

// IsAbsent returns whether an error means that the requested object does not exist. While an aggregated
// API is not registered, kube-apiserver answers 404 for the whole group, too, but without the details of
// an API error.
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

// IgnoreAbsent returns nil if IsAbsent does, and the error otherwise.
func IgnoreAbsent(err error) error {
	if IsAbsent(err) {
		return nil
	}
	return err
}

// retryAfterSeconds is the delay before a client retries, in seconds.
const retryAfterSeconds = 1

// NewUnavailable returns the error 503 with a reason.
func NewUnavailable(reason error) *apierrors.StatusError {
	status := apierrors.NewServiceUnavailable(reason.Error())
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return status
}

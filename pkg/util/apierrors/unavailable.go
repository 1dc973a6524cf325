/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apierrors

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retryAfterSeconds is the delay before a client retries, in seconds.
const retryAfterSeconds = 1

// NewUnavailable returns the error 503 with a reason.
func NewUnavailable(reason error) *apierrors.StatusError {
	status := apierrors.NewServiceUnavailable(reason.Error())
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return status
}

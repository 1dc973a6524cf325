/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package unavailable makes the answer of a server that cannot tell at the moment: 503 with a
// Retry-After, on which clients try again by themselves.
package unavailable

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retryAfterSeconds is when a client tries again, in seconds.
const retryAfterSeconds = 1

// New returns the answer for a reason.
func New(reason error) *apierrors.StatusError {
	status := apierrors.NewServiceUnavailable(reason.Error())
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return status
}

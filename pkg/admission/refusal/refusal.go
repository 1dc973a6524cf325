/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package refusal holds refusals that several admission plugins give.
package refusal

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// Terminating refuses something new for a namespace that is on its way out, with the cause
// that clients know from the core API. The field says where the namespace is named.
func Terminating(attributes admission.Attributes, namespace, field string) error {
	err := admission.NewForbidden(attributes, fmt.Errorf("namespace %q is being terminated", namespace))
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", namespace),
			Field:   field,
		})
	}
	return err
}

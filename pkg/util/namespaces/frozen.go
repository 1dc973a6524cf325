/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaces

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// Frozen returns whether a namespace is frozen, and a message that says by whom and why.
func Frozen(namespace *corev1.Namespace) (message string, frozen bool) {
	if _, frozen = namespace.Labels[v1alpha1.LabelFrozen]; !frozen {
		return "", false
	}
	return fmt.Sprintf("user %q froze the namespace: %s", namespace.Annotations[v1alpha1.AnnotationFrozenBy],
		printable.Line(namespace.Annotations[v1alpha1.AnnotationFrozenReason])), true
}

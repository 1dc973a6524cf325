/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package stamp

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/webhook/admissionreview"
)

// Name is the name of the webhook.
const Name = "stamp"

// New returns the webhook. namespace is that of nsinit. The webhook reads the list of exemptions there, live, so that a change
// applies immediately.
func New(configMaps typedcorev1.ConfigMapsGetter, namespace string) admissionreview.Answer {
	return func(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return answer(request, namespace, func() (*corev1.ConfigMap, error) {
			return configMaps.ConfigMaps(namespace).Get(ctx, installation.Exemptions, metav1.GetOptions{})
		})
	}
}

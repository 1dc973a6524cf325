/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package webhook

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const (
	// shortest and longest bound the delay of a retry.
	shortest = time.Second
	longest  = 30 * time.Second
	// share divides the age of the namespace. The result is the delay of a retry. Clients retry ten
	// times. From the first seconds of the namespace on, this takes one to two minutes.
	share = 2
	// patience is the age after which clients do not wait for a stalled namespace. A client that
	// started with the creation of the namespace has given up before.
	patience = 2 * time.Minute
)

// retry refuses a request in a namespace, which is nil if the cache does not have it. The response has
// the delay of a retry, unless a retry is useless. It admits a request for a resource named namespaces
// if the namespace is open, because kube-apiserver calls the webhook for these in every namespace.
func retry(request *admissionv1.AdmissionRequest, namespace *corev1.Namespace, now time.Time) *admissionv1.AdmissionResponse {
	if request.Resource.Resource == "namespaces" && open(namespace) {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	}
	status := &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusTooManyRequests,
		Reason:  metav1.StatusReasonTooManyRequests,
		Message: hopeless(namespace, now),
		Details: &metav1.StatusDetails{Group: request.Resource.Group, Kind: request.Resource.Resource, Name: request.Name},
	}
	if status.Message == "" {
		status.Message = notYet(request.Namespace, namespace)
		status.Details.RetryAfterSeconds = int32(retryAfter(namespace, now) / time.Second)
	}
	return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: false, Result: status}
}

// open reports whether a namespace is known to be open.
func open(namespace *corev1.Namespace) bool {
	return namespace != nil && !helper.IsClosed(namespace)
}

// retryAfter returns the delay of a retry in whole seconds.
func retryAfter(namespace *corev1.Namespace, now time.Time) time.Duration {
	if namespace == nil {
		return shortest
	}
	seconds := math.Ceil((now.Sub(namespace.CreationTimestamp.Time) / share).Seconds())
	return max(shortest, min(longest, time.Duration(seconds)*time.Second))
}

// notYet returns the message of a refusal after which a retry helps. The cache may not have the namespace.
func notYet(name string, namespace *corev1.Namespace) string {
	waiting := cmp.Or(condition(namespace, v1alpha1.ConditionInitializing), "nsinit has not recorded yet what it waits for")
	return fmt.Sprintf("namespace %q is being initialized and cannot be written to yet: %s; to wait for it, run kubectl nsinit wait %s", name, waiting, name)
}

// hopeless returns the message of a refusal after which a retry is useless, or "".
func hopeless(namespace *corev1.Namespace, now time.Time) string {
	if namespace == nil {
		return ""
	}
	initializing := utilnamespaces.TrueCondition(namespace.Status.Conditions, v1alpha1.ConditionInitializing)
	switch {
	case namespace.DeletionTimestamp != nil:
		return fmt.Sprintf("namespace %q is being deleted, and cannot be written to: create it again after it is removed", namespace.Name)
	case initializing != nil && initializing.Reason == v1alpha1.ReasonFailed:
		return fmt.Sprintf("namespace %q cannot be written to: %s; create it again after the cause is fixed", namespace.Name, initializing.Message)
	case condition(namespace, v1alpha1.ConditionStalled) != "" && now.Sub(namespace.CreationTimestamp.Time) > patience:
		return notYet(namespace.Name, namespace) + "; its initialization is stalled"
	}
	return ""
}

// condition returns the message of a condition that is true.
func condition(namespace *corev1.Namespace, kind corev1.NamespaceConditionType) string {
	if namespace == nil {
		return ""
	}
	if c := utilnamespaces.TrueCondition(namespace.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

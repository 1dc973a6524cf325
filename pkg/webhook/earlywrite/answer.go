/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package earlywrite

import (
	"fmt"
	"math"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

const (
	// shortest and longest bound the time after which a client should try again.
	shortest = time.Second
	longest  = 30 * time.Second
	// share of a namespace's age is how long a client should wait. Clients try ten times, so from
	// the creation of the namespace on they wait for about a minute, and never for longer than
	// half of what the initialization has taken so far.
	share = 2
	// patience is the age from which on a namespace that is stalled is not worth waiting for: a
	// client that began with the creation of the namespace has given up before.
	patience = 2 * time.Minute
)

// answer refuses a request in a namespace, which is nil where nothing is known of it yet. It says
// after how many seconds to try again, or nothing of it where waiting is of no use. It admits a request
// for a resource named namespaces if the namespace is open: kube-apiserver asks about these in every
// namespace.
func answer(request *admissionv1.AdmissionRequest, namespace *corev1.Namespace, now time.Time) *admissionv1.AdmissionResponse {
	if request.Resource.Resource == "namespaces" && open(namespace) {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	}
	said, lost := condition(namespace, v1alpha1.ConditionInitializing), hopeless(namespace, now)
	if said == "" {
		said = "nsinit has not recorded yet what it waits for"
	}
	status := &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusTooManyRequests,
		Reason:  metav1.StatusReasonTooManyRequests,
		Message: fmt.Sprintf("namespace %q is being initialized and cannot be written to yet: %s", request.Namespace, said),
		Details: &metav1.StatusDetails{Group: request.Resource.Group, Kind: request.Resource.Resource, Name: request.Name},
	}
	if lost != "" {
		status.Message += "; " + lost
	} else {
		status.Details.RetryAfterSeconds = int32(retryAfter(namespace, now) / time.Second)
	}
	return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: false, Result: status}
}

// open reports whether a namespace is known to be open.
func open(namespace *corev1.Namespace) bool {
	return namespace != nil && !helper.IsClosed(namespace)
}

// retryAfter is in whole seconds, because clients know no others.
func retryAfter(namespace *corev1.Namespace, now time.Time) time.Duration {
	if namespace == nil {
		return shortest
	}
	seconds := math.Ceil((now.Sub(namespace.CreationTimestamp.Time) / share).Seconds())
	return max(shortest, min(longest, time.Duration(seconds)*time.Second))
}

// hopeless says why it is of no use to try again soon, or nothing.
func hopeless(namespace *corev1.Namespace, now time.Time) string {
	switch {
	case namespace == nil:
		return ""
	case namespace.DeletionTimestamp != nil:
		return "it is being deleted"
	case condition(namespace, v1alpha1.ConditionStalled) != "" && now.Sub(namespace.CreationTimestamp.Time) > patience:
		return "this has taken for long, so do not wait here, but with kubectl nsinit wait " + namespace.Name
	}
	if c := utilnamespaces.TrueCondition(namespace.Status.Conditions, v1alpha1.ConditionInitializing); c != nil && c.Reason == v1alpha1.ReasonFailed {
		return "it will not be opened"
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

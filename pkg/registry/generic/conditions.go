/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// NotObserved returns the conditions of a new object that a program has to read before it has an effect. Without them,
// tools that wait for Ready, such as kstatus, take a new object for ready.
func NotObserved(created metav1.Object, program string) []metav1.Condition {
	return []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotObserved,
		Message: "wait until " + program + " has read the new object", ObservedGeneration: created.GetGeneration(),
		LastTransitionTime: created.GetCreationTimestamp(),
	}}
}

// UserOf returns the name of the user that a request comes from.
func UserOf(ctx context.Context) string {
	if user, ok := genericapirequest.UserFrom(ctx); ok {
		return user.GetName()
	}
	return ""
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestServedColumn: the column counts initializers whose condition Served is True.
func TestServedColumn(t *testing.T) {
	c := &nsinit.NamespaceInitializerConfiguration{}
	if got := generic.Served(c); got != "0/0" {
		t.Errorf("without initializers: %s", got)
	}
	for name, status := range map[string]metav1.ConditionStatus{
		"a.example.com": metav1.ConditionTrue, "b.example.com": metav1.ConditionFalse, "c.example.com": metav1.ConditionUnknown, "d.example.com": metav1.ConditionTrue,
	} {
		c.Initializers = append(c.Initializers, v1alpha1.RegisteredInitializer{Name: name})
		c.Status.Initializers = append(c.Status.Initializers, v1alpha1.RegisteredInitializerStatus{Name: name, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: status}}})
	}
	c.Initializers = append(c.Initializers, v1alpha1.RegisteredInitializer{Name: "new.example.com"})
	if got := generic.Served(c); got != "2/5" {
		t.Errorf("the column has %s", got)
	}
}

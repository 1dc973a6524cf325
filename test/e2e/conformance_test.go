//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/initializer/conformance"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestConformance runs the suite for authors of initializers on policy-population.
func TestConformance(t *testing.T) {
	c := framework.Connect(t)
	const name = "policy-population.nsinit.dev"
	c.PopulateAsInExample(t)
	conformance.Run(t, conformance.Suite{
		Config: c.Admin,
		Name:   name,
		Start: func(t *testing.T) func() {
			process := c.StartPopulation(t)
			return func() { _ = process.Kill() }
		},
		Check: func(ctx context.Context, namespace *corev1.Namespace) error {
			if _, err := c.Core.RbacV1().RoleBindings(namespace.Name).Get(ctx, "namespace-admin", metav1.GetOptions{}); err != nil {
				return err
			}
			if _, err := c.Core.CoreV1().LimitRanges(namespace.Name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
				return err
			}
			if _, err := c.Core.CoreV1().ResourceQuotas(namespace.Name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
				return err
			}
			_, err := c.Core.NetworkingV1().NetworkPolicies(namespace.Name).Get(ctx, "default-deny", metav1.GetOptions{})
			return err
		},
	})
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestKill kills either program of nsinit at every step of the story, and starts it again. nsinit-apiserver is killed with its etcd.
// The gate never opens early, and the namespace becomes Ready.
func TestKill(t *testing.T) {
	t.Parallel()
	t.Run("nsinit-apiserver", func(t *testing.T) {
		killAtEachStep(t, func(c *framework.Cluster, t *testing.T) {
			for _, command := range []string{"kill", "start"} {
				c.Dev(t, command, "nsinit-etcd")
				c.Dev(t, command, "nsinit-apiserver")
			}
		})
	})
	t.Run("nsinit-controller-manager", func(t *testing.T) { killAtEachStep(t, (*framework.Cluster).KillController) })
}

func killAtEachStep(t *testing.T, restart func(*framework.Cluster, *testing.T)) {
	t.Helper()
	c := framework.Connect(t)
	tenant := c.Tenant(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true}, v1alpha1.RegisteredInitializer{Name: "two.example.com"})
	var deleted []string
	for kill, step := range []string{"after the creation", "in the turn of the first", "after the first", "after the last", "after the deletion"} {
		t.Run(step, func(t *testing.T) {
			at := func(now int) {
				if now == kill {
					restart(c, t)
				}
			}
			namespace := c.CreateNamespace(t, c.Admin)
			o := c.Observe(t, tenant, namespace)
			at(0)
			c.WaitCurrent(t, namespace.Name, "one.example.com")
			at(1)
			c.RemoveFirst(t, namespace.Name)
			at(2)
			c.WaitCurrent(t, namespace.Name, "two.example.com")
			if !c.IsClosed(t, namespace.Name) {
				t.Fatal("the gate is open although an initializer is pending")
			}
			c.RemoveFirst(t, namespace.Name)
			at(3)
			c.WaitReady(t, namespace.Name)
			o.Check(t)

			c.DeleteNamespace(t, namespace.Name)
			deleted = append(deleted, namespace.Name)
			at(4)
		})
	}
	for _, namespace := range deleted {
		c.ReleaseParticipant(t, namespace, "one.example.com")
		c.WaitNoLifecycle(t, namespace)
		c.WaitNoNamespace(t, namespace)
	}
}

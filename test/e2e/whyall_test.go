//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestWhyAll: kubectl nsinit why --all shows a namespace that waits for an initializer, and no healthy one.
func TestWhyAll(t *testing.T) {
	c := framework.Share(t)
	healthy := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, healthy)
	closed := c.CreateHeld(t, c.Admin).Name
	framework.Eventually(t, "it is shown", func(context.Context) error {
		out, errOut, code := c.Plugin(t, "why", "--all")
		for _, line := range []string{closed + ` +Initializing .*(Waiting|Stuck) +Initializer`, `(?m)^\d+ of \d+ namespaces are stuck, and \d+ wait`} {
			if code < 2 || !regexp.MustCompile(line).MatchString(out) || regexp.MustCompile(healthy+` `).MatchString(out) {
				return fmt.Errorf("exit code %d, want %s and not %s:\n%s%s", code, line, healthy, out, errOut)
			}
		}
		return nil
	})
	c.Release(t, closed)

	// kube-controller-manager waits five seconds before it empties a namespace.
	c.DeleteNamespace(t, healthy)
	c.WaitWhy(t, healthy, diagnosis.NamespaceControllerAtWork, diagnosis.Waiting, "--patience=10m")
	c.WaitNoNamespace(t, healthy)
}

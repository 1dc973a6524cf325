//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestAdopt: the commands in docs/adopt.md close the namespaces of one team, then of all teams except operators, and register an
// initializer that is not served and for which no namespace waits.
func TestAdopt(t *testing.T) {
	c := framework.Connect(t)
	addExemptions(t, c, nil) // restores the list
	t.Cleanup(func() {
		if out, err := c.Kubectl("delete", "--ignore-not-found", "--wait=false", "nsic/10-quota", "nsic/20-dns", "clusterrole/namespace-creator",
			"clusterrolebinding/namespace-creator", "namespace/platform-test", "namespace/shop-test", "namespace/before-dns", "namespace/after-dns"); err != nil {
			t.Error(err, out)
		}
	})
	const operator = "system:serviceaccount:olm:operator"
	page := adoption{c}
	page.run(t, page.blocks(t, "Adopt nsinit one team at a time", 1)[0])

	step := page.blocks(t, "1. Select the platform team", 2)
	page.run(t, step[0])
	out := page.run(t, step[1])
	contains(t, out, `"ann" of groups "platform", "system:authenticated", is closed until it is initialized`, `"bob" of groups "shop-team", "system:authenticated", is exempt by ConfigMap nsinit-system/nsinit-exemptions: no group of the creator is in onlyGroups`)
	page.waitClosed(t, "bob", "shop-team", false)
	page.waitClosed(t, "ann", "platform", true)

	step = page.blocks(t, "2. Register the first initializer", 3)
	contains(t, page.run(t, step[0]), "10-quota created")
	contains(t, page.run(t, step[1]), "namespace/shop-test condition met")
	if !c.IsClosed(t, "platform-test") || c.IsClosed(t, "shop-test") {
		t.Error("want only the namespace of the platform team to be closed")
	}
	c.WaitCurrent(t, "platform-test", "quota.example.com")
	contains(t, page.run(t, step[2]), "Initializing", "quota.example.com")
	c.MustPlugin(t, "skip", "platform-test", "quota.example.com")
	c.WaitReady(t, "platform-test")

	step = page.blocks(t, "3. Select all teams except operators", 2)
	page.run(t, step[0])
	out = page.run(t, step[1])
	contains(t, out, `"bob" of groups "shop-team", "system:authenticated", is closed until`, `line 2 of groups, "system:serviceaccounts:olm"`, `line 1 of namePrefixes, "openshift-"`)
	page.waitClosed(t, "bob", "shop-team", true)
	page.waitClosed(t, operator, "system:serviceaccounts:olm", false)

	step = page.blocks(t, "4. Register a second initializer before its program runs", 2)
	contains(t, page.run(t, step[0]), "20-dns created", "Warning: ", "dns.example.com", "has no effect yet")
	if out := page.run(t, step[1]); !strings.HasSuffix(out, "quota.example.com") || strings.Contains(out, "dns.example.com") {
		t.Errorf("the plan before the initializer is served:\n%s", out)
	}
	report := strings.ReplaceAll(c.Documented(t, "protocol.md", "Report that the initializer is served")[0], "log-index.example.com", "dns.example.com")
	if out, err := c.Shell(t, report, map[string]string{"CONFIGURATION": "20-dns"}); err != nil {
		t.Fatal(err, out)
	}
	c.ApplyInput(t, "{apiVersion: v1, kind: Namespace, metadata: {name: after-dns}}")
	framework.Eventually(t, "both have their turn", func(ctx context.Context) error {
		lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, "after-dns", metav1.GetOptions{})
		if err == nil && !slices.Equal(lifecycle.Status.CurrentInitializers, []string{"quota.example.com", "dns.example.com"}) {
			err = fmt.Errorf("current are %v", lifecycle.Status.CurrentInitializers)
		}
		return err
	})

	page.run(t, page.blocks(t, "5. Remove the exemptions", 1)[0])
	page.waitClosed(t, operator, "system:serviceaccounts:olm", true)
}

// adoption is docs/adopt.md on a control plane.
type adoption struct{ c *framework.Cluster }

// blocks returns the blocks of commands under a heading.
func (a adoption) blocks(t *testing.T, heading string, count int) []string {
	t.Helper()
	blocks := a.c.Documented(t, "adopt.md", heading)
	if len(blocks) != count {
		t.Fatalf("%d blocks of commands under %q, want %d", len(blocks), heading, count)
	}
	return blocks
}

// run runs a block of commands.
func (a adoption) run(t *testing.T, commands string) string {
	t.Helper()
	out, err := a.c.Shell(t, commands, nil)
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return out
}

// waitClosed waits until a namespace that a user creates is closed, or open.
func (a adoption) waitClosed(t *testing.T, user, group string, closed bool) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("a namespace of %s is closed: %t", user, closed), func(context.Context) error {
		out, err := a.c.Kubectl("create", "namespace", "adopt", "--dry-run=server", "--output=yaml", "--as="+user, "--as-group="+group)
		if err == nil && strings.Contains(out, "nsinit.dev/initializing") != closed {
			err = errors.New(out)
		}
		return err
	})
}

// contains checks that an output has all parts.
func contains(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("there is no %q in\n%s", part, out)
		}
	}
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestWhyHostileNames: names of Roles may have spaces and control characters. Such a name is one word of the commands that why prints,
// and no terminal interprets it.
func TestWhyHostileNames(t *testing.T) {
	const flags, control = "x --server=127.0.0.1:9 --insecure-skip-tls-verify", "x\x1b[2Jy\nz"
	const flagsFinalizer, controlFinalizer = "e2e.example.com/flags", "e2e.example.com/control"
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	roles := c.Core.RbacV1().Roles(namespace)
	for name, finalizer := range map[string]string{flags: flagsFinalizer, control: controlFinalizer} {
		if _, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{finalizer}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := roles.Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	c.DeleteNamespace(t, namespace)
	found := map[string]diagnosis.Finding{}
	framework.Eventually(t, "both Roles are found", func(context.Context) error {
		d, err := c.Why(t, namespace, "--patience=1s")
		if err != nil {
			return err
		}
		for _, finding := range d.Findings {
			for _, finalizer := range []string{flagsFinalizer, controlFinalizer} {
				if finding.Cause == diagnosis.ContentFinalizer && finding.State == diagnosis.Stuck && strings.Contains(finding.Message, finalizer) {
					found[finalizer] = finding
				}
			}
		}
		if len(found) < 2 {
			return fmt.Errorf("found %s", framework.JSON(t, d))
		}
		return nil
	})

	for _, args := range [][]string{{"why", namespace}, {"why", namespace, "--fix"}, {"why", "--all"}} {
		text, _, _ := c.Plugin(t, append(args, "--patience=1s")...)
		if at := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); at >= 0 || strings.Contains(text, "\nz") {
			t.Errorf("%q prints a control character of a name: %q", args, text)
		}
	}
	if slices.ContainsFunc(found[controlFinalizer].Remedies, func(r diagnosis.Remedy) bool { return strings.Contains(r.Command, "roles") }) {
		t.Errorf("a command names a Role that a terminal cannot show: %s", framework.JSON(t, found[controlFinalizer].Remedies))
	}
	cure(t, c, found[flagsFinalizer], "remove the finalizer from each object")
	if _, err := roles.Get(t.Context(), flags, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the command did not reach the Role: %v", err)
	}
}

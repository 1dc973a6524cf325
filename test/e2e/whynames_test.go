//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/util/printable"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestWhyHostileNames: names of Roles may have spaces, quotes and control characters. Such a name is one word of the commands that why
// prints, no terminal interprets it, and it is no part of what why says.
func TestWhyHostileNames(t *testing.T) {
	const domain = "e2e.example.com/"
	reached := map[string]string{ // the commands reach these Roles
		"flags":    "x --server=127.0.0.1:9 --insecure-skip-tls-verify",
		"quotes":   `it's "$(touch hit)" \` + "`touch hit`" + `; false & ~ * ? # ! {a,b} | sh > x`,
		"break":    "' --server=127.0.0.1:9 '",
		"lists":    "a,secrets=b,-c",
		"dashes":   "--all",
		"refusal":  "x\" is forbidden: ValidatingAdmissionPolicy 'nsinit-gate' with binding 'nsinit-gate' denied request",
		"unicode":  "größer больше 更大",
		"sentence": "a, b, c have no finalizer. Run: kubectl delete namespace default",
	}
	hidden := map[string]string{ // a terminal does not show these as they are
		"control": "x\x1b[2Jy\nz",
		"c1":      "x\u009b2Jy",
		"bidi":    "x\u202ey",
		"space":   "x\u00a0--all",
	}
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	roles := c.Core.RbacV1().Roles(namespace)
	all := maps.Clone(reached)
	maps.Copy(all, hidden)
	for finalizer, name := range all {
		if _, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{domain + finalizer}}}, metav1.CreateOptions{}); err != nil {
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
	framework.Eventually(t, "every Role is found", func(context.Context) error {
		d, err := c.Why(t, namespace, "--patience=1s")
		if err != nil {
			return err
		}
		for _, finding := range d.Findings {
			for finalizer := range all {
				if finding.Cause == diagnosis.ContentFinalizer && finding.State == diagnosis.Stuck && strings.Contains(finding.Message, strconv.Quote(domain+finalizer)) {
					found[finalizer] = finding
				}
			}
		}
		if len(found) < len(all) {
			return fmt.Errorf("found %s", framework.JSON(t, d))
		}
		return nil
	})

	for _, args := range [][]string{{"why", namespace, "--patience=1s"}, {"why", namespace, "--fix", "--patience=1s"}, {"why", "--all", "--patience=1s"}, {"status", namespace}} {
		text, _, _ := c.Plugin(t, args...)
		if text != printable.Lines(text) || strings.Contains(text, "\nz") {
			t.Errorf("%q prints a control character of a name: %q", args, text)
		}
	}
	for finalizer := range hidden {
		if slices.ContainsFunc(found[finalizer].Remedies, func(r diagnosis.Remedy) bool { return strings.Contains(r.Command, "roles") }) {
			t.Errorf("a command names a Role that a terminal cannot show: %s", framework.JSON(t, found[finalizer].Remedies))
		}
	}
	for finalizer, name := range reached {
		if quoted := strconv.Quote("roles.rbac.authorization.k8s.io/" + name); finalizer == "sentence" && !strings.HasPrefix(found[finalizer].Message, quoted) {
			t.Errorf("the name is a part of the sentence: %s", found[finalizer].Message)
		}
		cure(t, c, found[finalizer], "remove the finalizer from each object")
		if _, err := roles.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the command did not reach the Role %q: %v", name, err)
		}
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package static_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/static"
)

func exemptions() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: "nsinit-exemptions"},
		Data: map[string]string{"namespaces": "kube-system\ndefault\n", "users": `"joe`}}
}

func inForce() *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "nsinit-guard-create.configmap-nsinit-exemptions"}}
}

// TestNotInForce: before nsinit works, nothing is printed that would close namespaces.
func TestNotInForce(t *testing.T) {
	out, _, err := cmdtesting.New(exemptions()).Run(t, static.NewCommand, "mutating")
	if err == nil || !strings.Contains(err.Error(), "does not exist, so nsinit does not work yet") || out != "" {
		t.Errorf("%v, prints %s", err, out)
	}
}

// TestStatic: all policies of a kind are printed without parameters, with the exemptions in their expressions.
func TestStatic(t *testing.T) {
	file := filepath.Join("..", "..", "..", "artifacts", "deploy", "base", "exemptions.yaml")
	without, elsewhere := filepath.Join(t.TempDir(), "exemptions.yaml"), filepath.Join(t.TempDir(), "exemptions.yaml")
	const list = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nsinit-exemptions"
	if err := errors.Join(os.WriteFile(without, []byte(list+"}\n"), 0o600), os.WriteFile(elsewhere, []byte(list+", namespace: platform}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args       []string
		has, lacks []string
		warns      string
	}{
		"validating": {[]string{"validating"}, []string{"name: nsinit-gate.static.k8s.io", "name: nsinit-guard.static.k8s.io", "name: nsinit-freeze.static.k8s.io",
			"policyName: nsinit-guard-create.static.k8s.io", `{"namespaces": "kube-system\ndefault\n", "users": "\"joe"}[?key].orValue(`},
			[]string{"params.", "paramKind", "paramRef", "Mutating"}, "Warning: ConfigMap nsinit-exemptions: "},
		"mutating": {[]string{"mutating"}, []string{"name: nsinit-stamp.static.k8s.io", "policyName: nsinit-stamp-opened-by.static.k8s.io", `{"namespaces": "`},
			[]string{"params.", "paramKind", "paramRef", "Validating"}, "Warning: ConfigMap nsinit-exemptions: "},
		"a file":            {[]string{"mutating", "--filename=" + file}, []string{`{"namespaces": "default\nkube-node-lease\n`}, []string{"joe"}, ""},
		"no namespace":      {[]string{"validating", "--filename=" + without}, []string{"kubernetes.io/metadata.name: nsinit-system"}, []string{"metadata.name: null"}, ""},
		"another namespace": {[]string{"mutating", "--filename=" + elsewhere}, []string{"resourceNames: - platform", "system:serviceaccount:platform:nsinit-controller-manager"}, []string{"nsinit-system"}, ""},
		"the names":         {[]string{"mutating", "-o", "name"}, []string{"mutatingadmissionpolicy.admissionregistration.k8s.io/nsinit-stamp.static.k8s.io"}, []string{"spec"}, "Warning"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := cmdtesting.New(exemptions(), inForce()).Run(t, static.NewCommand, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(errOut, test.warns) || (errOut == "") != (test.warns == "") {
				t.Errorf("warnings: %q", errOut)
			}
			text := strings.Join(strings.Fields(out), " ")
			for _, part := range test.has {
				if !strings.Contains(text, part) {
					t.Errorf("it lacks %s:\n%s", part, out)
				}
			}
			for _, part := range test.lacks {
				if strings.Contains(text, part) {
					t.Errorf("it has %s", part)
				}
			}
		})
	}
}

// TestStaticErrors: wrong flags and files are refused.
func TestStaticErrors(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(other, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		err  string
	}{
		"no kind":      {nil, "the argument KIND is missing"},
		"another kind": {[]string{"gate"}, `kind "gate": must be "validating" or "mutating"`},
		"no ConfigMap": {[]string{"mutating"}, "cannot read the list of exemptions"},
		"no file":      {[]string{"mutating", "--filename=none.yaml"}, "--filename: open none.yaml"},
		"another":      {[]string{"mutating", "--filename=" + other}, `it has ConfigMap "other", want ConfigMap "nsinit-exemptions"`},
		"no YAML":      {[]string{"mutating", "--filename=command_test.go"}, "--filename=command_test.go: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := cmdtesting.New(inForce()).Run(t, static.NewCommand, test.args...); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v", err)
			}
		})
	}
}

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
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const protection = "nsinit.dev/deletion-protection"

// apply applies a manifest of the project, until the test ends.
func (c *cluster) apply(t *testing.T, parts ...string) {
	t.Helper()
	file := filepath.Join(append([]string{c.root, "artifacts"}, parts...)...)
	if out, err := c.kubectl("apply", "--server-side", "-f", file); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if out, err := c.kubectl("delete", "-f", file); err != nil {
			t.Error(err, out)
		}
	})
}

// deleteDry tries to delete a namespace.
func deleteDry(ctx context.Context, client kubernetes.Interface, namespace string) error {
	return client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
}

// TestDeletionProtection: nobody deletes a protected namespace, and who may lift the
// protection is decided by RBAC.
func TestDeletionProtection(t *testing.T) {
	c := connect(t)
	c.apply(t, "policies", "deletion-protection.yaml")
	namespace, other := c.createNamespace(t, c.admin).Name, c.createNamespace(t, c.admin).Name
	c.waitReady(t, namespace)
	editor := kubernetes.NewForConfigOrDie(c.user(t, "e2e-editor", everything()))
	lifter := kubernetes.NewForConfigOrDie(c.user(t, "e2e-lifter", everything(),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{namespace}, Verbs: []string{"unprotect"}}))
	if out, err := c.kubectl("annotate", "namespace", namespace, protection+"=", "--as=e2e-editor"); err != nil {
		t.Fatal(err, out)
	}
	for who, client := range map[string]kubernetes.Interface{"an administrator": c.core, "an editor": editor, "who may lift it": lifter} {
		eventually(t, who+" is refused", func(ctx context.Context) error {
			return refusedBy("nsinit-deletion-protection", deleteDry(ctx, client, namespace),
				fmt.Sprintf("namespace %q is protected from deletion", namespace), "kubectl annotate namespace "+namespace+" "+protection+"-", "verb unprotect")
		})
	}
	if err := deleteDry(t.Context(), editor, other); err != nil {
		t.Errorf("another namespace: %v", err)
	}

	// Everything that can change an annotation.
	lift := func(client kubernetes.Interface, write func(context.Context, *corev1.Namespace) error) error {
		n, err := c.core.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		delete(n.Annotations, protection)
		return write(t.Context(), n)
	}
	dry := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	for who, client := range map[string]kubernetes.Interface{"editor": editor, "lifter": lifter} {
		namespaces := client.CoreV1().Namespaces()
		for how, write := range map[string]func(context.Context, *corev1.Namespace) error{
			"namespaces": func(ctx context.Context, n *corev1.Namespace) error {
				_, err := namespaces.Update(ctx, n, dry)
				return err
			},
			"status": func(ctx context.Context, n *corev1.Namespace) error {
				_, err := namespaces.UpdateStatus(ctx, n, dry)
				return err
			},
			"finalize": func(ctx context.Context, n *corev1.Namespace) error {
				_, err := namespaces.Finalize(ctx, n, dry)
				return err
			},
		} {
			err := lift(client, write)
			if who == "lifter" && err != nil {
				t.Errorf("the lifter, through %s: %v", how, err)
			}
			if who == "editor" {
				if err := refusedBy("nsinit-deletion-protection-lift", err, "verb unprotect on namespaces"); err != nil {
					t.Errorf("the editor, through %s: %v", how, err)
				}
			}
		}
	}
	if out, err := c.kubectl("annotate", "namespace", namespace, protection+"-", "--as=e2e-lifter"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := c.kubectl("delete", "namespace", namespace, "--as=e2e-editor", "--timeout="+patience.String()); err != nil {
		t.Fatal(err, out)
	}

	// One that is being deleted already is not held by it.
	held := c.createNamespace(t, c.admin)
	c.hold(t, held)
	if err := c.core.CoreV1().Namespaces().Delete(t.Context(), held.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, err := c.kubectl("annotate", "namespace", held.Name, protection+"="); err != nil {
		t.Fatal(err, out)
	}
	if err := deleteDry(t.Context(), editor, held.Name); err != nil {
		t.Errorf("one that is being deleted: %v", err)
	}
}

// TestDeletionProtectionBySelector: the example protects the namespaces of its selector.
func TestDeletionProtectionBySelector(t *testing.T) {
	c := connect(t)
	c.apply(t, "examples", "deletion-protection-by-selector.yaml")
	namespace, other := c.createNamespace(t, c.admin).Name, c.createNamespace(t, c.admin).Name
	if out, err := c.kubectl("label", "namespace", namespace, "environment=production"); err != nil {
		t.Fatal(err, out)
	}
	eventually(t, "the deletion is refused", func(ctx context.Context) error {
		return refusedBy("deletion-protection-by-selector", deleteDry(ctx, c.core, namespace), "kubectl label namespace "+namespace+" environment-")
	})
	if err := deleteDry(t.Context(), c.core, other); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if out, err := c.kubectl("label", "namespace", namespace, "environment-"); err != nil {
		t.Fatal(err, out)
	}
	if err := deleteDry(t.Context(), c.core, namespace); err != nil {
		t.Errorf("without the label: %v", errors.Unwrap(err))
	}
}

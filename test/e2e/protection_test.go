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
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

const protection = "nsinit.dev/deletion-protection"

// applyArtifact applies a manifest of the project, until the test ends.
func applyArtifact(t *testing.T, c *framework.Cluster, parts ...string) {
	t.Helper()
	file := filepath.Join(append([]string{c.Root, "artifacts"}, parts...)...)
	if out, err := c.Kubectl("apply", "--server-side", "-f", file); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if out, err := c.Kubectl("delete", "-f", file); err != nil {
			t.Error(err, out)
		}
	})
}

// deleteDry tries to delete a namespace.
func deleteDry(ctx context.Context, client kubernetes.Interface, namespace string) error {
	return client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
}

// TestDeletionProtection: no user can delete a protected namespace. RBAC decides who may remove the
// protection.
func TestDeletionProtection(t *testing.T) {
	c := framework.Connect(t)
	applyArtifact(t, c, "policies", "deletion-protection.yaml")
	namespace, other := c.CreateNamespace(t, c.Admin).Name, c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	editor := kubernetes.NewForConfigOrDie(c.User(t, "e2e-editor", framework.Everything()))
	lifter := kubernetes.NewForConfigOrDie(c.User(t, "e2e-lifter", framework.Everything(),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{namespace}, Verbs: []string{"unprotect"}}))
	if out, err := c.Kubectl("annotate", "namespace", namespace, protection+"=", "--as=e2e-editor"); err != nil {
		t.Fatal(err, out)
	}
	for who, client := range map[string]kubernetes.Interface{"an administrator": c.Core, "an editor": editor, "who may lift it": lifter} {
		framework.Eventually(t, who+" is refused", func(ctx context.Context) error {
			return framework.RefusedBy("nsinit-deletion-protection", deleteDry(ctx, client, namespace),
				fmt.Sprintf("namespace %q is protected from deletion", namespace), "kubectl annotate namespace "+namespace+" "+protection+"-", "verb unprotect")
		})
	}
	if err := deleteDry(t.Context(), editor, other); err != nil {
		t.Errorf("another namespace: %v", err)
	}

	// Every request that can change an annotation.
	lift := func(client kubernetes.Interface, write func(context.Context, *corev1.Namespace) error) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			n, err := c.Core.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
			if err != nil {
				return err
			}
			delete(n.Annotations, protection)
			return write(t.Context(), n)
		})
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
			if who == "editor" {
				framework.Eventually(t, "the editor is refused through "+how, func(context.Context) error {
					return framework.RefusedBy("nsinit-deletion-protection-lift", lift(client, write), "verb unprotect on namespaces")
				})
			} else if err := lift(client, write); err != nil {
				t.Errorf("the lifter, through %s: %v", how, err)
			}
		}
	}
	if out, err := c.Kubectl("annotate", "namespace", namespace, protection+"-", "--as=e2e-lifter"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := c.Kubectl("delete", "namespace", namespace, "--as=e2e-editor", "--timeout="+framework.Patience.String()); err != nil {
		t.Fatal(err, out)
	}

	// A namespace that is already being deleted is not protected.
	held := c.CreateNamespace(t, c.Admin)
	c.Hold(t, held)
	c.DeleteNamespace(t, held.Name)
	if out, err := c.Kubectl("annotate", "namespace", held.Name, protection+"="); err != nil {
		t.Fatal(err, out)
	}
	if err := deleteDry(t.Context(), editor, held.Name); err != nil {
		t.Errorf("one that is being deleted: %v", err)
	}
}

// TestDeletionProtectionBySelector: the example protects the namespaces of its selector.
func TestDeletionProtectionBySelector(t *testing.T) {
	c := framework.Connect(t)
	applyArtifact(t, c, "examples", "deletion-protection-by-selector.yaml")
	namespace, other := c.CreateNamespace(t, c.Admin).Name, c.CreateNamespace(t, c.Admin).Name
	if out, err := c.Kubectl("label", "namespace", namespace, "environment=production"); err != nil {
		t.Fatal(err, out)
	}
	framework.Eventually(t, "the deletion is refused", func(ctx context.Context) error {
		return framework.RefusedBy("deletion-protection-by-selector", deleteDry(ctx, c.Core, namespace), "kubectl label namespace "+namespace+" environment-")
	})
	if err := deleteDry(t.Context(), c.Core, other); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if out, err := c.Kubectl("label", "namespace", namespace, "environment-"); err != nil {
		t.Fatal(err, out)
	}
	if err := deleteDry(t.Context(), c.Core, namespace); err != nil {
		t.Errorf("without the label: %v", errors.Unwrap(err))
	}
}

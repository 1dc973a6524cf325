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
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestStaticPolicies: with static manifests, stamp, guard and gate act on a cluster in which nsinit was never installed. They
// still act after the policies of the API were installed and deleted, and a new list of exemptions takes effect without a restart.
func TestStaticPolicies(t *testing.T) {
	framework.Environment(t)
	c := framework.Another(t, "--only-kube")
	dir := t.TempDir()
	exemptions := filepath.Join(c.Root, "artifacts", "deploy", "base", "exemptions.yaml")
	write := func(exemptions string) {
		t.Helper()
		for _, kind := range []string{"validating", "mutating"} {
			manifests := c.MustPlugin(t, "static", kind, "--filename="+exemptions)
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, kind), 0o755), os.WriteFile(filepath.Join(dir, kind, "nsinit.yaml"), []byte(manifests), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(exemptions)
	configuration := strings.ReplaceAll(c.DocumentedFile(t, framework.HardenGuide, "Policies in force from the first request"), "/etc/kubernetes/nsinit-static", dir)
	if err := os.WriteFile(filepath.Join(dir, "admission.yaml"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	server := runKubeAPIServer(t, c, "--admission-control-config-file="+filepath.Join(dir, "admission.yaml"))
	administrator := kubernetes.NewForConfigOrDie(server)
	c.User(t, "e2e-static", framework.Everything())
	tenant := kubernetes.NewForConfigOrDie(through(c, server, "e2e-static"))
	framework.Eventually(t, "the other kube-apiserver has the tenant's permissions", func(ctx context.Context) error {
		_, err := tenant.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	closed := func() {
		t.Helper()
		namespace, err := tenant.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Name("static")}}, metav1.CreateOptions{})
		if err != nil || !helper.IsClosed(namespace) || namespace.Annotations[v1alpha1.AnnotationCreatedBy] != "e2e-static" {
			t.Fatalf("a new namespace: %v, %v", err, namespace)
		}
		if err := framework.RefusedBy("nsinit-gate.static.k8s.io", framework.WriteConfigMap(t.Context(), tenant, namespace.Name)); err != nil {
			t.Error(err)
		}
		_, err = tenant.CoreV1().Namespaces().Patch(t.Context(), namespace.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"nsinit.dev/initializing":null}}}`), metav1.PatchOptions{})
		if err := framework.RefusedBy("nsinit-guard.static.k8s.io", err); err != nil {
			t.Error(err)
		}
	}
	closed()
	if err := administrator.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), "nsinit-gate.static.k8s.io", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the API has the static policy: %v", err)
	}

	list, err := os.ReadFile(exemptions)
	if err != nil {
		t.Fatal(err)
	}
	more := filepath.Join(t.TempDir(), "exemptions.yaml")
	if err := os.WriteFile(more, []byte(strings.Replace(string(list), "    kube-system\n", "    kube-system\n    e2e-static-exempt\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	dryCreate := func(ctx context.Context) (*corev1.Namespace, error) {
		return tenant.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "e2e-static-exempt"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := c.Kubectl(args...); err != nil {
			t.Fatal(err)
		}
	}
	// Until the files are written again, the policies of the API have another list.
	policies := filepath.Join(c.Root, "artifacts", "policies")
	kubectl("apply", "-f", filepath.Join(policies, "guard-create.yaml"), "-f", filepath.Join(policies, "in-force", "guard-create.yaml"))
	framework.Eventually(t, "the guard of the API is in force", func(ctx context.Context) error {
		if _, err := dryCreate(ctx); err == nil || !strings.Contains(err.Error(), "'nsinit-guard-create'") {
			return fmt.Errorf("it is not refused by it: %w", errors.Join(err, errors.New("(no other error)")))
		}
		return nil
	})
	kubectl("create", "namespace", "nsinit-system")
	kubectl("apply", "-f", more)
	framework.Eventually(t, "a namespace that only the API exempts is closed", func(ctx context.Context) error {
		namespace, err := dryCreate(ctx)
		if err == nil && !helper.IsClosed(namespace) {
			err = errors.New("it is open")
		}
		return err
	})
	kubectl("apply", "-k", policies)
	kubectl("apply", "-f", filepath.Join(policies, "in-force"))
	kubectl("delete", "-k", policies)
	kubectl("delete", "-f", filepath.Join(policies, "in-force"))
	closed()

	write(more)
	framework.Eventually(t, "a namespace is exempt", func(ctx context.Context) error {
		namespace, err := dryCreate(ctx)
		if err == nil && helper.IsClosed(namespace) {
			err = errors.New("it is closed")
		}
		return err
	})
}

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
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// TestUninstall runs the commands of docs/operate.md on a control plane of its own, while
// namespaces are in every state. None stays closed, and none is wedged.
func TestUninstall(t *testing.T) {
	c := another(t)
	tenant := c.tenant(t)
	if _, err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "uninstall"}, Initializers: []v1alpha1.RegisteredInitializer{{Name: "one.example.com", Finalizer: true}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitInForce(t)
	create := func() string {
		t.Helper()
		namespace, err := c.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: uniqueName("ns")}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return namespace.Name
	}
	open, leaving, waiting := create(), create(), create()
	for _, namespace := range []string{open, leaving} {
		c.waitCurrent(t, namespace, "one.example.com")
		c.removeFirst(t, namespace)
		c.waitReady(t, namespace)
	}
	if err := c.core.CoreV1().Namespaces().Delete(t.Context(), leaving, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitCurrent(t, waiting, "one.example.com")

	steps := c.allDocumented(t, "Uninstall")
	if len(steps) != 4 {
		t.Fatalf("docs/operate.md tells %d steps", len(steps))
	}
	run := func(step int) {
		t.Helper()
		// What is installed here is the development's overlay.
		if out, err := c.shell(t, steps[step], map[string]string{"-k artifacts/deploy": "-k " + c.dir + "/manifests"}); err != nil {
			t.Fatalf("step %d: %v\n%s", step+1, err, out)
		}
	}
	run(0)
	eventually(t, "new namespaces are not closed any more", func(ctx context.Context) error {
		namespace, err := c.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(namespace.Annotations) > 0 {
			err = fmt.Errorf("its annotations are %v", namespace.Annotations)
		}
		return err
	})
	if err := refused(writeConfigMap(t.Context(), tenant, waiting)); err != nil {
		t.Errorf("the gate is gone before its time: %v", err)
	}
	c.removeFirst(t, waiting)
	run(1)
	c.dev(t, "stop", "nsinit-controller-manager") // a process here, a deployment in the commands
	run(2)
	run(3)
	c.dev(t, "stop", "nsinit-apiserver")

	c.waitNoNamespace(t, leaving)
	for _, namespace := range []string{open, waiting} {
		eventually(t, "a tenant writes into "+namespace, func(ctx context.Context) error { return writeConfigMap(ctx, tenant, namespace) })
		if err := c.core.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range []string{open, waiting, "nsinit-system"} {
		c.waitNoNamespace(t, namespace)
	}
	all, err := c.core.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range all.Items {
		if _, closed := namespace.Labels[v1alpha1.LabelInitializing]; closed || slices.Contains(namespace.Spec.Finalizers, v1alpha1.NamespaceFinalizer) {
			t.Errorf("namespace %s has the labels %v and the finalizers %v", namespace.Name, namespace.Labels, namespace.Spec.Finalizers)
		}
	}
	eventually(t, "nothing of nsinit is left in the API", func(ctx context.Context) error {
		policies, err := c.core.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
		if err == nil && len(policies.Items) > 0 {
			err = fmt.Errorf("policy %s", policies.Items[0].Name)
		}
		if err != nil {
			return err
		}
		if _, err := c.core.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String()); !apierrors.IsNotFound(err) {
			return errors.Join(err, errors.New("the group nsinit.dev is served"))
		}
		return nil
	})
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestStory is the life of a namespace with two initializers.
func TestStory(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	tenant := c.Tenant(t)
	c.Configure(t, framework.Initializers("one.example.com", "two.example.com")...)
	namespace := c.CreateNamespace(t, c.As("e2e-tenant")).Name

	for _, initializer := range []string{"one.example.com", "two.example.com"} {
		c.WaitCurrent(t, namespace, initializer)
		framework.Eventually(t, "the conditions name the pending initializer", func(ctx context.Context) error {
			return framework.Refused(framework.WriteConfigMap(ctx, tenant, namespace), fmt.Sprintf("namespace %q", namespace), initializer)
		})
		if err := framework.WriteConfigMap(context.Background(), c.Core, namespace); err != nil {
			t.Errorf("a holder of the verb initialize was refused: %v", err)
		}
		c.RemoveFirst(t, namespace)
	}
	c.WaitReady(t, namespace)
	framework.WaitWrite(t, tenant, namespace)

	c.WaitEvents(t, namespace, "InitializerRunning", "InitializerDone", "InitializerRunning", "InitializerDone", v1alpha1.ReasonInitialized)
	if out, err := c.Kubectl("describe", "nsl", namespace); err != nil || !strings.Contains(out, "two.example.com") {
		t.Errorf("kubectl describe: %v\n%s", err, out)
	}
	if _, err := c.Kubectl("delete", "namespace", namespace, "--timeout="+framework.Patience.String()); err != nil {
		t.Fatal(err)
	}
	c.WaitNoLifecycle(t, namespace)
}

// TestNoInitializers: a namespace that no initializer selects opens immediately.
func TestNoInitializers(t *testing.T) {
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	if c.IsClosed(t, namespace) {
		t.Error("it is Ready and closed")
	}
}

// TestExemptFromTheStart: the namespaces of Kubernetes and of nsinit get no NamespaceLifecycle, and stay open.
func TestExemptFromTheStart(t *testing.T) {
	c := framework.Share(t)
	for _, name := range []string{"default", "kube-system", "kube-public", "nsinit-system"} {
		if _, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(context.Background(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the exempt namespace %s has a NamespaceLifecycle: %v", name, err)
		}
		if c.IsClosed(t, name) {
			t.Errorf("the exempt namespace %s is closed", name)
		}
	}
}

// TestFailure: a failed result is reported, and then the namespace is deleted.
func TestFailure(t *testing.T) {
	c := framework.Share(t)
	c.Configure(t, framework.Initializers("one.example.com")...)
	namespace := c.CreateNamespace(t, c.Admin)
	c.WaitCurrent(t, namespace.Name, "one.example.com")
	c.Fail(t, namespace.Name, "the team has no quota left")
	c.WaitNoNamespace(t, namespace.Name)
	c.WaitNoLifecycle(t, namespace.Name)
	framework.Eventually(t, "an event reports the cause", func(ctx context.Context) error {
		events, err := c.Core.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + namespace.Name})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == v1alpha1.ReasonFailed && strings.Contains(event.Message, "the team has no quota left") {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of the failure", len(events.Items))
	})
}

// TestParticipant: a participant keeps a terminating namespace until it has cleaned up, and a new namespace of the
// same name waits for it.
func TestParticipant(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "openshift.com/origin", Finalizer: true})
	namespace := c.CreateNamespace(t, c.Admin)
	c.WaitCurrent(t, namespace.Name, "openshift.com/origin")
	live, err := c.Core.CoreV1().Namespaces().Get(context.Background(), namespace.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(live.Spec.Finalizers, live.Finalizers); got != "[kubernetes] [nsinit.dev/lifecycle]" {
		t.Errorf("before the participant's turn the namespace's finalizers are %s", got)
	}
	c.DeleteNamespace(t, namespace.Name)
	lifecycles := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	framework.Eventually(t, "only the participant is left", func(ctx context.Context) error {
		lifecycle, err := lifecycles.Get(ctx, namespace.Name, metav1.GetOptions{})
		if err == nil && fmt.Sprint(lifecycle.Spec.Finalizers) != "[openshift.com/origin]" {
			err = fmt.Errorf("finalizers are %v", lifecycle.Spec.Finalizers)
		}
		return err
	})
	if _, err := c.Core.CoreV1().Namespaces().Get(context.Background(), namespace.Name, metav1.GetOptions{}); err != nil {
		t.Fatalf("the namespace did not wait for the participant: %v", err)
	}
	// With kubectl, through the aggregator. The controller writes conditions meanwhile.
	framework.Eventually(t, "the participant leaves", func(ctx context.Context) error {
		lifecycle, err := lifecycles.Get(ctx, namespace.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lifecycle.Spec.Finalizers = nil
		lifecycle.TypeMeta = metav1.TypeMeta{APIVersion: "nsinit.dev/v1alpha1", Kind: "NamespaceLifecycle"}
		_, err = c.KubectlInput(framework.JSON(t, lifecycle), "replace", "--raw", "/apis/nsinit.dev/v1alpha1/namespacelifecycles/"+namespace.Name+"/finalize")
		return err
	})
	c.WaitNoLifecycle(t, namespace.Name)
	c.WaitNoNamespace(t, namespace.Name)
}

// TestNameReuse: a namespace that is created again inherits no completed and no pending initializers.
func TestNameReuse(t *testing.T) {
	c := framework.Share(t)
	tenant := c.Tenant(t)
	c.Configure(t, framework.Initializers("one.example.com")...)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, "one.example.com")
	c.RemoveFirst(t, namespace)
	c.WaitReady(t, namespace)
	if _, err := c.Kubectl("delete", "namespace", namespace, "--timeout="+framework.Patience.String()); err != nil {
		t.Fatal(err)
	}
	again, err := c.Core.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the new incarnation has a new NamespaceLifecycle", func(ctx context.Context) error {
		lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && (lifecycle.Spec.NamespaceUID != again.UID || !helper.IsActing(lifecycle, "one.example.com")) {
			err = fmt.Errorf("the NamespaceLifecycle is of %s, current is %q", lifecycle.Spec.NamespaceUID, helper.Acting(lifecycle))
		}
		return err
	})
	if err := framework.Refused(framework.WriteConfigMap(context.Background(), tenant, namespace)); err != nil {
		t.Error(err)
	}
	c.RemoveFirst(t, namespace)
	c.WaitReady(t, namespace)
}

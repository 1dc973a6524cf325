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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestDeleteWhileInitializing deletes a namespace at every step of its initialization. The turn
// ends immediately, the gate stays closed to the end, and both objects are deleted.
func TestDeleteWhileInitializing(t *testing.T) {
	c := framework.Connect(t)
	tenant := c.Tenant(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true}, v1alpha1.RegisteredInitializer{Name: "two.example.com"})
	const controller = "nsinit-controller-manager"
	started := func(do func(*corev1.Namespace)) func(*testing.T, *corev1.Namespace) {
		return func(_ *testing.T, namespace *corev1.Namespace) { do(namespace) }
	}
	steps := []struct {
		name string
		// before brings the namespace to the step, and after continues after the deletion.
		before func(*testing.T, *corev1.Namespace)
		after  func(*testing.T)
		// participant is true if the namespace waits for a participant.
		participant bool
	}{
		{"before it has a NamespaceLifecycle", started(func(*corev1.Namespace) {}), func(t *testing.T) { c.Dev(t, "start", controller) }, false},
		{"in the turn of the first", started(func(n *corev1.Namespace) { c.WaitCurrent(t, n.Name, "one.example.com") }), nil, true},
		{"in the turn of the second", started(func(n *corev1.Namespace) {
			c.WaitCurrent(t, n.Name, "one.example.com")
			c.RemoveFirst(t, n.Name)
			c.WaitCurrent(t, n.Name, "two.example.com")
		}), nil, true},
		{"after the last, before it opens", started(func(n *corev1.Namespace) {
			c.WaitCurrent(t, n.Name, "one.example.com")
			c.Dev(t, "stop", controller)
			c.RemoveFirst(t, n.Name)
			c.RemoveFirst(t, n.Name)
		}), func(t *testing.T) { c.Dev(t, "start", controller) }, true},
		{"after it failed", started(func(n *corev1.Namespace) {
			c.WaitCurrent(t, n.Name, "one.example.com")
			c.Dev(t, "stop", controller)
			c.Fail(t, n.Name, "no")
		}), func(t *testing.T) { c.Dev(t, "start", controller) }, true},
	}
	deleted := map[string]*framework.Observer{}
	whole := t
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			t.Cleanup(func() { c.Dev(t, "start", controller) })
			if !step.participant {
				c.Dev(t, "stop", controller)
			}
			namespace := c.CreateNamespace(t, c.Admin)
			deleted[namespace.Name] = c.Observe(whole, tenant, namespace)
			step.before(t, namespace)
			c.DeleteNamespace(t, namespace.Name)
			if step.after != nil {
				step.after(t)
			}
			if step.participant {
				lifecycle := c.WaitTerminating(t, namespace.Name)
				if current := helper.Acting(lifecycle); len(current) > 0 {
					t.Errorf("it is still the turn of %q", current)
				}
				// A late initializer may remove its entry, which does not open the gate.
				if lifecycle.Spec.Initializers != nil && lifecycle.Spec.Initializers.Result == nil {
					c.RemoveFirst(t, namespace.Name)
				}
				if !c.IsClosed(t, namespace.Name) {
					t.Error("the gate is open")
				}
				c.ReleaseParticipant(t, namespace.Name, "one.example.com")
			}
		})
	}
	for namespace, observer := range deleted {
		c.WaitNoNamespace(t, namespace)
		c.WaitNoLifecycle(t, namespace)
		if len(observer.Written) > 0 {
			t.Errorf("a tenant's object was stored in %s", namespace)
		}
		if len(observer.Opened) > 0 {
			t.Errorf("the gate of %s was opened", namespace)
		}
	}
}

// TestEmptiedOnce: kube-controller-manager does not empty a namespace again that waits for a participant.
// Otherwise, the requests that it sends after the participant has finished can reach the next namespace of the same name.
func TestEmptiedOnce(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: framework.Participant, Finalizer: true})
	held := c.CreateParticipated(t)
	c.DeleteNamespace(t, held)
	framework.Eventually(t, "its content is gone", func(ctx context.Context) error {
		namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, held, metav1.GetOptions{})
		if err == nil && len(namespace.Spec.Finalizers) > 0 {
			err = fmt.Errorf("spec.finalizers are %v", namespace.Spec.Finalizers)
		}
		return err
	})
	_, from := c.AuditSince(t, 0)
	// After each change of a namespace that is being deleted, the namespace controller handles it five seconds later,
	// before another one that is deleted now.
	if _, err := c.Kubectl("annotate", "namespace", held, "e2e=changed"); err != nil {
		t.Fatal(err)
	}
	other := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, other, framework.Participant)
	c.DeleteNamespace(t, other)
	c.ReleaseParticipant(t, other, framework.Participant)
	c.WaitNoNamespace(t, other)
	events, _ := c.AuditSince(t, from)
	emptied := map[string]bool{}
	for _, event := range events {
		if event.Verb == "deletecollection" {
			emptied[event.ObjectRef.Namespace] = true
		}
	}
	if !emptied[other] || emptied[held] {
		t.Errorf("the namespaces that were emptied: %v", emptied)
	}
	c.ReleaseParticipant(t, held, framework.Participant)
	c.WaitNoNamespace(t, held)
}

// TestNamesTaken: two configurations register the same initializer. The first in the order of their names takes
// effect until it is deleted.
func TestNamesTaken(t *testing.T) {
	c := framework.Connect(t)
	first, second := c.Configure(t, framework.Initializers("same.example.com", "one.example.com")...), c.Configure(t, framework.Initializers("two.example.com", "same.example.com")...)
	says := func(name, status, message string) {
		t.Helper()
		framework.Eventually(t, "the condition of "+name, func(ctx context.Context) error {
			configuration, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, condition := range configuration.Status.Conditions {
				if condition.Type == "NamesAccepted" && string(condition.Status) == status && (message == "" || condition.Message == message) {
					return nil
				}
			}
			return fmt.Errorf("conditions: %v", configuration.Status.Conditions)
		})
	}
	says(first.Name, "True", "")
	noEffect := fmt.Sprintf("initializers[1] %q has no effect because configuration %q registers it first: remove or rename it", "same.example.com", first.Name)
	says(second.Name, "False", noEffect)
	if out, err := c.Kubectl("label", "nsic", second.Name, "e2e=warned", "--warnings-as-errors"); err == nil || !strings.Contains(err.Error(), "Warning: "+noEffect) {
		t.Errorf("no warning %q: %v\n%s", noEffect, err, out)
	}
	namespace := c.CreateNamespace(t, c.Admin).Name
	lifecycle := c.WaitCurrent(t, namespace, "same.example.com")
	var plan []string
	for _, entry := range lifecycle.Spec.Plan {
		plan = append(plan, entry.Name+" by "+entry.Configuration.Name)
	}
	want := fmt.Sprint([]string{"same.example.com by " + first.Name, "one.example.com by " + first.Name, "two.example.com by " + second.Name})
	if fmt.Sprint(plan) != want {
		t.Errorf("the plan is %v, want %s", plan, want)
	}
	if err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	says(second.Name, "True", "")
}

// TestFinalizeKeepsOrder: participants are removed in any order, and the others keep theirs.
// A participant can remove only its own name, and only privileged users can add one.
func TestFinalizeKeepsOrder(t *testing.T) {
	c := framework.Share(t)
	names := []string{"one.example.com", "two.example.com", "three.example.com"}
	var initializers []v1alpha1.RegisteredInitializer
	for _, name := range names {
		initializers = append(initializers, v1alpha1.RegisteredInitializer{Name: name, Finalizer: true})
	}
	c.Configure(t, initializers...)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, names[0])
	// The namespace is deleted while it is initializing. It also waits for two participants that have not had a turn,
	// because they may have begun.
	c.DeleteNamespace(t, namespace)
	c.WaitTerminating(t, namespace)
	finalizers := func(want string) {
		t.Helper()
		framework.Eventually(t, "the finalizers of the NamespaceLifecycle", func(ctx context.Context) error {
			lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
			if err == nil && fmt.Sprint(lifecycle.Spec.Finalizers) != want {
				err = fmt.Errorf("they are %v, want %s", lifecycle.Spec.Finalizers, want)
			}
			return err
		})
	}
	finalizers("[one.example.com two.example.com three.example.com]")
	c.WaitCondition(t, namespace, v1alpha1.ConditionReady, "False/Terminating", `"one.example.com", "two.example.com", "three.example.com"`)
	c.ReleaseParticipant(t, namespace, "two.example.com")
	finalizers("[one.example.com three.example.com]")
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lifecycle.Spec.Finalizers = []v1alpha1.FinalizerName{"three.example.com", "one.example.com"}
		_, err = c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Finalize(t.Context(), namespace, lifecycle, metav1.UpdateOptions{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "the order must be kept") {
		t.Errorf("another order: %v", err)
	}
	c.ReleaseParticipant(t, namespace, "three.example.com")
	finalizers("[one.example.com]")
	c.ReleaseParticipant(t, namespace, "one.example.com")
	c.WaitNoLifecycle(t, namespace)
	c.WaitNoNamespace(t, namespace)
}

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

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// TestDeleteWhileInitializing deletes a namespace at every step of its initialization. The turn
// ends at once, the gate stays closed to the end, and both objects leave.
func TestDeleteWhileInitializing(t *testing.T) {
	c := connect(t)
	tenant := c.tenant(t)
	c.configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true}, v1alpha1.RegisteredInitializer{Name: "two.example.com"})
	const controller = "nsinit-controller-manager"
	started := func(do func(*corev1.Namespace)) func(*testing.T, *corev1.Namespace) {
		return func(_ *testing.T, namespace *corev1.Namespace) { do(namespace) }
	}
	steps := []struct {
		name string
		// before brings the namespace to the step, and after lets things go on once it
		// is deleted.
		before func(*testing.T, *corev1.Namespace)
		after  func(*testing.T)
		// participant says whether somebody has to be waited for.
		participant bool
	}{
		{"before it has a record", started(func(*corev1.Namespace) {}), func(t *testing.T) { c.dev(t, "start", controller) }, false},
		{"in the turn of the first", started(func(n *corev1.Namespace) { c.waitCurrent(t, n.Name, "one.example.com") }), nil, true},
		{"in the turn of the second", started(func(n *corev1.Namespace) {
			c.waitCurrent(t, n.Name, "one.example.com")
			c.removeFirst(t, n.Name)
			c.waitCurrent(t, n.Name, "two.example.com")
		}), nil, true},
		{"after the last, before it opens", started(func(n *corev1.Namespace) {
			c.waitCurrent(t, n.Name, "one.example.com")
			c.dev(t, "stop", controller)
			c.removeFirst(t, n.Name)
			c.removeFirst(t, n.Name)
		}), func(t *testing.T) { c.dev(t, "start", controller) }, true},
		{"after it failed", started(func(n *corev1.Namespace) {
			c.waitCurrent(t, n.Name, "one.example.com")
			c.dev(t, "stop", controller)
			eventually(t, "it fails", func(ctx context.Context) error {
				record, err := c.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, n.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				record.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}
				_, err = c.nsinit.NsinitV1alpha1().NamespaceLifecycles().Initialize(ctx, n.Name, record, metav1.UpdateOptions{})
				return err
			})
		}), func(t *testing.T) { c.dev(t, "start", controller) }, true},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			t.Cleanup(func() { c.dev(t, "start", controller) })
			if !step.participant {
				c.dev(t, "stop", controller)
			}
			namespace := c.createNamespace(t, c.admin)
			observer := c.observe(t, tenant, namespace)
			step.before(t, namespace)
			if err := c.core.CoreV1().Namespaces().Delete(t.Context(), namespace.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if step.after != nil {
				step.after(t)
			}
			if step.participant {
				record := c.waitTerminating(t, namespace.Name)
				if record.Status.CurrentInitializer != "" {
					t.Errorf("it is still the turn of %q", record.Status.CurrentInitializer)
				}
				// An initializer that comes too late may leave the list, which opens nothing.
				if record.Spec.Initializers != nil && record.Spec.Initializers.Result == nil {
					c.removeFirst(t, namespace.Name)
				}
				if !c.isClosed(t, namespace.Name) {
					t.Error("the gate is open")
				}
				c.releaseParticipant(t, namespace.Name, "one.example.com")
			}
			c.waitNoNamespace(t, namespace.Name)
			c.waitNoRecord(t, namespace.Name)
			if len(observer.written) > 0 {
				t.Error("a tenant's object was stored")
			}
			if len(observer.opened) > 0 {
				t.Error("the gate was opened")
			}
		})
	}
}

// TestEmptiedOnce: kube-controller-manager does not empty a namespace again that waits for a participant.
// Otherwise, what it does when the participant lets go can reach the next namespace of the same name.
func TestEmptiedOnce(t *testing.T) {
	c := connect(t)
	c.configure(t, v1alpha1.RegisteredInitializer{Name: participant, Finalizer: true})
	held := c.participated(t)
	c.deleteNamespace(t, held)
	eventually(t, "its content is gone", func(ctx context.Context) error {
		namespace, err := c.core.CoreV1().Namespaces().Get(ctx, held, metav1.GetOptions{})
		if err == nil && len(namespace.Spec.Finalizers) > 0 {
			err = fmt.Errorf("spec.finalizers are %v", namespace.Spec.Finalizers)
		}
		return err
	})
	_, from := c.auditSince(t, 0)
	// Each change of a namespace that is being deleted brings it back to the namespace controller five
	// seconds later, before another that is deleted now.
	if _, err := c.kubectl("annotate", "namespace", held, "e2e=changed"); err != nil {
		t.Fatal(err)
	}
	other := c.createNamespace(t, c.admin).Name
	c.waitCurrent(t, other, participant)
	c.deleteNamespace(t, other)
	c.releaseParticipant(t, other, participant)
	c.waitNoNamespace(t, other)
	events, _ := c.auditSince(t, from)
	emptied := map[string]bool{}
	for _, event := range events {
		if event.Verb == "deletecollection" {
			emptied[event.ObjectRef.Namespace] = true
		}
	}
	if !emptied[other] || emptied[held] {
		t.Errorf("the namespaces that were emptied: %v", emptied)
	}
	c.releaseParticipant(t, held, participant)
	c.waitNoNamespace(t, held)
}

func (c *cluster) waitTerminating(t *testing.T, namespace string) *v1alpha1.NamespaceLifecycle {
	t.Helper()
	var record *v1alpha1.NamespaceLifecycle
	eventually(t, "the record is being deleted", func(ctx context.Context) (err error) {
		record, err = c.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && record.Status.Phase != v1alpha1.LifecycleTerminating {
			err = fmt.Errorf("its phase is %s", record.Status.Phase)
		}
		return err
	})
	return record
}

// TestNamesTaken: two configurations register the same initializer. The first in the order of
// their names does, until it goes.
func TestNamesTaken(t *testing.T) {
	c := connect(t)
	first, second := c.register(t, named("same.example.com", "one.example.com")...), c.configure(t, named("two.example.com", "same.example.com")...)
	says := func(name, status, message string) {
		t.Helper()
		eventually(t, "the condition of "+name, func(ctx context.Context) error {
			configuration, err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, name, metav1.GetOptions{})
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
	if out, err := c.kubectl("label", "nsic", second.Name, "e2e=warned", "--warnings-as-errors"); err == nil || !strings.Contains(err.Error(), "Warning: "+noEffect) {
		t.Errorf("no warning %q: %v\n%s", noEffect, err, out)
	}
	namespace := c.createNamespace(t, c.admin).Name
	record := c.waitCurrent(t, namespace, "same.example.com")
	var plan []string
	for _, entry := range record.Spec.Plan {
		plan = append(plan, entry.Name+" by "+entry.Configuration.Name)
	}
	want := fmt.Sprint([]string{"same.example.com by " + first.Name, "one.example.com by " + first.Name, "two.example.com by " + second.Name})
	if fmt.Sprint(plan) != want {
		t.Errorf("the plan is %v, want %s", plan, want)
	}
	if err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	says(second.Name, "True", "")
}

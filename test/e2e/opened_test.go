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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestOpenedByHand: soon after an administrator opens a namespace, the namespace, its NamespaceLifecycle, its
// configuration and the plugin report it with the name of the administrator. Participants still clean up.
func TestOpenedByHand(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	stored := c.Configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true}, v1alpha1.RegisteredInitializer{Name: "two.example.com"})
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, "one.example.com")

	c.RunDocumented(t, framework.SkipInitializerGuide, "Open a namespace by hand", map[string]string{"NAMESPACE": namespace})
	const who = `user "kubernetes-admin" removed the label nsinit.dev/initializing before every initializer was done; skipped: ["one.example.com" "two.example.com"]`
	c.WaitReady(t, namespace)
	c.WaitCondition(t, namespace, v1alpha1.ConditionReady, "True/OpenedByHand", who)
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "False/OpenedByHand", who)
	lifecycle := c.WaitCurrent(t, namespace, "")
	if lifecycle.Status.Phase != v1alpha1.LifecycleActive || len(lifecycle.Spec.Skipped) != 2 {
		t.Errorf("the NamespaceLifecycle has the phase %s, skipped %q", lifecycle.Status.Phase, lifecycle.Spec.Skipped)
	}
	framework.Eventually(t, "the configuration counts no namespace", func(ctx context.Context) error {
		configuration, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, stored.Name, metav1.GetOptions{})
		if err == nil && configuration.Status.PendingNamespaces != 0 {
			err = fmt.Errorf("%d pending", configuration.Status.PendingNamespaces)
		}
		return err
	})
	out, err := c.Shell(t, "kubectl nsinit why "+namespace+"; kubectl nsinit status "+namespace, nil)
	if err != nil || !strings.Contains(out, "healthy") || !strings.Contains(out, namespace+": Active") || !strings.Contains(out, who) {
		t.Errorf("the plugin: %v\n%s", err, out)
	}
	framework.Eventually(t, "an event", func(ctx context.Context) error {
		events, err := c.Core.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + namespace + ",reason=OpenedByHand"})
		if err == nil && (len(events.Items) != 1 || !strings.Contains(events.Items[0].Message, who)) {
			err = fmt.Errorf("%d events", len(events.Items))
		}
		return err
	})

	// The recorded user cannot be changed or set.
	c.User(t, "e2e-opened", framework.Everything())
	mallory := kubernetes.NewForConfigOrDie(c.As("e2e-opened"))
	forged := []byte(`{"metadata":{"annotations":{"nsinit.dev/opened-by":"mallory"}}}`)
	for _, subresource := range []string{"", "status"} {
		if _, err := mallory.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, forged, metav1.PatchOptions{}, orNothing(subresource)...); !apierrors.IsForbidden(err) {
			t.Errorf("the annotation was forged through %q: %v", subresource, err)
		}
	}
	claimed, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: c.Name("ns"), Annotations: map[string]string{v1alpha1.AnnotationOpenedBy: "mallory"}}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if _, kept := claimed.Annotations[v1alpha1.AnnotationOpenedBy]; kept {
		t.Error("a new namespace kept the annotation")
	}

	// The participant cleans up, and the namespace is not ready meanwhile.
	c.DeleteNamespace(t, namespace)
	c.WaitCondition(t, namespace, v1alpha1.ConditionReady, "False/Terminating", "")
	c.ReleaseParticipant(t, namespace, "one.example.com")
	c.WaitNoNamespace(t, namespace)
}

func orNothing(subresource string) []string {
	if subresource == "" {
		return nil
	}
	return []string{subresource}
}

// TestTerminatingIsNotReady: from the deletion of a namespace without participants to its end, it is
// not ready, also if other clients write its conditions, and nsinit reports it in one write.
func TestTerminatingIsNotReady(t *testing.T) {
	c := framework.Share(t)
	open := c.CreateNamespace(t, c.Admin)
	c.WaitReady(t, open.Name)
	waiting := c.CreateHeld(t, c.Admin)
	c.WaitCondition(t, waiting.Name, v1alpha1.ConditionInitializing, "True/InitializersPending", "")
	for name, ready := range map[string]string{open.Name: "False/Terminating", waiting.Name: "False/Terminating"} {
		_, from := c.AuditSince(t, 0)
		c.DeleteNamespace(t, name)
		c.WaitCondition(t, name, v1alpha1.ConditionReady, ready, "the namespace is being deleted")
		if out, err := c.Kubectl("wait", "--for=condition=Ready", "namespace/"+name, "--timeout=1s"); err == nil {
			t.Errorf("it is ready while it is deleted: %s", out)
		}
		c.WaitNoNamespace(t, name)
		var writes []string
		events, _ := c.AuditSince(t, from)
		deletion := slices.IndexFunc(events, func(event framework.AuditEvent) bool {
			return event.Verb == "delete" && event.ObjectRef.Resource == "namespaces" && event.ObjectRef.Name == name
		})
		for _, event := range events {
			if event.RequestReceivedTimestamp.After(events[deletion].RequestReceivedTimestamp) && event.ObjectRef.Resource == "namespaces" && event.ObjectRef.Name == name && event.ObjectRef.Subresource == "status" &&
				event.ResponseStatus.Code == 200 && strings.HasSuffix(event.User.Username, ":nsinit-controller-manager") {
				writes = append(writes, string(event.RequestObject))
			}
		}
		if len(writes) != 1 {
			t.Errorf("nsinit wrote the status %d times: %s", len(writes), strings.Join(writes, "\n"))
		}
	}
}

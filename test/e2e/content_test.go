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
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestContentIsKept: a participant reads a Secret of the deleted namespace while it cleans up, also if
// nsinit-controller-manager does not run when the namespace is deleted. After that, Kubernetes deletes the content, and
// the namespace waits for the participant that does not hold it.
func TestContentIsKept(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	const other, controller = "other.example.com", "nsinit-controller-manager"
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: framework.Participant, Finalizer: true, Holds: new(v1alpha1.HoldContent)},
		v1alpha1.RegisteredInitializer{Name: other, Finalizer: true})
	for name, down := range map[string]bool{"the controller runs": false, "the controller is down": true} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { c.Dev(t, "start", controller) })
			namespace := createWithSecret(t, c, other)
			if down {
				c.Dev(t, "stop", controller)
			}
			c.DeleteNamespace(t, namespace)
			if down {
				c.WaitCondition(t, namespace, corev1.NamespaceDeletionContentFailure, string(corev1.ConditionTrue), "nsinit-content", "secrets")
				checkSecret(t, c, namespace)
				c.Dev(t, "start", controller)
			}
			c.WaitTerminating(t, namespace)
			c.WaitCondition(t, namespace, v1alpha1.ConditionReady, "its content is kept until these participants have cleaned up: "+fmt.Sprintf("%q", framework.Participant))
			waitSpecFinalizers(t, c, namespace)
			found, err := c.Why(t, namespace)
			if err != nil || !slices.ContainsFunc(found.Findings, func(f diagnosis.Finding) bool {
				return f.Cause == diagnosis.ParticipantPending && strings.Contains(f.Message, "keeps the content of the namespace")
			}) {
				t.Errorf("why finds %s: %v", framework.JSON(t, found), err)
			}
			guardsContent(t, c, namespace)

			// kube-controller-manager handles this namespace before another one that is deleted now.
			if _, err := c.Kubectl("annotate", "namespace", namespace, "e2e=changed"); err != nil {
				t.Fatal(err)
			}
			removeAnother(t, c, other)
			checkSecret(t, c, namespace)
			checkKeptPod(t, c, namespace)

			c.ReleaseParticipant(t, namespace, framework.Participant)
			framework.Eventually(t, "the Secret is deleted", func(ctx context.Context) error {
				_, err := c.Core.CoreV1().Secrets(namespace).Get(ctx, "credentials", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return errors.Join(err, errors.New("it exists"))
			})
			c.WaitCondition(t, namespace, v1alpha1.ConditionReady, "the content of the namespace is deleted; waiting for participants to clean up: "+fmt.Sprintf("%q", other))
			c.ReleaseParticipant(t, namespace, other)
			c.WaitNoNamespace(t, namespace)
			c.WaitNoLifecycle(t, namespace)
		})
	}
}

// createWithSecret creates an open namespace with a Secret and a pod.
func createWithSecret(t *testing.T, c *framework.Cluster, second string) string {
	t.Helper()
	namespace := c.CreateNamespace(t, c.Admin).Name
	for _, initializer := range []string{framework.Participant, second} {
		c.WaitCurrent(t, namespace, initializer)
		c.RemoveFirst(t, namespace)
	}
	c.WaitReady(t, namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "credentials"}, StringData: map[string]string{"password": "e2e"}}
	if _, err := c.Core.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Core.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return namespace
}

// checkKeptPod: the pod exists, Kubernetes does not evict it, and a participant can delete it.
func checkKeptPod(t *testing.T, c *framework.Cluster, namespace string) {
	t.Helper()
	pods := c.Core.CoreV1().Pods(namespace)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: namespace}}
	if err := pods.EvictV1(t.Context(), eviction); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("the pod is evicted: %v", err)
	}
	if err := pods.Delete(t.Context(), "app", metav1.DeleteOptions{}); err != nil {
		t.Errorf("the pod cannot be deleted: %v", err)
	}
}

func checkSecret(t *testing.T, c *framework.Cluster, namespace string) {
	t.Helper()
	secret, err := c.Core.CoreV1().Secrets(namespace).Get(t.Context(), "credentials", metav1.GetOptions{})
	if err != nil || secret.DeletionTimestamp != nil || string(secret.Data["password"]) != "e2e" {
		t.Fatalf("the participant cannot read the Secret: %v, deleted at %v", err, secret.DeletionTimestamp)
	}
}

// waitSpecFinalizers waits until kube-controller-manager has nothing to do.
func waitSpecFinalizers(t *testing.T, c *framework.Cluster, namespace string) {
	t.Helper()
	framework.Eventually(t, "spec.finalizers are empty", func(ctx context.Context) error {
		namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && len(namespace.Spec.Finalizers) > 0 {
			err = fmt.Errorf("they are %v", namespace.Spec.Finalizers)
		}
		return err
	})
}

// removeAnother creates and deletes a namespace, and waits until it is removed.
func removeAnother(t *testing.T, c *framework.Cluster, second string) {
	t.Helper()
	another := createWithSecret(t, c, second)
	c.DeleteNamespace(t, another)
	c.ReleaseParticipant(t, another, framework.Participant)
	c.ReleaseParticipant(t, another, v1alpha1.FinalizerName(second))
	c.WaitNoNamespace(t, another)
}

// guardsContent: no user can remove the finalizer while no controller would delete the content, and only a holder of
// the verb open can remove it otherwise.
func guardsContent(t *testing.T, c *framework.Cluster, name string) {
	t.Helper()
	writer := kubernetes.NewForConfigOrDie(c.User(t, "e2e-writer", framework.Everything()))
	for _, test := range []struct {
		user     kubernetes.Interface
		restores bool
		refusal  string
	}{
		{writer, true, "the finalizer nsinit.dev/content of namespace"},
		{c.Core, false, "no controller would delete the content of namespace"},
		{c.Core, true, ""},
	} {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			namespace, err := test.user.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			namespace.Finalizers = slices.DeleteFunc(namespace.Finalizers, func(f string) bool { return f == v1alpha1.ContentFinalizer })
			if test.restores {
				namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
			}
			_, err = test.user.CoreV1().Namespaces().Finalize(t.Context(), namespace, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
		if test.refusal != "" {
			err = framework.RefusedBy(guard, err, test.refusal)
		}
		if err != nil {
			t.Errorf("restores %t, want refusal %q: %v", test.restores, test.refusal, err)
		}
	}
}

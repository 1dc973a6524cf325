//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestRestore: a restored namespace is closed until its initializers are done, whatever its backup contains, and its content is refused
// until then. The NamespaceLifecycle and the PopulatedNamespace of the backup have no effect. With the documented commands, the namespace
// keeps its creator.
func TestRestore(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Configure(t, framework.Initializers("hold.example.com", framework.PopulationInitializer)...)
	c.Populate(t, "10-restore", framework.ConfigMapManifest("who", "${creator} by ${requester}"))
	c.StartPopulation(t)
	alice := c.User(t, "e2e-alice", framework.Everything())
	namespaces, lifecycles, inventories := c.Core.CoreV1().Namespaces(), c.Nsinit.NsinitV1alpha1().NamespaceLifecycles(), c.Nsinit.NsinitV1alpha1().PopulatedNamespaces()

	// The backup. An administrator has opened the namespace, and it is closed again.
	name := c.CreateNamespace(t, alice).Name
	c.WaitCurrent(t, name, "hold.example.com")
	c.RemoveFirst(t, name)
	c.WaitReady(t, name)
	namespace, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace.Labels[v1alpha1.LabelInitializing], namespace.Labels["team"] = "true", "a"
	namespace.Annotations[v1alpha1.AnnotationOpenedBy], namespace.Annotations["example.com/owner"] = "kubernetes-admin", "a"
	lifecycle, err := lifecycles.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := inventories.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.DeleteNamespace(t, name)
	c.WaitNoNamespace(t, name)
	c.WaitNoLifecycle(t, name)
	framework.Eventually(t, "the PopulatedNamespace is deleted", func(ctx context.Context) error {
		if _, err := inventories.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %w", err)
		}
		return nil
	})

	// Velero creates a namespace with the labels, the annotations and the spec of the backup. Tools that apply a stored manifest also
	// send its UID.
	account, velero := c.ServiceAccount(t, framework.Everything())
	client := kubernetes.NewForConfigOrDie(velero)
	restored, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: namespace.UID, Labels: namespace.Labels, Annotations: namespace.Annotations}, Spec: namespace.Spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.LeaveLater(t, name)
	if _, opened := restored.Annotations[v1alpha1.AnnotationOpenedBy]; opened || restored.UID == namespace.UID || restored.Labels["team"] != "a" ||
		restored.Annotations["example.com/owner"] != "a" || restored.Annotations[v1alpha1.AnnotationCreatedBy] != account {
		t.Errorf("the restored namespace has %+v", restored.ObjectMeta)
	}
	if err := framework.Refused(framework.WriteConfigMap(t.Context(), client, name)); err != nil {
		t.Error(err)
	}

	// Velero removes the UID, the status and the owners of other objects. Its standard account is a cluster administrator.
	c.WaitCurrent(t, name, "hold.example.com")
	stored := metav1.ObjectMeta{Name: name, Labels: map[string]string{"velero.io/restore-name": "r"}, Finalizers: lifecycle.Finalizers}
	lifecycle.ObjectMeta, lifecycle.Status = stored, v1alpha1.NamespaceLifecycleStatus{}
	if _, err := lifecycles.Create(t.Context(), lifecycle, metav1.CreateOptions{}); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		t.Errorf("the NamespaceLifecycle: want Conflict or AlreadyExists, got %v", err)
	}
	inventory.ObjectMeta, inventory.Status = stored, v1alpha1.PopulatedNamespaceStatus{}
	if _, err := inventories.Create(t.Context(), inventory, metav1.CreateOptions{}); err != nil {
		t.Errorf("the PopulatedNamespace: %v", err)
	}
	if !c.IsClosed(t, name) {
		t.Fatal("the gate has opened")
	}

	c.RemoveFirst(t, name)
	c.WaitReady(t, name)
	waitValue(t, c, name, "who", account+" by "+account)
	if inventory, err = inventories.Get(t.Context(), name, metav1.GetOptions{}); err != nil || inventory.Spec.NamespaceUID != restored.UID || len(inventory.Status.Objects) != 1 {
		t.Errorf("the PopulatedNamespace is %+v, %v", inventory, err)
	}
	framework.WaitWrite(t, client, name)

	// The documented commands, with a namespace that was frozen once.
	c.DeleteNamespace(t, name)
	c.WaitNoNamespace(t, name)
	namespace.Annotations[v1alpha1.AnnotationUnfrozenBy] = "kubernetes-admin"
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: namespace.Annotations}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a namespace that was frozen once: want Invalid, got %v", err)
	}
	c.ActAs(t, "hold.example.com")
	file := filepath.Join(t.TempDir(), "namespace.json")
	if err := os.WriteFile(file, []byte(framework.JSON(t, namespace)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := c.Shell(t, c.Documented(t, framework.BackupGuide, "Restore namespaces with Velero")[0], map[string]string{"FILE": file, "NAMESPACE": name})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	waitValue(t, c, name, "who", "e2e-alice by kubernetes-admin")
}

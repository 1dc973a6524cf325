//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// tenant writes ConfigMaps into a namespace with all rights that RBAC can give for it and
// no verb of nsinit.
func (c *cluster) tenant(t *testing.T) kubernetes.Interface {
	t.Helper()
	const manifest = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-tenant}
rules:
- {apiGroups: [""], resources: ["namespaces"], verbs: ["create", "get"]}
- {apiGroups: [""], resources: ["configmaps"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-tenant}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-tenant}]
`
	if _, err := c.kubectlInput(manifest, "apply", "--server-side"); err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(c.as("e2e-tenant"))
}

func writeConfigMap(ctx context.Context, client kubernetes.Interface, namespace string) error {
	_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
	return err
}

// refused checks that the gate refuses a write, and says why.
func refused(err error, parts ...string) error { return refusedBy("nsinit-gate", err, parts...) }

// TestStory is the life of a namespace with two initializers.
func TestStory(t *testing.T) {
	c := connect(t)
	tenant := c.tenant(t)
	c.configure(t, named("one.example.com", "two.example.com")...)
	namespace := c.createNamespace(t, c.as("e2e-tenant")).Name

	for _, initializer := range []string{"one.example.com", "two.example.com"} {
		c.waitCurrent(t, namespace, initializer)
		eventually(t, "the tenant is told who is waited for", func(ctx context.Context) error {
			return refused(writeConfigMap(ctx, tenant, namespace), fmt.Sprintf("namespace %q", namespace), initializer)
		})
		if err := writeConfigMap(context.Background(), c.core, namespace); err != nil {
			t.Errorf("a holder of the verb initialize was refused: %v", err)
		}
		c.removeFirst(t, namespace)
	}
	c.waitReady(t, namespace)
	eventually(t, "the tenant writes", func(ctx context.Context) error { return writeConfigMap(ctx, tenant, namespace) })

	c.waitEvents(t, namespace, "InitializerRunning", "InitializerDone", "InitializerRunning", "InitializerDone", v1alpha1.ReasonInitialized)
	if out, err := c.kubectl("describe", "nsl", namespace); err != nil || !strings.Contains(out, "two.example.com") {
		t.Errorf("kubectl describe: %v\n%s", err, out)
	}
	if _, err := c.kubectl("delete", "namespace", namespace, "--timeout="+patience.String()); err != nil {
		t.Fatal(err)
	}
	c.waitNoRecord(t, namespace)
}

// waitEvents waits until the events on a namespace have these reasons, in this order. They are
// in the namespace default.
func (c *cluster) waitEvents(t *testing.T, namespace string, want ...string) []corev1.Event {
	t.Helper()
	var list *corev1.EventList
	eventually(t, "the events of namespace "+namespace, func(ctx context.Context) (err error) {
		list, err = c.core.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Namespace,involvedObject.name=" + namespace})
		if err != nil {
			return err
		}
		slices.SortFunc(list.Items, func(a, b corev1.Event) int { return int(revision(a.ResourceVersion) - revision(b.ResourceVersion)) })
		var reasons []string
		for _, event := range list.Items {
			reasons = append(reasons, event.Reason)
		}
		if !slices.Equal(reasons, want) {
			err = fmt.Errorf("their reasons are %q, want %q", reasons, want)
		}
		return err
	})
	return list.Items
}

func (c *cluster) waitNoRecord(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, "the record has left", func(ctx context.Context) error {
		record, err := c.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %v %w", record.Spec.Finalizers, errors.Join(err, errors.New("(no error)")))
	})
}

func (c *cluster) waitNoNamespace(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the namespace is gone", func(ctx context.Context) error {
		_, err := c.core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

// releaseParticipant drops a participant's name from a record, as an administrator.
func (c *cluster) releaseParticipant(t *testing.T, namespace string, participant v1alpha1.FinalizerName) {
	t.Helper()
	client := c.nsinit.NsinitV1alpha1().NamespaceLifecycles()
	eventually(t, "releasing the participant", func(ctx context.Context) error {
		record, err := client.Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if record.DeletionTimestamp == nil {
			return errors.New("the record is not being deleted")
		}
		record.Spec.Finalizers = slices.DeleteFunc(record.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == participant })
		_, err = client.Finalize(ctx, namespace, record, metav1.UpdateOptions{})
		return err
	})
}

// TestNoInitializers: without configurations a namespace opens at once.
func TestNoInitializers(t *testing.T) {
	c := connect(t)
	namespace := c.createNamespace(t, c.admin).Name
	c.waitReady(t, namespace)
	if c.isClosed(t, namespace) {
		t.Error("it is Ready and closed")
	}
}

// TestAdoption: namespaces from before nsinit get a record and stay open, and exempt ones
// get none.
func TestAdoption(t *testing.T) {
	c := connect(t)
	// The dev control plane makes this namespace before the controller runs, and the
	// exempt ones are there from the start.
	for _, name := range []string{"default", "kube-system", "kube-public", "nsinit-system"} {
		if _, err := c.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(context.Background(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the exempt namespace %s has a record: %v", name, err)
		}
		if c.isClosed(t, name) {
			t.Errorf("the exempt namespace %s is closed", name)
		}
	}
}

// TestFailure: a failing result is reported, and then the namespace is deleted.
func TestFailure(t *testing.T) {
	c := connect(t)
	c.configure(t, named("one.example.com")...)
	namespace := c.createNamespace(t, c.admin)
	record := c.waitCurrent(t, namespace.Name, "one.example.com")
	record.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "the team has no quota left"}
	eventually(t, "setting the result", func(ctx context.Context) error {
		_, err := c.nsinit.NsinitV1alpha1().NamespaceLifecycles().Initialize(ctx, record.Name, record, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			record = c.waitCurrent(t, namespace.Name, "one.example.com")
			record.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "the team has no quota left"}
		}
		return err
	})
	c.waitNoNamespace(t, namespace.Name)
	c.waitNoRecord(t, namespace.Name)
	eventually(t, "an event tells why", func(ctx context.Context) error {
		events, err := c.core.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + namespace.Name})
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

// TestParticipant: a participant of the termination holds the namespace until it has
// cleaned up, and a new namespace of the same name waits for it.
func TestParticipant(t *testing.T) {
	c := connect(t)
	c.configure(t, v1alpha1.RegisteredInitializer{Name: "openshift.com/origin", Finalizer: true})
	namespace := c.createNamespace(t, c.admin)
	c.waitCurrent(t, namespace.Name, "openshift.com/origin")
	live, err := c.core.CoreV1().Namespaces().Get(context.Background(), namespace.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(live.Spec.Finalizers, live.Finalizers); got != "[kubernetes] [nsinit.dev/lifecycle]" {
		t.Errorf("before the participant's turn the namespace's finalizers are %s", got)
	}
	if err := c.core.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var record *v1alpha1.NamespaceLifecycle
	eventually(t, "only the participant is left", func(ctx context.Context) (err error) {
		record, err = c.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace.Name, metav1.GetOptions{})
		if err == nil && fmt.Sprint(record.Spec.Finalizers) != "[openshift.com/origin]" {
			err = fmt.Errorf("finalizers are %v", record.Spec.Finalizers)
		}
		return err
	})
	if _, err := c.core.CoreV1().Namespaces().Get(context.Background(), namespace.Name, metav1.GetOptions{}); err != nil {
		t.Fatalf("the namespace did not wait for the participant: %v", err)
	}
	// As a person does it, through the aggregator.
	record.Spec.Finalizers = nil
	record.TypeMeta = metav1.TypeMeta{APIVersion: "nsinit.dev/v1alpha1", Kind: "NamespaceLifecycle"}
	body, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.kubectlInput(string(body), "replace", "--raw", "/apis/nsinit.dev/v1alpha1/namespacelifecycles/"+namespace.Name+"/finalize"); err != nil {
		t.Fatal(err)
	}
	c.waitNoRecord(t, namespace.Name)
	c.waitNoNamespace(t, namespace.Name)
}

// TestNameReuse: a namespace that is created again inherits nothing, neither completion
// nor what is pending.
func TestNameReuse(t *testing.T) {
	c := connect(t)
	tenant := c.tenant(t)
	c.configure(t, named("one.example.com")...)
	namespace := c.createNamespace(t, c.admin).Name
	c.waitCurrent(t, namespace, "one.example.com")
	c.removeFirst(t, namespace)
	c.waitReady(t, namespace)
	if _, err := c.kubectl("delete", "namespace", namespace, "--timeout="+patience.String()); err != nil {
		t.Fatal(err)
	}
	again, err := c.core.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new incarnation has a record of its own", func(ctx context.Context) error {
		record, err := c.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && (record.Spec.NamespaceUID != again.UID || record.Status.CurrentInitializer != "one.example.com") {
			err = fmt.Errorf("the record is of %s, current is %q", record.Spec.NamespaceUID, record.Status.CurrentInitializer)
		}
		return err
	})
	if err := refused(writeConfigMap(context.Background(), tenant, namespace)); err != nil {
		t.Error(err)
	}
	c.removeFirst(t, namespace)
	c.waitReady(t, namespace)
}

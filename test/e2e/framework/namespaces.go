/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// CreateNamespace creates a namespace as a user. When the test ends, LeaveLater leaves it.
func (c *Cluster) CreateNamespace(t *testing.T, config *rest.Config) *corev1.Namespace {
	t.Helper()
	namespace, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Name("ns")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.LeaveLater(t, namespace.Name)
	return namespace
}

// CreateHeld creates a namespace that stays closed until the test ends: no program acts as the initializer that it waits for.
func (c *Cluster) CreateHeld(t *testing.T, config *rest.Config) *corev1.Namespace {
	t.Helper()
	initializer := c.prefix + "hold.example.com"
	c.Configure(t, Initializers(initializer)...)
	namespace := c.CreateNamespace(t, config)
	c.WaitCurrent(t, namespace.Name, initializer)
	Eventually(t, "the namespace says what it waits for", func(ctx context.Context) (err error) {
		namespace, err = c.Core.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range namespace.Status.Conditions {
			if condition.Type == v1alpha1.ConditionInitializing && strings.Contains(condition.Message, initializer) {
				return nil
			}
		}
		return fmt.Errorf("conditions: %v", namespace.Status.Conditions)
	})
	return namespace
}

// Participant is the initializer that takes part in the deletion of the namespaces of CreateParticipated.
const Participant = "participant.example.com"

// CreateParticipated creates an open namespace in whose deletion Participant takes part. The test registers Participant.
func (c *Cluster) CreateParticipated(t *testing.T) string {
	t.Helper()
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, Participant)
	c.RemoveFirst(t, namespace)
	c.WaitReady(t, namespace)
	return namespace
}

// DeleteNamespace deletes a namespace, and does not wait until it is gone.
func (c *Cluster) DeleteNamespace(t *testing.T, namespace string) {
	t.Helper()
	if err := c.Core.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// LeaveLater opens a namespace when the test ends, or deletes it if it cannot be opened. An open one
// disturbs no other test, and its deletion would take four times as much CPU time as its creation.
func (c *Cluster) LeaveLater(t *testing.T, namespace string) {
	t.Cleanup(func() {
		ctx := context.Background()
		n, err := c.Core.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && n.DeletionTimestamp == nil && (!helper.IsClosed(n) || c.open(ctx, namespace) == nil) {
			return
		}
		_ = c.Core.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	})
}

// open ends the initialization of a namespace as an administrator.
func (c *Cluster) open(ctx context.Context, namespace string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		return c.initialize(ctx, namespace, func(lifecycle *v1alpha1.NamespaceLifecycle) error {
			if len(helper.Pending(lifecycle)) == 0 { // it was never initialized, or it failed
				return errors.New("no initializer is pending")
			}
			lifecycle.Spec.Initializers.Pending = nil
			return nil
		})
	})
}

// WaitReady waits until a namespace is open.
func (c *Cluster) WaitReady(t *testing.T, namespace string) {
	t.Helper()
	Eventually(t, "namespace "+namespace+" is open", func(ctx context.Context) error {
		n, err := c.Core.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && utilnamespaces.TrueCondition(n.Status.Conditions, v1alpha1.ConditionReady) == nil {
			err = fmt.Errorf("conditions: %v", n.Status.Conditions)
		}
		return err
	})
}

// WaitNoNamespace waits until a namespace is gone.
func (c *Cluster) WaitNoNamespace(t *testing.T, name string) {
	t.Helper()
	Eventually(t, "the namespace is gone", func(ctx context.Context) error {
		_, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

// IsClosed reports whether a namespace is closed.
func (c *Cluster) IsClosed(t *testing.T, namespace string) bool {
	t.Helper()
	n, err := c.Core.CoreV1().Namespaces().Get(context.Background(), namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, closed := n.Labels[v1alpha1.LabelInitializing]
	return closed
}

// condition returns a condition of a namespace in the form STATUS/REASON MESSAGE.
func (c *Cluster) condition(ctx context.Context, namespace string, kind corev1.NamespaceConditionType) (string, error) {
	n, err := c.Core.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == kind {
			return fmt.Sprintf("%s/%s %s", condition.Status, condition.Reason, condition.Message), nil
		}
	}
	return "", nil
}

// WaitCondition waits until a condition of a namespace contains all parts. Its form is STATUS/REASON MESSAGE.
func (c *Cluster) WaitCondition(t *testing.T, namespace string, kind corev1.NamespaceConditionType, parts ...string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("condition %s of namespace %s", kind, namespace), func(ctx context.Context) error {
		said, err := c.condition(ctx, namespace, kind)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if !strings.Contains(said, part) {
				return fmt.Errorf("%q is missing in: %s", part, said)
			}
		}
		return nil
	})
}

// WaitEvents waits until the events of a namespace have these reasons in this order. They are in the namespace default. On a busy machine,
// each turn lasts long enough to have events, and to stall: this counts only if it is wanted. The turn of nsinit itself does not count.
func (c *Cluster) WaitEvents(t *testing.T, namespace string, want ...string) []corev1.Event {
	t.Helper()
	slowTurn := []string{"InitializerRunning", "InitializerDone"}
	aboutTurns := slices.ContainsFunc(want, func(reason string) bool { return strings.HasPrefix(reason, "Initializer") })
	var list *corev1.EventList
	Eventually(t, "the events of namespace "+namespace, func(ctx context.Context) (err error) {
		list, err = c.Core.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Namespace,involvedObject.name=" + namespace})
		if err != nil {
			return err
		}
		slices.SortFunc(list.Items, func(a, b corev1.Event) int { return int(Revision(a.ResourceVersion) - Revision(b.ResourceVersion)) })
		list.Items = slices.DeleteFunc(list.Items, func(event corev1.Event) bool {
			return strings.HasPrefix(event.Message, fmt.Sprintf("Initializer %q", v1alpha1.InitializerLifecycle)) || !slices.Contains(want, event.Reason) &&
				(strings.HasSuffix(event.Reason, "Stalled") || !aboutTurns && slices.Contains(slowTurn, event.Reason))
		})
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

// Holder is a finalizer that no program removes.
const Holder = "e2e.example.com/hold"

// Hold sets the finalizer Holder on a namespace until Release or the end of the test.
func (c *Cluster) Hold(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	if _, err := c.Core.CoreV1().Namespaces().Patch(context.Background(), namespace.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["`+Holder+`"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Release(t, namespace.Name) })
}

// Release removes the finalizers of a namespace, if it exists.
func (c *Cluster) Release(t *testing.T, namespace string) {
	t.Helper()
	if _, err := c.Core.CoreV1().Namespaces().Patch(context.Background(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// WriteConfigMap creates a ConfigMap in a namespace.
func WriteConfigMap(ctx context.Context, client kubernetes.Interface, namespace string) error {
	_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
	return err
}

// WaitWrite waits until a user can write into a namespace that is open. kube-apiserver evaluates the gate with its cache of namespaces, which can
// be behind what it answers.
func WaitWrite(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	Eventually(t, "a user can write into namespace "+namespace, func(ctx context.Context) error { return WriteConfigMap(ctx, client, namespace) })
}

// WriteOnce creates a ConfigMap in a namespace as a user, and does not retry.
func WriteOnce(ctx context.Context, config *rest.Config, namespace string) error {
	return kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient().Post().Namespace(namespace).Resource("configmaps").
		Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}).MaxRetries(0).Do(ctx).Error()
}

// LabelNamespace sets or removes a label of a namespace: it takes KEY=VALUE or KEY-.
func (c *Cluster) LabelNamespace(t *testing.T, name, label string) {
	t.Helper()
	if out, err := c.Kubectl("label", "namespace", name, label); err != nil {
		t.Fatal(err, out)
	}
}

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
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// condition returns what a condition of a core namespace says, as STATUS/REASON MESSAGE.
func (c *cluster) condition(ctx context.Context, namespace string, kind corev1.NamespaceConditionType) (string, error) {
	n, err := c.core.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
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

// waitCondition waits until a condition of a core namespace says something.
func (c *cluster) waitCondition(t *testing.T, namespace string, kind corev1.NamespaceConditionType, parts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("condition %s of namespace %s", kind, namespace), func(ctx context.Context) error {
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

// TestIgnoreAtDeadline: an initializer that does not act is dropped at its deadline, and
// everybody is told. The next one has its turn.
func TestIgnoreAtDeadline(t *testing.T) {
	c := connect(t)
	ignore, seconds := v1alpha1.Ignore, int32(3)
	c.configure(t, v1alpha1.RegisteredInitializer{Name: "absent.example.com", FailurePolicy: &ignore, TimeoutSeconds: &seconds},
		v1alpha1.RegisteredInitializer{Name: "present.example.com"})
	namespace := c.createNamespace(t, c.admin).Name
	c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, `True/InitializersPending waiting for initializer "absent.example.com" (1 of 2) since `, " until ", "when it is skipped")
	record := c.waitCurrent(t, namespace, "present.example.com")
	entry := record.Status.Initializers[0]
	if entry.State != v1alpha1.InitializerSkipped || entry.EndTime.Sub(entry.StartTime.Time) < time.Duration(seconds)*time.Second ||
		entry.LastActor != "system:serviceaccount:nsinit-system:nsinit-controller-manager" || entry.Message != "skipped at its deadline, after 3s" {
		t.Errorf("its entry is %+v", entry)
	}
	c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, `"present.example.com" (2 of 2)`)
	if !c.isClosed(t, namespace) {
		t.Error("the gate is open")
	}
	c.removeFirst(t, namespace)
	c.waitReady(t, namespace)
	c.waitCondition(t, namespace, v1alpha1.ConditionReady, `True/Initialized every initializer is done, but for these, which were skipped: ["absent.example.com"]`)
	c.waitEvents(t, namespace, "InitializerRunning", "InitializerSkipped", "InitializerRunning", "InitializerDone", v1alpha1.ReasonInitialized)
	out, err := c.kubectl("describe", "nsl", namespace)
	for _, part := range []string{"Skipped", "skipped at its deadline, after 3s", "Done", "kubernetes-admin", "Start Time", "End Time", "Deadline"} {
		if !strings.Contains(out, part) {
			t.Errorf("kubectl describe does not tell %q: %v\n%s", part, err, out)
		}
	}
}

// TestFailAtDeadline: a configuration cannot begin with Fail, and takes it by an update. At
// the deadline the failure is told everywhere, and the namespace is deleted.
func TestFailAtDeadline(t *testing.T) {
	c := connect(t)
	fail, seconds := v1alpha1.Fail, int32(2)
	_, err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta:   metav1.ObjectMeta{Name: uniqueName("fail")},
		Initializers: []v1alpha1.RegisteredInitializer{{Name: "absent.example.com", FailurePolicy: &fail, TimeoutSeconds: &seconds}},
	}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "initializers[0].failurePolicy: Forbidden") {
		t.Fatalf("a new configuration with Fail: %v", err)
	}
	stored := c.configure(t, named("absent.example.com")...)
	if _, err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Patch(t.Context(), stored.Name, types.StrategicMergePatchType,
		[]byte(`{"initializers":[{"name":"absent.example.com","failurePolicy":"Fail","timeoutSeconds":2}]}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitInForce(t)
	namespace := c.createNamespace(t, c.admin)
	// A finalizer of somebody else's holds the namespace, so that the end can be looked at.
	c.hold(t, namespace)
	const message = `initializer "absent.example.com" failed: it was not done within 2 seconds, and its failurePolicy is Fail`
	c.waitCondition(t, namespace.Name, v1alpha1.ConditionInitializing, "True/InitializationFailed "+message+"; the namespace is deleted")
	eventually(t, "the namespace is being deleted", func(ctx context.Context) error {
		n, err := c.core.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if err == nil && n.DeletionTimestamp == nil {
			err = errors.New("it is not")
		}
		return err
	})
	if !c.isClosed(t, namespace.Name) {
		t.Error("the gate is open")
	}
	events := c.waitEvents(t, namespace.Name, "InitializerRunning", "InitializerFailed", v1alpha1.ReasonFailed)
	if !strings.Contains(events[2].Message, message) {
		t.Errorf("the event says %q", events[2].Message)
	}
	c.release(t, namespace.Name)
	c.waitNoNamespace(t, namespace.Name)
	c.waitNoRecord(t, namespace.Name)
}

const holder = "e2e.example.com/hold"

// hold puts a finalizer on a namespace, which stays until release.
func (c *cluster) hold(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	if _, err := c.core.CoreV1().Namespaces().Patch(context.Background(), namespace.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["`+holder+`"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.release(t, namespace.Name) })
}

func (c *cluster) release(t *testing.T, namespace string) {
	t.Helper()
	if _, err := c.core.CoreV1().Namespaces().Patch(context.Background(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// TestStalled: a turn that lasts for long is reported on the record, on the namespace and in
// an event, and the report ends with the turn.
func TestStalled(t *testing.T) {
	c := connect(t)
	c.configure(t, named("slow.example.com", "next.example.com")...)
	namespace := c.createNamespace(t, c.admin).Name
	c.waitCondition(t, namespace, v1alpha1.ConditionStalled, `True/TurnTooLong initializer "slow.example.com" has had its turn for longer than 10s, since `)
	if out, err := c.kubectl("wait", "--for=condition=Stalled", "nsl/"+namespace, "--timeout=60s"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	c.waitEvents(t, namespace, "InitializerRunning", "InitializerStalled")
	c.removeFirst(t, namespace)
	c.waitCondition(t, namespace, v1alpha1.ConditionStalled, "False/TurnEnded")
	if out, err := c.kubectl("wait", "--for=condition=Stalled=false", "nsl/"+namespace, "--timeout=60s"); err != nil {
		t.Errorf("%v %s", err, out)
	}
}

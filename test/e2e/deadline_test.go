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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestFailAtDeadline: a configuration cannot be created with Fail, but updated to it. At the deadline, the
// objects and an event report the failure, and the namespace is deleted.
func TestFailAtDeadline(t *testing.T) {
	c := framework.Share(t)
	fail, seconds := v1alpha1.Fail, int32(4)
	_, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta:   metav1.ObjectMeta{Name: framework.UniqueName("fail")},
		Initializers: []v1alpha1.RegisteredInitializer{{Name: "absent.example.com", FailurePolicy: &fail, TimeoutSeconds: &seconds}},
	}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "initializers[0].failurePolicy: Forbidden") {
		t.Fatalf("a new configuration with Fail: %v", err)
	}
	stored := c.Configure(t, framework.Initializers("absent.example.com")...)
	if _, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Patch(t.Context(), stored.Name, types.StrategicMergePatchType,
		[]byte(`{"initializers":[{"name":"absent.example.com","failurePolicy":"Fail","timeoutSeconds":4}]}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	namespace := c.CreateNamespace(t, c.Admin)
	// A finalizer of another program keeps the namespace, so that the test can read it at the end.
	c.Hold(t, namespace)
	const message = `initializer "absent.example.com" failed: it was not done within 4 seconds, and its failurePolicy is Fail`
	c.WaitCondition(t, namespace.Name, v1alpha1.ConditionInitializing, "True/InitializationFailed "+message+"; nsinit deletes the namespace")
	framework.Eventually(t, "the namespace is being deleted", func(ctx context.Context) error {
		n, err := c.Core.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if err == nil && n.DeletionTimestamp == nil {
			err = errors.New("it is not")
		}
		return err
	})
	if !c.IsClosed(t, namespace.Name) {
		t.Error("the gate is open")
	}
	events := c.WaitEvents(t, namespace.Name, "InitializerRunning", "InitializerFailed", v1alpha1.ReasonFailed)
	if !strings.Contains(events[2].Message, message) {
		t.Errorf("the event says %q", events[2].Message)
	}
	c.Release(t, namespace.Name)
	c.WaitNoNamespace(t, namespace.Name)
	c.WaitNoLifecycle(t, namespace.Name)
}

// TestStalled: a turn that takes long is reported in the NamespaceLifecycle, in the namespace and in
// an event. The report ends with the turn. A participant that takes long is reported, too, with what it last reported.
func TestStalled(t *testing.T) {
	c := framework.Share(t)
	const participant = "next.example.com"
	initializers := framework.Initializers("slow.example.com", participant)
	initializers[1].Finalizer = true
	c.Configure(t, initializers...)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCondition(t, namespace, v1alpha1.ConditionStalled, `True/TurnTooLong the turn of initializer "slow.example.com" has lasted since `)
	if out, err := c.Kubectl("wait", "--for=condition=Stalled", "nsl/"+namespace, "--timeout=60s"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	c.WaitEvents(t, namespace, "InitializerRunning", "InitializerStalled")
	// The next turn would be reported, too, if it lasted.
	c.RemoveFirst(t, namespace)
	c.RemoveFirst(t, namespace)
	c.WaitCondition(t, namespace, v1alpha1.ConditionStalled, "False/TurnEnded")
	if out, err := c.Kubectl("wait", "--for=condition=Stalled=false", "nsl/"+namespace, "--timeout=60s"); err != nil {
		t.Errorf("%v %s", err, out)
	}

	c.DeleteNamespace(t, namespace)
	c.WaitTerminating(t, namespace)
	report := fmt.Appendf(nil, `{"status":{"initializers":[{"name":%q,"message":"the zone is in use"}]}}`, participant)
	if _, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Patch(t.Context(), namespace, types.StrategicMergePatchType, report, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.WaitCondition(t, namespace, v1alpha1.ConditionStalled, fmt.Sprintf("True/CleanupTooLong waiting for participant %q since ", participant),
		": the zone is in use (", "kubectl nsinit finalize "+namespace+" PARTICIPANT")
	if out, err := c.Kubectl("get", "nsl", namespace, "--output=wide"); err != nil || !strings.Contains(out, participant) || !strings.Contains(out, "the zone is in use (") {
		t.Errorf("%v %s", err, out)
	}
	if out, _, _ := c.Plugin(t, "status", namespace); !strings.Contains(out, "s so far") || !strings.Contains(out, "the zone is in use (") {
		t.Error(out)
	}
	measures := func(metric string) {
		t.Helper()
		framework.Eventually(t, metric, func(ctx context.Context) error {
			text, err := framework.Scrape(ctx, c.DirectController(t))
			if err == nil && !strings.Contains(string(text), fmt.Sprintf("%s{participant=%q}", metric, participant)) {
				err = errors.New("it is not measured")
			}
			return err
		})
	}
	measures("nsinit_lifecycle_participant_age_seconds")
	c.ReleaseParticipant(t, namespace, participant)
	c.WaitNoNamespace(t, namespace)
	measures("nsinit_lifecycle_participant_duration_seconds_count")
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// TestOrdered: of several entries with one name, only the first has an effect, with its own deadline and selection.
func TestOrdered(t *testing.T) {
	pods, jobs := initializerOf("a.example.com", "pods"), initializerOf("a.example.com", "jobs")
	jobs.TimeoutSeconds = new(int32(5))
	configurations := []*v1alpha1.InitializerConfiguration{configurationOf("2", jobs), configurationOf("1", pods)}
	if stamp, _ := policiesFor(t, "jobs", configurations, exemptionsOf(nil)); stamp != nil {
		t.Error("the second entry has an effect")
	}
	if byName(configurations)["a.example.com"] != &configurations[1].Initializers[0] {
		t.Error("the deadline is that of the second entry")
	}
}

// TestMany: kube-apiserver evaluates as many initializers and conditions as can be registered.
func TestMany(t *testing.T) {
	var many []v1alpha1.Initializer
	for i := range 128 {
		initializer := initializerOf(fmt.Sprintf("i%d.example.com", i), "pods", "jobs")
		initializer.MatchConditions = []v1alpha1.MatchCondition{{Name: "a", Expression: `creator == ""`}, {Name: "b", Expression: `creatorGroups.all(g, g != "x")`}}
		many = append(many, initializer)
	}
	for _, resource := range []string{"pods", "jobs"} {
		policy, _ := policiesFor(t, resource, []*v1alpha1.InitializerConfiguration{configurationOf("c", many...)}, exemptionsOf(nil))
		names := map[string]bool{}
		for _, v := range policy.Spec.Variables {
			names[v.Name] = true
		}
		if !names["selected3_i3_example_com_0"] || !names["selected3_i3_example_com_1"] {
			t.Errorf("%s: a condition has no variable: %v", resource, slices.Sorted(maps.Keys(names)))
		}
		object := runtime.Object(podOf())
		if resource == "jobs" {
			object = jobOf(false, nil, nil)
		}
		got := mutate(t, policy, request{object: object, namespace: namespaceOf("x", nil, nil), user: "alice"})
		if waiting := helper.PendingOfObject(got.(metav1.Object)); len(waiting) != 128 || waiting[127] != "i127.example.com" {
			t.Errorf("%s: %v", resource, waiting)
		}
	}
}

// TestHold: kube-apiserver holds what the configurations say, except for one that it does not compile. It has to evaluate a probe that was
// written after it evaluated one that was written after the policies. A policy that was deleted is not in force.
func TestHold(t *testing.T) {
	bad := initializerOf("bad.example.com", "pods")
	bad.MatchConditions = []v1alpha1.MatchCondition{{Name: "a", Expression: "bad"}}
	configurations := []*v1alpha1.InitializerConfiguration{
		configurationOf("1", initializerOf("a.example.com", "pods")), configurationOf("2", bad), configurationOf("3", initializerOf("c.example.com", "pods"))}
	guards := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: installation.ObjectsGuard}}
	guards.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	client, status := fake.NewClientset(
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: installation.ObjectsGuard, UID: "guard"}},
		guards,
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: installation.ObjectsRelease}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: installation.ObjectsRelease}},
	), nsinitfake.NewClientset(configurations[0], configurations[1], configurations[2])
	shows, lags, removed, fails := "", "", false, false
	var written []string // the policies in the order in which they are written
	client.PrependReactor("patch", "mutatingadmissionpolicies", func(action clienttesting.Action) (bool, runtime.Object, error) {
		written = append(written, action.(clienttesting.PatchAction).GetName())
		body := string(action.(clienttesting.PatchAction).GetPatch())
		if action.(clienttesting.PatchAction).GetName() == probe {
			next := regexp.MustCompile(v1alpha1.PendingPrefix + `v\w+\.\d`).FindString(body)
			if fails && strings.HasSuffix(next, ".2") {
				return true, nil, errors.New("connection refused")
			}
			shows = next
		}
		if before, _, bad := strings.Cut(body, "(bad\\n)"); bad {
			_, variables, _ := strings.Cut(before, `"variables"`)
			variable := strings.Count(variables, `"expression"`) - 1
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "MutatingAdmissionPolicy"}, "nsinit-objects-pods",
				field.ErrorList{field.Invalid(field.NewPath("spec", "variables").Index(variable).Child("expression"), "bad", "undeclared reference")})
		}
		return false, nil, nil
	})
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: cmp.Or(lags, shows)}}
		if removed {
			if err := client.Tracker().Delete(admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"), "", prefix+"pods"); err != nil {
				t.Error(err)
			}
		}
		return true, pod, nil
	})
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	exempt := exemptionsOf(map[string]string{"namespaces": "default"})
	s := &session{
		Controller: New(Dependencies{Core: client, Nsinit: status, Clock: clock, Namespace: own}), guard: "guard", queue: workers.NewQueue("test", clock, time.Second, time.Second),
		stores: map[string]cache.SharedIndexInformer{}, rejected: map[string]string{},
	}
	defer s.queue.ShutDown()
	// reconcile returns the conditions, and which policies were written.
	reconcile := func() (conditions, writes []string) {
		t.Helper()
		written = nil
		if err := s.reconcilePolicies(t.Context(), configurations, exempt); err != nil {
			t.Fatal(err)
		}
		for _, c := range configurations {
			live, err := status.NsinitV1alpha1().InitializerConfigurations().Get(t.Context(), c.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			condition := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionInForce)
			conditions = append(conditions, string(condition.Status)+" "+condition.Reason)
			*c = *live
		}
		return conditions, written
	}
	waits, holds := []string{"False NotEvaluated", "False Rejected", "False NotEvaluated"}, []string{"True Verified", "False Rejected", "True Verified"}
	each := []string{prefix + "pods", prefix + "jobs-others", probe}
	for i, want := range []struct{ conditions, writes []string }{
		{waits, append([]string{prefix + "pods"}, each...)}, {waits, []string{probe}}, {holds, nil}, {holds, nil}, // the first one was refused
	} {
		if conditions, writes := reconcile(); !slices.Equal(conditions, want.conditions) || !slices.Equal(writes, want.writes) {
			t.Errorf("%d: %q after the writes %q", i, conditions, writes)
		}
	}
	clock.Step(recheck)
	removed = true
	if conditions, writes := reconcile(); !slices.Equal(conditions, waits) || len(writes) > 0 {
		t.Errorf("removed: %q after the writes %q", conditions, writes)
	}
	removed, lags = false, gateOf("old")
	if _, writes := reconcile(); !slices.Equal(writes, each) {
		t.Errorf("the writes %q", writes)
	}
	for range 12 {
		if conditions, writes := reconcile(); !slices.Equal(conditions, waits) || len(writes) > 0 {
			t.Errorf("%q after the writes %q", conditions, writes)
		}
	}
	if s.delay != maxRetryDelay {
		t.Errorf("the next try is after %s", s.delay)
	}
	lags = ""
	_, _ = reconcile()
	if conditions, _ := reconcile(); !slices.Equal(conditions, holds) {
		t.Error(conditions)
	}
	for _, mode := range []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit, admissionregistrationv1.Deny} {
		guards.Spec.ValidationActions[0] = mode
		if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Update(t.Context(), guards, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		clock.Step(recheck)
		if err := s.reconcilePolicies(t.Context(), configurations, exempt); (err != nil) != (mode != admissionregistrationv1.Deny) {
			t.Errorf("%s: %v", mode, err)
		}
	}
	// Another client adds a condition to the policy, and the next write of the probe fails.
	stamps := client.AdmissionregistrationV1().MutatingAdmissionPolicies()
	stamp, err := stamps.Get(t.Context(), prefix+"pods", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stamp.Generation++
	stamp.Spec.MatchConditions = append(stamp.Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"})
	if _, err := stamps.Update(t.Context(), stamp, metav1.UpdateOptions{FieldManager: "another"}); err != nil {
		t.Fatal(err)
	}
	clock.Step(recheck)
	client.ClearActions()
	if conditions, writes := reconcile(); !slices.Equal(conditions, waits) || !slices.Equal(writes, each) {
		t.Errorf("changed: %q after the writes %q", conditions, writes)
	}
	var deleted []string
	for _, action := range client.Actions() {
		if action, ok := action.(clienttesting.DeleteAction); ok && action.GetName() == prefix+"pods" {
			deleted = append(deleted, action.GetResource().Resource)
		}
	}
	if want := []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}; !slices.Equal(deleted, want) {
		t.Errorf("deleted %q, not %q", deleted, want)
	}
	fails = true
	if err := s.reconcilePolicies(t.Context(), configurations, exempt); err == nil {
		t.Error("the probe was written")
	}
	fails = false
	_, _ = reconcile()
	_, _ = reconcile()
	if conditions, _ := reconcile(); !slices.Equal(conditions, holds) {
		t.Errorf("after an error: %q", conditions)
	}
	s.guard = "former"
	clock.Step(recheck)
	if err := s.reconcilePolicies(t.Context(), configurations, exempt); err == nil {
		t.Error("the guard is another one")
	}
	if err := s.notInstalled(t.Context()); err != nil {
		t.Error(err)
	}
	for _, c := range configurations {
		live, err := status.NsinitV1alpha1().InitializerConfigurations().Get(t.Context(), c.Name, metav1.GetOptions{})
		if err != nil || meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionInForce).Reason != reasonNotInstalled {
			t.Errorf("%v %v", live.Status, err)
		}
	}
}

// TestSameInput: what the controller writes does not wake it.
func TestSameInput(t *testing.T) {
	c := configurationOf("c", initializerOf("a.example.com"))
	c.Status.Initializers = []v1alpha1.RegisteredInitializerStatus{{Name: "a.example.com"}}
	written, reported, changed := c.DeepCopy(), c.DeepCopy(), c.DeepCopy()
	setInForce(written, reasonError, "first", time.Unix(1, 0))
	reported.Status.Initializers[0].ReportTime, changed.Generation = &metav1.MicroTime{Time: time.Unix(1, 0)}, 2
	if !sameInput(c, written) || sameInput(c, reported) || sameInput(c, changed) || sameInput(nil, c) {
		t.Error("wrong")
	}
}

// TestEnqueue: pods and Jobs that do not wait are ignored.
func TestEnqueue(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	s := &session{queue: workers.NewQueue("test", clock, time.Second, time.Second)}
	defer s.queue.ShutDown()
	s.enqueue("pods", podOf(), podOf())
	s.enqueue("pods", nil, podOf("x/y"))
	if s.queue.Len() != 0 {
		t.Error("an object that does not wait is in the queue")
	}
	s.enqueue("pods", podOf(gateOf("a.example.com")), podOf())
	if s.queue.Len() != 1 {
		t.Error("an object that was released is not in the queue")
	}
}

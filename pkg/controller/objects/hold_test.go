/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
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
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: installation.ObjectsGuard, UID: "guard"}}, guards,
	), nsinitfake.NewClientset(configurations[0], configurations[1], configurations[2])
	shows, lags, removed, fails := "", "", false, false
	r := newRegistry()
	r.store(policies, prefix+"jobs", nil, json.RawMessage(`{}`)) // of an earlier session
	r.refuse = func(name string, spec admissionregistrationv1.MutatingAdmissionPolicySpec) error {
		if name == probe {
			next := regexp.MustCompile(`v\w+\.\d`).FindString(spec.Mutations[0].JSONPatch.Expression)
			if fails && strings.HasSuffix(next, ".2") {
				return errors.New("connection refused")
			}
			shows = next
		}
		if i := slices.IndexFunc(spec.Variables, func(v admissionregistrationv1.Variable) bool { return strings.Contains(v.Expression, "(bad\n)") }); i >= 0 {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "MutatingAdmissionPolicy"}, name,
				field.ErrorList{field.Invalid(field.NewPath("spec", "variables").Index(i).Child("expression"), "bad", "undeclared reference")})
		}
		return nil
	}
	client.PrependReactor("create", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lease := action.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease).DeepCopy()
		if lease.Name != probe || action.GetNamespace() != own || len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) == 0 {
			t.Errorf("%s/%s is created", action.GetNamespace(), lease.Name)
		}
		lease.Spec.HolderIdentity = new(cmp.Or(lags, shows))
		if removed {
			delete(r.objects, policies+"/"+prefix+"pods")
		}
		return true, lease, nil
	})
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	exempt := exemptionsOf(map[string]string{"namespaces": "default"})
	ended := false
	s := &session{
		Controller: New(Dependencies{Core: client, Nsinit: status, Metadata: r.client(), Clock: clock, Namespace: own}), guard: "guard", end: func() { ended = true },
		queue: workers.NewQueue("test", clock, time.Second, time.Second), stores: map[string]cache.SharedIndexInformer{},
	}
	defer s.queue.ShutDown()
	// reconcile returns the conditions, and which policies were written.
	reconcile := func() (conditions, writes []string) {
		t.Helper()
		r.policies = nil
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
		return conditions, r.policies
	}
	waits, holds := []string{"False NotEvaluated", "False Rejected", "False NotEvaluated"}, []string{"True Verified", "False Rejected", "True Verified"}
	each := []string{prefix + "pods", prefix + "jobs-others", probe}
	for i, want := range []struct{ conditions, writes []string }{
		{waits, append([]string{prefix + "pods"}, each...)}, {waits, []string{probe}}, {holds, nil}, {holds, nil}, // the first one was refused
	} {
		r.store(policies, "another", nil, json.RawMessage(fmt.Sprintf(`{"changed":%d}`, i)))
		if conditions, writes := reconcile(); !slices.Equal(conditions, want.conditions) || !slices.Equal(writes, want.writes) {
			t.Errorf("%d: %q after the writes %q", i, conditions, writes)
		}
		if i == 0 {
			clock.Step(verifyPeriod)
			waitQueued(t, s.queue)
		}
	}
	if r.objects[policies+"/"+prefix+"jobs"] != nil || r.objects[bindings+"/"+prefix+"jobs"] == nil {
		t.Error("a policy that must not exist does, or its binding does not")
	}
	for key, object := range r.objects {
		if strings.HasPrefix(object.Name, prefix) && object.Name != installation.ObjectsRelease && (len(object.OwnerReferences) != 1 || object.OwnerReferences[0].UID != "guard") {
			t.Errorf("%s belongs to %v", key, object.OwnerReferences)
		}
	}
	clock.Step(recheck)
	removed = true
	if conditions, writes := reconcile(); !slices.Equal(conditions, waits) || len(writes) > 0 {
		t.Errorf("removed: %q after the writes %q", conditions, writes)
	}
	removed, lags = false, "old"
	if _, writes := reconcile(); !slices.Equal(writes, each) {
		t.Errorf("the writes %q", writes)
	}
	for range 12 { // the delay doubles
		if conditions, writes := reconcile(); !slices.Equal(conditions, waits) || len(writes) > 0 {
			t.Errorf("%q after the writes %q", conditions, writes)
		}
	}
	if s.delay != maxRetryDelay {
		t.Errorf("the next try is after %s", s.delay)
	}
	lags = ""
	if _, _ = reconcile(); s.delay != verifyPeriod {
		t.Errorf("after progress, the next try is after %s", s.delay)
	}
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
	for name, change := range map[string]func(){
		"no release":               func() { delete(r.objects, policies+"/"+installation.ObjectsRelease) },
		"no binding of release":    func() { delete(r.objects, bindings+"/"+installation.ObjectsRelease) },
		"a guard of one namespace": func() { guards.Spec.MatchResources = &admissionregistrationv1.MatchResources{} },
	} {
		clock.Step(recheck)
		change()
		if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Update(t.Context(), guards, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := s.reconcilePolicies(t.Context(), configurations, exempt); err == nil || ended {
			t.Errorf("%s: no error", name)
		}
		r.store(policies, installation.ObjectsRelease, nil, nil)
		r.store(bindings, installation.ObjectsRelease, nil, nil)
		guards.Spec.MatchResources = nil
	}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Update(t.Context(), guards, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Another client adds a condition to the policy, and again while nsinit writes the others. It also changes a binding.
	want := r.policy(t, prefix+"pods")
	r.add(t, prefix+"pods")
	r.store(bindings, prefix+"pods", nil, json.RawMessage(`{"policyName":"another"}`))
	r.after = func(name string) {
		if r.after = func(string) {}; name != prefix+"pods" {
			t.Errorf("%s was written first", name)
		}
		r.add(t, prefix+"pods")
	}
	for i, writes := range [][]string{each, each, {probe}, nil} {
		clock.Step(recheck)
		r.bindings = nil
		conditions, written := reconcile()
		if !slices.Equal(conditions, waits) && i < 3 || !slices.Equal(written, writes) || slices.Contains(r.bindings, prefix+"pods") != (i < 2) {
			t.Errorf("changed, %d: %q after the writes %q, %q", i, conditions, written, r.bindings)
		}
	}
	if diff := gocmp.Diff(want, r.policy(t, prefix+"pods")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if spec := string(r.objects[bindings+"/"+prefix+"pods"].spec); !strings.Contains(spec, `"`+prefix+`pods"`) {
		t.Errorf("the binding is %s", spec)
	}
	// Another client removes the owner, so the policy would outlive the component.
	r.objects[policies+"/"+prefix+"pods"].OwnerReferences = nil
	for i, writes := range [][]string{each, {probe}, nil} {
		clock.Step(recheck)
		if _, written := reconcile(); !slices.Equal(written, writes) {
			t.Errorf("without owner, %d: the writes %q", i, written)
		}
	}
	if len(r.objects[policies+"/"+prefix+"pods"].OwnerReferences) == 0 {
		t.Error("the policy does not depend on the guard")
	}
	// A write of the probe fails, so all policies are written again.
	r.add(t, prefix+"pods")
	clock.Step(recheck)
	_, _ = reconcile()
	fails = true
	if err := s.reconcilePolicies(t.Context(), configurations, exempt); err == nil {
		t.Error("the probe was written")
	}
	fails = false
	if _, writes := reconcile(); !slices.Equal(writes, each) {
		t.Errorf("after an error: the writes %q", writes)
	}
	_, _ = reconcile()
	if conditions, _ := reconcile(); !slices.Equal(conditions, holds) || ended {
		t.Errorf("after an error: %q", conditions)
	}
	s.delay, exempt = maxRetryDelay, exemptionsOf(map[string]string{"namespaces": "another"})
	if _, writes := reconcile(); !slices.Equal(writes, each) || s.delay != verifyPeriod {
		t.Errorf("another version: the writes %q, the next try is after %s", writes, s.delay)
	}
	r.unsupported = true
	if conditions, _ := reconcile(); conditions[0] != "False NotSupported" || ended {
		t.Errorf("not supported: %q", conditions)
	}
	r.unsupported = false
	s.guard = "former"
	clock.Step(recheck)
	if err := s.reconcilePolicies(t.Context(), configurations, exempt); err == nil || !ended {
		t.Errorf("the guard is another one: %v", err)
	}
	ended = false
	if err := s.reconcilePolicies(t.Context(), configurations, nil); err == nil || !ended {
		t.Errorf("the guard is another one, and the list of exemptions does not exist: %v", err)
	}
	if err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), installation.ObjectsGuard, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.rejected.Clear()
	s.guard, ended = "", false
	if conditions, writes := reconcile(); !slices.Equal(conditions, slices.Repeat([]string{"False NotInstalled"}, 3)) || len(writes) > 0 || ended {
		t.Errorf("not installed: %q after the writes %q", conditions, writes)
	}
}

// waitQueued waits until a key is in a queue, and takes it out.
func waitQueued(t *testing.T, queue workers.Queue) {
	t.Helper()
	if err := utilwait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return queue.Len() == 1, nil }); err != nil {
		t.Fatal(err)
	}
	key, _ := queue.Get()
	queue.Done(key)
}

// TestPeriod: a session reviews the policies in each period.
func TestPeriod(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	s := &session{Controller: New(Dependencies{Core: fake.NewClientset(), Clock: clock}), queue: workers.NewQueue("test", clock, time.Second, time.Second)}
	defer s.queue.ShutDown()
	if err := s.reconcilePolicies(t.Context(), nil, exemptionsOf(nil)); err != nil {
		t.Error(err)
	}
	clock.Step(period)
	waitQueued(t, s.queue)
}

// TestMessages: InForce names the initializers for which no object waits yet, and those without an effect.
func TestMessages(t *testing.T) {
	unserved := initializerOf("a.example.com", "pods")
	unserved.Activation = new(v1alpha1.ActivationWhenServed)
	first, second := configurationOf("1", unserved, initializerOf("b.example.com")), configurationOf("2", initializerOf("b.example.com"), initializerOf("c.example.com"))
	status, clock := nsinitfake.NewClientset(first, second), clocktesting.NewFakeClock(time.Unix(1000, 0))
	s := &session{Controller: New(Dependencies{Nsinit: status, Clock: clock})}
	waiting := map[string][]string{"pods/n/a": {"c.example.com", "b.example.com"}, "pods/n/b": {"a.example.com"}}
	for _, test := range []struct {
		c             *v1alpha1.InitializerConfiguration
		says, saysNot string
		pending       int32
	}{
		{first, "no object waits for a.example.com before", "have no effect", 2},
		{second, "the entries of b.example.com have no effect", "before a program reports", 1},
	} {
		if err := s.writeStatus(t.Context(), test.c, reasonVerified, "", byName([]*v1alpha1.InitializerConfiguration{first, second}), waiting); err != nil {
			t.Fatal(err)
		}
		live, err := status.NsinitV1alpha1().InitializerConfigurations().Get(t.Context(), test.c.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		message := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionInForce).Message
		if !strings.Contains(message, test.says) || strings.Contains(message, test.saysNot) || live.Status.PendingObjects != test.pending {
			t.Errorf("%s: %d, %s", test.c.Name, live.Status.PendingObjects, message)
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

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/google/go-cmp/cmp"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// asInitializer gives a user what the ClusterRole nsinit:initializer gives, and the right
// to act under some names.
func asInitializer(core *testserver.CoreAPI, user string, names ...string) {
	rules := []testserver.Rule{
		{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles", Name: "*"},
		{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles/initialize", Name: "*"},
		{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles/finalize", Name: "*"},
		{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles/status", Name: "*"},
		{Verb: "initialize", Group: "", Resource: "namespaces", Name: "*"},
	}
	for _, name := range names {
		rules = append(rules,
			testserver.Rule{Verb: "initialize", Group: "nsinit.dev", Resource: "initializers", Name: name},
			testserver.Rule{Verb: "finalize", Group: "nsinit.dev", Resource: "initializers", Name: name})
	}
	core.Allow(user, rules...)
}

// attempt is what a user tries to change in a record, and whether that is allowed.
type attempt struct {
	user    string
	change  func(*v1alpha1.NamespaceLifecycle)
	allowed bool
}

// checkAuthority makes each attempt by each verb of an endpoint.
func checkAuthority(t *testing.T, server *testserver.Server, endpoint string, attempts map[string]attempt) {
	t.Helper()
	for name, attempt := range attempts {
		for _, verb := range testserver.Verbs(endpoint) {
			t.Run(fmt.Sprintf("%s by %s", name, verb), func(t *testing.T) {
				old := server.MustLifecycle(t, uniqueName())
				sent := old.DeepCopy()
				attempt.change(sent)
				err := testserver.Write(server.Client(t, attempt.user).NsinitV1alpha1().RESTClient(), verb, "namespacelifecycles", endpoint, old, sent)
				switch {
				case attempt.allowed && err != nil:
					t.Errorf("refused: %v", err)
				case !attempt.allowed && !apierrors.IsForbidden(err):
					t.Errorf("want a refusal, got %v", err)
				}
			})
		}
	}
}

// TestInitializeAuthority shows who may remove what from the pending list, by PUT and by
// each kind of patch.
func TestInitializeAuthority(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	asInitializer(server.Core, "hook-a", "a.example.com")
	asInitializer(server.Core, "hook-b", "b.example.com")
	asInitializer(server.Core, "hook-ab", "a.example.com", "b.example.com")
	server.Core.Allow("named-only",
		testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles/initialize", Name: "*"},
		testserver.Rule{Verb: "initialize", Group: "nsinit.dev", Resource: "initializers", Name: "a.example.com"})

	remove := func(n int) func(*v1alpha1.NamespaceLifecycle) {
		return func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Initializers.Pending = r.Spec.Initializers.Pending[n:] }
	}
	fail := func(r *v1alpha1.NamespaceLifecycle) {
		r.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}
	}
	asInitializer(server.Core, "opener")
	server.Core.Allow("opener", append(server.Core.Rules("opener"), testserver.Rule{Verb: "open", Group: "", Resource: "namespaces", Name: "*"})...)
	skip := func(names ...string) func(*v1alpha1.NamespaceLifecycle) {
		return func(r *v1alpha1.NamespaceLifecycle) {
			remove(len(names))(r)
			r.Spec.Skipped = names
		}
	}
	tests := map[string]attempt{
		"a skips itself":            {"hook-a", skip("a.example.com"), true},
		"b skips a":                 {"hook-b", skip("a.example.com"), false},
		"a skips b, too":            {"hook-a", skip("a.example.com", "b.example.com"), false},
		"the privileged skips a":    {"opener", skip("a.example.com"), true},
		"the privileged skips both": {"opener", skip("a.example.com", "b.example.com"), true},
		"the privileged removes a as if it were done": {"opener", remove(1), false},
		"the privileged removes b as if it were done": {"opener", func(r *v1alpha1.NamespaceLifecycle) { remove(2)(r); r.Spec.Skipped = []string{"a.example.com"} }, false},
		"the privileged fails the namespace":          {"opener", fail, true},
		"a removes itself":                            {"hook-a", remove(1), true},
		"b removes a":                                 {"hook-b", remove(1), false},
		"a removes itself and b":                      {"hook-a", remove(2), false},
		"one that is both removes both":               {"hook-ab", remove(2), true},
		"a fails":                                     {"hook-a", fail, true},
		"b fails in place of a":                       {"hook-b", fail, false},
		"without the verb initialize on namespaces":   {"named-only", remove(1), false},
		"nothing changes":                             {"hook-b", func(*v1alpha1.NamespaceLifecycle) {}, true},
	}
	checkAuthority(t, server, "initialize", tests)
}

// TestInitializeToTheEnd walks through an initialization as initializers see it.
func TestInitializeToTheEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	asInitializer(server.Core, "hook-a", "a.example.com")
	asInitializer(server.Core, "hook-b", "b.example.com")
	record := server.MustLifecycle(t, "walk")
	if got := record.Spec.Plan[1].Configuration.Name; got != "two" {
		t.Errorf("the plan does not name its configuration: %q", got)
	}

	stale := record.DeepCopy()
	record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
	record, err := server.Client(t, "hook-a").NsinitV1alpha1().NamespaceLifecycles().Initialize(ctx, "walk", record, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if currentOf(record) != "b.example.com" || record.Status.Phase != v1alpha1.LifecycleInitializing {
		t.Errorf("after a: phase %q, current %q", record.Status.Phase, currentOf(record))
	}
	if entry := record.Status.Initializers[0]; entry.State != v1alpha1.InitializerDone || entry.LastActor != "hook-a" {
		t.Errorf("after a: its entry is %+v", entry)
	}

	// A replica of a that comes too late.
	stale.Spec.Initializers.Pending = stale.Spec.Initializers.Pending[1:]
	if _, err := server.Client(t, "hook-a").NsinitV1alpha1().NamespaceLifecycles().Initialize(ctx, "walk", stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a second removal from what was read before: %v, want a conflict", err)
	}
	resurrect := []byte(`{"spec":{"initializers":{"pending":[{"name":"a.example.com"},{"name":"b.example.com"}]}}}`)
	patch := func(user string, body []byte) error {
		_, err := server.Client(t, user).NsinitV1alpha1().NamespaceLifecycles().Patch(ctx, "walk", types.MergePatchType, body, metav1.PatchOptions{}, "initialize")
		return err
	}
	if err := patch("admin", resurrect); !apierrors.IsInvalid(err) {
		t.Errorf("a patch that brings a back: %v, want it to be invalid", err)
	}
	if err := patch("hook-b", []byte(`{"metadata":{"uid":"another"},"spec":{"initializers":{"pending":[]}}}`)); err == nil {
		t.Error("a patch with the UID of another incarnation was taken")
	}

	if err := patch("hook-b", []byte(`{"spec":{"initializers":{"pending":[]}}}`)); err != nil {
		t.Fatal(err)
	}
	record, err = server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().Get(ctx, "walk", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if record.Spec.Initializers != nil || record.Status.Phase != v1alpha1.LifecycleActive || currentOf(record) != "" {
		t.Errorf("at the end: initializers %v, phase %q, current %q", record.Spec.Initializers, record.Status.Phase, currentOf(record))
	}
	if err := patch("hook-b", []byte(`{"spec":{"initializers":{"pending":[]}}}`)); err != nil {
		t.Errorf("emptying an empty list: %v", err)
	}
	if err := patch("admin", resurrect); !apierrors.IsInvalid(err) {
		t.Errorf("a patch that begins again: %v, want it to be invalid", err)
	}
}

// TestServerSideApplyRemovesNothing: an applied list without others' entries does not
// remove them.
func TestServerSideApplyRemovesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	asInitializer(server.Core, "hook-a", "a.example.com")
	server.MustLifecycle(t, "applied")
	body := []byte(`{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespaceLifecycle","metadata":{"name":"applied"},"spec":{"initializers":{"pending":[]}}}`)
	record, err := server.Client(t, "hook-a").NsinitV1alpha1().NamespaceLifecycles().
		Patch(ctx, "applied", types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "hook-a"}, "initialize")
	if err != nil {
		t.Fatal(err)
	}
	if len(record.Spec.Initializers.Pending) != 2 {
		t.Errorf("pending is %v", record.Spec.Initializers.Pending)
	}
}

// TestStatusAuthority shows who may write which part of status.
func TestStatusAuthority(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	asInitializer(server.Core, "hook-a", "a.example.com")
	asInitializer(server.Core, "hook-b", "b.example.com")
	message := func(i int) func(*v1alpha1.NamespaceLifecycle) {
		return func(r *v1alpha1.NamespaceLifecycle) { r.Status.Initializers[i].Message = "working" }
	}
	tests := map[string]attempt{
		"a's own message":                 {"hook-a", message(0), true},
		"b's own message before its turn": {"hook-b", message(1), true},
		"b's message by a":                {"hook-a", message(1), false},
		"stalledTime by a":                {"hook-a", stalled, false},
		"stalledTime by the privileged":   {"admin", stalled, true},
		"conditions by a":                 {"hook-a", byHand, false},
		"conditions by the privileged":    {"admin", byHand, true},
	}
	checkAuthority(t, server, "status", tests)
}

func stalled(r *v1alpha1.NamespaceLifecycle) {
	r.Status.Initializers[0].StalledTime = new(metav1.NowMicro())
}

func byHand(r *v1alpha1.NamespaceLifecycle) {
	r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionOpenedByHand, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonLabelRemoved, LastTransitionTime: metav1.Now()})
}

// TestStalledStays: an initializer that reports a message without stalledTime, or without a value, does not remove it. The condition
// Stalled follows from it, until the turn ends.
func TestStalledStays(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	asInitializer(server.Core, "hook-a", "a.example.com")
	record := server.MustLifecycle(t, uniqueName())
	stalled(record)
	if _, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().UpdateStatus(t.Context(), record, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := server.Client(t, "hook-a").NsinitV1alpha1().NamespaceLifecycles()
	for _, test := range []struct {
		kind  types.PatchType
		patch string
	}{
		{types.MergePatchType, `{"status":{"initializers":[{"name":"a.example.com","message":"one"}]}}`},
		{types.StrategicMergePatchType, `{"status":{"initializers":[{"name":"a.example.com","message":"two","stalledTime":null}]}}`},
		{types.ApplyPatchType, `{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespaceLifecycle","status":{"initializers":[{"name":"a.example.com","message":"three"}]}}`},
	} {
		options := metav1.PatchOptions{FieldManager: "hook-a"}
		if test.kind == types.ApplyPatchType {
			options.Force = new(true)
		}
		updated, err := client.Patch(t.Context(), record.Name, test.kind, []byte(test.patch), options, "status")
		if err != nil {
			t.Fatalf("%s: %v", test.kind, err)
		}
		if entry := updated.Status.Initializers[0]; entry.StalledTime == nil || entry.Message == "" || !meta.IsStatusConditionTrue(updated.Status.Conditions, v1alpha1.ConditionStalled) {
			t.Errorf("%s: the entry is %+v, and the conditions are %+v", test.kind, entry, updated.Status.Conditions)
		}
	}
	updated, err := client.Patch(t.Context(), record.Name, types.MergePatchType, []byte(`{"spec":{"initializers":{"pending":[{"name":"b.example.com"}]}}}`), metav1.PatchOptions{}, "initialize")
	if err != nil {
		t.Fatal(err)
	}
	if updated.Status.Initializers[0].StalledTime != nil || !meta.IsStatusConditionFalse(updated.Status.Conditions, v1alpha1.ConditionStalled) {
		t.Errorf("after the turn: %+v", updated.Status)
	}
}

// TestStatusDerivesConditions: the report of the current initializer is part of the derived conditions, which neither an
// initializer nor a user with the verb open can write.
func TestStatusDerivesConditions(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	asInitializer(server.Core, "hook-a", "a.example.com")
	for _, user := range []string{"hook-a", "admin"} {
		record := server.MustLifecycle(t, uniqueName())
		want := map[string]metav1.Condition{}
		for i := range record.Status.Conditions {
			condition := &record.Status.Conditions[i]
			want[condition.Type] = *condition
			condition.Status, condition.Reason, condition.Message, condition.LastTransitionTime = "Unknown", "Lie", "lie", metav1.Time{}
		}
		record.Status.Initializers[0].Message = "no quota"
		updated, err := server.Client(t, user).NsinitV1alpha1().NamespaceLifecycles().UpdateStatus(t.Context(), record, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range updated.Status.Conditions {
			expected := want[got.Type]
			expected.Message += ": no quota"
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Errorf("%s by %s (-want +got):\n%s", got.Type, user, diff)
			}
		}
	}
}

// TestCreateLifecycle shows what the admission plugin makes of a new record.
func TestCreateLifecycle(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.Start(t)
	configuration := testserver.Configuration("one", "a.example.com", "openshift.com/origin")
	configuration.Initializers[1].Finalizer = true
	server.MustConfigure(t, configuration)
	server.Core.Allow("creator", testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles", Name: "*"})
	withPlan := func(r *v1alpha1.NamespaceLifecycle) {
		r.Spec.Plan = []v1alpha1.PlannedInitializer{{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "x.example.com"}, Configuration: &v1alpha1.ConfigurationReference{Name: "y"}}}
	}
	closed := func(r *v1alpha1.NamespaceLifecycle) {
		r.Spec.Initializers = &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{}}
	}
	tests := map[string]struct {
		user    string
		prepare func(*testserver.CoreAPI, string)
		change  func(*v1alpha1.NamespaceLifecycle)
		pending string
		phase   v1alpha1.LifecyclePhase
		refused func(error) bool
	}{
		"an initializing namespace": {user: "creator", pending: "lifecycle.nsinit.dev a.example.com openshift.com/origin", phase: v1alpha1.LifecycleInitializing},
		"an open namespace": {user: "creator", phase: v1alpha1.LifecycleActive,
			prepare: func(core *testserver.CoreAPI, name string) { core.SetNamespace(testserver.Namespace(name, "u", false)) }},
		"no namespace": {user: "creator", refused: apierrors.IsNotFound,
			prepare: func(core *testserver.CoreAPI, name string) { core.DeleteNamespace(name) }},
		"another incarnation": {user: "creator", refused: apierrors.IsConflict,
			change: func(r *v1alpha1.NamespaceLifecycle) { r.Spec.NamespaceUID = "former" }},
		"a namespace that is being deleted": {user: "creator", refused: apierrors.IsForbidden,
			prepare: func(core *testserver.CoreAPI, name string) {
				namespace := testserver.Namespace(name, "u", true)
				now := metav1.Now()
				namespace.DeletionTimestamp = &now
				core.SetNamespace(namespace)
			}},
		"a plan of one's own":      {user: "creator", change: withPlan, refused: apierrors.IsForbidden},
		"nothing pending":          {user: "creator", change: closed, refused: apierrors.IsForbidden},
		"a plan by the privileged": {user: "admin", change: withPlan, phase: v1alpha1.LifecycleActive},
		"the core API does not answer": {user: "creator", refused: apierrors.IsServiceUnavailable,
			prepare: func(core *testserver.CoreAPI, _ string) { core.FailNamespaces(true) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			record := testserver.Lifecycle(uniqueName(), "u")
			server.Core.SetNamespace(testserver.Namespace(record.Name, "u", true))
			if test.prepare != nil {
				test.prepare(server.Core, record.Name)
				defer server.Core.FailNamespaces(false)
			}
			if test.change != nil {
				test.change(record)
			}
			created, err := server.Client(t, test.user).NsinitV1alpha1().NamespaceLifecycles().Create(ctx, record, metav1.CreateOptions{})
			if test.refused != nil {
				if !test.refused(err) {
					t.Fatalf("want another refusal, got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var pending []string
			if created.Spec.Initializers != nil {
				for _, entry := range created.Spec.Initializers.Pending {
					pending = append(pending, entry.Name)
				}
			}
			if got := strings.Join(pending, " "); got != test.pending || created.Status.Phase != test.phase {
				t.Errorf("pending %q, phase %q", got, created.Status.Phase)
			}
			want := "[kubernetes]"
			if test.pending != "" {
				want = "[openshift.com/origin kubernetes]"
			}
			if got := fmt.Sprint(created.Spec.Finalizers); got != want {
				t.Errorf("spec.finalizers is %s, want %s", got, want)
			}
		})
	}
}

// TestSkippedRules: only what the same request removes can be skipped, and what was skipped
// stays so.
func TestSkippedRules(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("three", "a.example.com", "b.example.com", "c.example.com"))
	server.MustLifecycle(t, "skips")
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	patch := func(body string) (*v1alpha1.NamespaceLifecycle, error) {
		return client.Patch(ctx, "skips", types.MergePatchType, []byte(body), metav1.PatchOptions{}, "initialize")
	}
	const bc = `"initializers":{"pending":[{"name":"b.example.com"},{"name":"c.example.com"}]}`
	for what, body := range map[string]string{
		"one that still waits":     `{"spec":{"skipped":["a.example.com"]}}`,
		"one that is not first":    `{"spec":{"skipped":["b.example.com"],` + bc + `}}`,
		"one that was not planned": `{"spec":{"skipped":["x.example.com"],` + bc + `}}`,
	} {
		if _, err := patch(body); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.skipped[0]") {
			t.Errorf("skipping %s: %v, want it to be invalid", what, err)
		}
	}
	record, err := patch(`{"spec":{"skipped":["a.example.com"],` + bc + `}}`)
	if err != nil {
		t.Fatal(err)
	}
	began := record.Status.Initializers[1].StartTime
	for _, body := range []string{
		`{"spec":{"skipped":[]}}`,
		`{"spec":{"skipped":null},"status":{"initializers":[{"name":"b.example.com","startTime":"2001-01-01T00:00:00.000000Z"}]}}`,
	} {
		if record, err = patch(body); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(record.Spec.Skipped) != "[a.example.com]" || !record.Status.Initializers[1].StartTime.Equal(began) {
			t.Errorf("after %s: skipped %v, since %s, which was %s", body, record.Spec.Skipped, record.Status.Initializers[1].StartTime, began)
		}
	}
	if _, err := patch(`{"spec":{"skipped":["b.example.com"],"initializers":{"pending":[{"name":"c.example.com"}]}}}`); err != nil {
		t.Fatal(err)
	}
	if record, err = patch(`{"spec":{"initializers":{"pending":[]}}}`); err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, entry := range record.Status.Initializers {
		states = append(states, string(entry.State))
	}
	if fmt.Sprint(record.Spec.Skipped) != "[a.example.com b.example.com]" || fmt.Sprint(states) != "[Skipped Skipped Done]" {
		t.Errorf("at the end: skipped %v, states %v", record.Spec.Skipped, states)
	}
	if _, err := patch(`{"spec":{"skipped":["a.example.com","b.example.com","c.example.com"]}}`); !apierrors.IsInvalid(err) {
		t.Errorf("skipping one that is done: %v, want it to be invalid", err)
	}
}

// TestAuthorityUnknown: if the authorizer does not answer, the client has to retry, and nothing changes.
func TestAuthorityUnknown(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", "a.example.com"))
	asInitializer(server.Core, "hook-a", "a.example.com")
	record := server.MustLifecycle(t, "unknown")
	server.Core.FailReviews("initialize")
	client := server.Client(t, "hook-a").NsinitV1alpha1().RESTClient()
	remove := func() error {
		return client.Patch(types.MergePatchType).Resource("namespacelifecycles").Name(record.Name).SubResource("initialize").
			Body([]byte(`{"spec":{"initializers":{"pending":[]}}}`)).MaxRetries(0).Do(t.Context()).Error()
	}
	if err := remove(); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), `cannot check whether user "hook-a" has verb "initialize"`) {
		t.Errorf("%v, want an error that clients retry", err)
	}
	server.Core.FailReviews("")
	if err := remove(); err != nil {
		t.Error(err)
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	nsinitinformers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
	"github.com/nsinit/nsinit/sdk/util/cached"
)

// fixture is a controller on fake clients. Its caches hold what the test puts there.
type fixture struct {
	*Controller
	core   *corefake.Clientset
	nsinit *nsinitfake.Clientset
	events *record.FakeRecorder
	cache  func(*corev1.Namespace, *v1alpha1.NamespaceLifecycle)
}

// newFixture returns a controller. The live objects are what the API servers hold.
func newFixture(t *testing.T, liveNamespace *corev1.Namespace, liveLifecycle *v1alpha1.NamespaceLifecycle) *fixture {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	coreObjects := []runtime.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: "nsinit-exemptions"},
		Data:       map[string]string{installation.KeyNamespaces: "kube-system\nexempt\n", installation.KeyNamePrefixes: "tool-\n", installation.KeyUsers: "operator\n"},
	}}
	var nsinitObjects []runtime.Object
	if liveNamespace != nil {
		coreObjects = append(coreObjects, liveNamespace)
	}
	if liveLifecycle != nil {
		nsinitObjects = append(nsinitObjects, liveLifecycle)
	}
	core, nsinit := corefake.NewClientset(coreObjects...), nsinitfake.NewClientset(nsinitObjects...)
	exempt := exemptions.New(core, "nsinit-system")
	coreFactory := informers.NewSharedInformerFactory(core, 0)
	events := record.NewFakeRecorder(10)
	controller, err := New(Dependencies{
		Core: core, Nsinit: nsinit, Exemptions: exempt, Events: events, Metrics: NewMetrics(),
		Namespaces: coreFactory.Core().V1().Namespaces(),
		Informers:  nsinitinformers.NewSharedInformerFactory(nsinit, 0),
		Clock:      testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Controller: controller, core: core, nsinit: nsinit, events: events}
	f.cache = func(n *corev1.Namespace, r *v1alpha1.NamespaceLifecycle) {
		if n != nil {
			slim, err := cached.ControlledNamespaces(n)
			if err = errors.Join(err, controller.Namespaces.Informer().GetStore().Add(slim)); err != nil {
				t.Fatal(err)
			}
		}
		if r != nil {
			if err := controller.Lifecycles.Informer().GetStore().Add(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := make(chan struct{})
	exempt.OnChange(sync.OnceFunc(func() { close(read) }))
	go func() { _ = exempt.Run(ctx) }()
	<-read                                             // before there are names, which the controller enqueues when the list changes
	eventually(t, "the list is watched", func() bool { // the fake client loses what happens before
		return slices.ContainsFunc(core.Actions(), func(action clienttesting.Action) bool { return action.GetVerb() == "watch" })
	})
	f.cache(liveNamespace, liveLifecycle)
	return f
}

// reconcile returns only the error.
func (f *fixture) reconcile(ctx context.Context, name string) error {
	_, err := f.Controller.reconcile(ctx, name)
	return err
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !holds() {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("it never came true that %s", what)
		}
	}
}

// writes returns what was written, as "verb resource/subresource".
func (f *fixture) writes() []string {
	var all []string
	for _, action := range append(f.core.Actions(), f.nsinit.Actions()...) {
		if slices.Contains([]string{"create", "update", "patch", "delete"}, action.GetVerb()) {
			text := action.GetVerb() + " " + action.GetResource().Resource
			if action.GetSubresource() != "" {
				text += "/" + action.GetSubresource()
			}
			if deletion, ok := action.(clienttesting.DeleteActionImpl); ok {
				text += " uid=" + string(*deletion.DeleteOptions.Preconditions.UID)
			}
			all = append(all, text)
		}
	}
	return all
}

func TestReconcileWrites(t *testing.T) {
	tests := map[string]struct {
		namespace *corev1.Namespace
		lifecycle *v1alpha1.NamespaceLifecycle
		want      []string
	}{
		"creates a lifecycle":         {namespace(closed), nil, []string{"create namespacelifecycles"}},
		"opens the gate in one write": {namespace(closed), aLifecycle(), []string{"patch namespaces/status"}},
		"reports who is waited for":   {namespace(closed), aLifecycle(pending("a.example.com"), since(aWhile)), []string{"patch namespaces/status"}},
		"secures the namespace, then leaves the list": {namespace(closed), aLifecycle(pending(v1alpha1.InitializerLifecycle), participant),
			[]string{"create namespaces/finalize", "update namespacelifecycles/initialize"}},
		"secures a namespace whose finalizers were emptied": {namespace(closed, withFinalizers()), aLifecycle(pending(v1alpha1.InitializerLifecycle), participant),
			[]string{"create namespaces/finalize", "update namespacelifecycles/initialize"}},
		"does not secure it twice": {namespace(closed, secured),
			aLifecycle(pending(v1alpha1.InitializerLifecycle), participant), []string{"update namespacelifecycles/initialize"}},
		"reports a failure, then deletes the namespace": {namespace(closed), aLifecycle(pending("a.example.com"), failed),
			[]string{"patch namespaces/status", "delete namespaces uid=new"}},
		"deletes a former lifecycle by its UID": {namespace(closed), aLifecycle(former), []string{"delete namespacelifecycles uid=lifecycle"}},
		"says who holds a former lifecycle":     {namespace(closed), aLifecycle(former, leaving, held("p.example.com")), []string{"patch namespaces/status"}},
		"says who holds a terminating namespace": {namespace(deleting, emptied), aLifecycle(leaving, held("p.example.com")),
			[]string{"patch namespaces/status"}},
		"withdraws Ready in one write":           {namespace(ready, deleting), aLifecycle(leaving), []string{"patch namespaces/status"}},
		"withdraws Ready without a lifecycle":    {namespace(ready, deleting), nil, []string{"patch namespaces/status"}},
		"withdraws no Ready that was never said": {namespace(deleting), aLifecycle(leaving), nil},
		"writes nothing to what any write would remove": {namespace(ready, deleting, withFinalizers(), func(n *corev1.Namespace) { n.UID = "newer" }), aLifecycle(former, leaving, held("p.example.com")),
			[]string{"create namespaces/finalize"}},
		"ends the initialization of what was opened by hand": {namespace(opener("alice")), aLifecycle(pending("a.example.com", "b.example.com")),
			[]string{"update namespacelifecycles/status", "update namespacelifecycles/initialize"}},
		"secures what was opened by hand": {namespace(opener("alice")), aLifecycle(pending(v1alpha1.InitializerLifecycle, "a.example.com"), participant),
			[]string{"create namespaces/finalize", "update namespacelifecycles/status", "update namespacelifecycles/initialize"}},
		"ends an initialization that it has reported": {namespace(opener("alice")), aLifecycle(pending("a.example.com"), func(r *v1alpha1.NamespaceLifecycle) {
			openedHand(r)
			r.Status.Conditions[0].Reason = v1alpha1.ReasonLabelRemoved
			r.Status.Conditions[0].Message = `user "alice" removed the label nsinit.dev/initializing before every initializer was done; skipped: ["a.example.com"]`
		}), []string{"update namespacelifecycles/initialize"}},
		"releases a lifecycle":              {namespace(deleting, withFinalizers()), aLifecycle(leaving), []string{"update namespacelifecycles/finalize"}},
		"releases a namespace":              {namespace(deleting, emptied), nil, []string{"create namespaces/finalize"}},
		"restores emptied finalizers":       {namespace(deleting, withFinalizers()), nil, []string{"create namespaces/finalize"}},
		"does nothing to an open namespace": {namespace(func(n *corev1.Namespace) { said := opened(aLifecycle()); said.apply(n, time.Now()) }), aLifecycle(), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.namespace, test.lifecycle)
			if err := f.reconcile(context.Background(), "ns"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, f.writes()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestWithdrawReadyWithoutServer: a namespace that is being deleted is not ready, although the
// lifecycle cannot be read.
func TestWithdrawReadyWithoutServer(t *testing.T) {
	f := newFixture(t, namespace(ready, deleting), aLifecycle())
	f.nsinit.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("the server is down")
	})
	if err := f.reconcile(context.Background(), "ns"); err != nil {
		t.Fatal(err)
	}
	if got, want := f.condition(t, v1alpha1.ConditionReady), "Ready=False Terminating the namespace is being deleted"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := f.condition(t, v1alpha1.ConditionInitializing), "Initializing=False Initialized "+serverMessage; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestExemptNamespacesAreDeleted: what nsinit said of a namespace before it was exempt is
// withdrawn, and what others say stays.
func TestExemptNamespacesAreDeleted(t *testing.T) {
	for reason, want := range map[string]int{v1alpha1.ReasonInitialized: 1, v1alpha1.ReasonAdopted: 1, v1alpha1.ReasonOpenedByHand: 1, "Foreign": 0} {
		exempt := namespace(ready, deleting, func(n *corev1.Namespace) { n.Name = "exempt" })
		for i := range exempt.Status.Conditions {
			exempt.Status.Conditions[i].Reason = reason
		}
		f := newFixture(t, exempt, nil)
		if err := f.reconcile(context.Background(), "exempt"); err != nil {
			t.Fatal(err)
		}
		if writes := f.writes(); len(writes) != want {
			t.Errorf("%s: written: %v", reason, writes)
		}
	}
}

// TestOpenedByHand: the lifecycle keeps who opened the namespace and who was skipped.
func TestOpenedByHand(t *testing.T) {
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		who       string
	}{
		"a user":                {namespace(opener("alice")), `user "alice"`},
		"an odd user":           {namespace(opener("a\x1b\u202eb")), `user "a\x1b\u202eb"`},
		"the user is not known": {namespace(), "a user (see nsinit-guard/gate-opened in the audit log of kube-apiserver)"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.namespace, aLifecycle(pending(v1alpha1.InitializerLifecycle, "a.example.com", "b.example.com")))
			if err := f.reconcile(context.Background(), "ns"); err != nil {
				t.Fatal(err)
			}
			lifecycle, err := f.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(context.Background(), "ns", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := test.who + ` removed the label nsinit.dev/initializing before every initializer was done; skipped: ["a.example.com" "b.example.com"]`
			if got := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionOpenedByHand); got == nil || got.Status != metav1.ConditionTrue || got.Message != want {
				t.Errorf("the lifecycle has the condition %+v, want %q", got, want)
			}
			if diff := cmp.Diff([]string{"a.example.com", "b.example.com"}, lifecycle.Spec.Skipped); diff != "" || lifecycle.Spec.Initializers != nil {
				t.Errorf("skipped (-want +got):\n%s, pending %+v", diff, lifecycle.Spec.Initializers)
			}
			close(f.events.Events)
			if got := <-f.events.Events; got != "Warning OpenedByHand The namespace was opened by hand: "+want {
				t.Errorf("event %q", got)
			}
		})
	}
}

// TestOpensOnlyWhatItRead: the cache would have a namespace opened that has changed since. The write names the version that
// the cache has, so that the server refuses it.
func TestOpensOnlyWhatItRead(t *testing.T) {
	for name, live := range map[string]*corev1.Namespace{
		"the namespace is being deleted": namespace(closed, deleting),
		"it is the next of its name":     namespace(closed, func(n *corev1.Namespace) { n.UID = "next" }),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, live, aLifecycle())
			f.core.PrependReactor("patch", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if sent := action.(clienttesting.PatchAction).GetPatch(); !strings.Contains(string(sent), `"resourceVersion":"cached"`) {
					return false, nil, nil
				}
				return true, nil, apierrors.NewConflict(corev1.Resource("namespaces"), "ns", errors.New("it was modified"))
			})
			f.cache(namespace(closed, func(n *corev1.Namespace) { n.ResourceVersion = "cached" }), aLifecycle())
			if err := f.reconcile(context.Background(), "ns"); !apierrors.IsConflict(err) {
				t.Errorf("the error is %v", err)
			}
			stored, err := f.core.CoreV1().Namespaces().Get(context.Background(), "ns", metav1.GetOptions{})
			if err != nil || !helper.IsClosed(stored) {
				t.Errorf("the gate was opened: %+v, %v", stored, err)
			}
		})
	}
}

// TestOpenGate checks an opened namespace.
func TestOpenGate(t *testing.T) {
	f := newFixture(t, namespace(closed, func(n *corev1.Namespace) {
		n.Labels["team"] = "a"
		n.Status.Conditions = []corev1.NamespaceCondition{{Type: "Foreign", Status: corev1.ConditionTrue}}
	}), aLifecycle())
	f.cache(namespace(closed), aLifecycle()) // the cache does not have what tenants write
	if err := f.reconcile(context.Background(), "ns"); err != nil {
		t.Fatal(err)
	}
	live, err := f.core.CoreV1().Namespaces().Get(context.Background(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if helper.IsClosed(live) || live.Labels["team"] != "a" {
		t.Errorf("labels are %v", live.Labels)
	}
	said := map[corev1.NamespaceConditionType]corev1.ConditionStatus{}
	for _, condition := range live.Status.Conditions {
		said[condition.Type] = condition.Status
	}
	want := map[corev1.NamespaceConditionType]corev1.ConditionStatus{"Foreign": "True", "Initializing": "False", "Ready": "True"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if event := <-f.events.Events; event != "Normal Initialized The namespace is open: "+serverMessage {
		t.Errorf("event %q", event)
	}
}

// TestFinalizersLost: a namespace whose finalizers were lost is secured before it opens, and keeps what is not in the cache.
func TestFinalizersLost(t *testing.T) {
	f := newFixture(t, namespace(closed, func(n *corev1.Namespace) {
		n.Labels["team"], n.Annotations = "a", map[string]string{"note": "b"}
		n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "o"}}
	}), aLifecycle(holder))
	for _, want := range []string{"create namespaces/finalize", "patch namespaces/status"} {
		if err := f.reconcile(t.Context(), "ns"); err != nil {
			t.Fatal(err)
		}
		live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if writes := f.writes(); writes[len(writes)-1] != want || !slices.Equal(live.Finalizers, []string{v1alpha1.NamespaceFinalizer, v1alpha1.ContentFinalizer}) {
			t.Errorf("written: %v; finalizers: %q", writes, live.Finalizers)
		}
		if live.Labels["team"] != "a" || live.Annotations["note"] != "b" || len(live.OwnerReferences) != 1 {
			t.Errorf("metadata was lost: %+v", live.ObjectMeta)
		}
		f.cache(live, aLifecycle(holder))
	}
}

// TestKeptLabel: a policy or a webhook of the cluster puts the label back, which is an error with the next step.
func TestKeptLabel(t *testing.T) {
	f := newFixture(t, namespace(closed), aLifecycle())
	f.core.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, namespace(closed), nil
	})
	if err := f.reconcile(context.Background(), "ns"); err == nil || !strings.Contains(err.Error(), "check the admission policies and webhooks") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"patch namespaces/status"}, f.writes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestConflictOpensNothing: a namespace that changed since it was read is read again.
func TestConflictOpensNothing(t *testing.T) {
	f := newFixture(t, namespace(closed), aLifecycle())
	f.core.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(corev1.Resource("namespaces"), "ns", errors.New("changed"))
	})
	if err := f.reconcile(context.Background(), "ns"); !apierrors.IsConflict(errors.Unwrap(err)) {
		t.Errorf("got %v, want a conflict", err)
	}
	if len(f.events.Events) != 0 {
		t.Errorf("an opening was announced: %q", <-f.events.Events)
	}
}

// refuse lets every creation of a lifecycle fail.
func (f *fixture) refuse(refusal func() error) {
	f.nsinit.PrependReactor("create", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal() })
}

// TestRefusedLifecycle: the tenant of a closed namespace reads why nothing goes on, and what
// only means that there is nothing to do is no error.
func TestRefusedLifecycle(t *testing.T) {
	terminating := apierrors.NewForbidden(v1alpha1.Resource("namespacelifecycles"), "ns", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	unavailable := apierrors.NewServiceUnavailable("the configurations cannot be read")
	tests := map[string]struct {
		namespace *corev1.Namespace
		refusal   error
		wantErr   bool
		want      string
	}{
		"unavailable": {namespace(closed), unavailable, true,
			"Initializing=True LifecycleNotCreated nsinit cannot determine which initializers the namespace needs, and retries: the configurations cannot be read"},
		"unavailable, the namespace is open": {namespace(), unavailable, true, ""},
		"another incarnation":                {namespace(closed), apierrors.NewConflict(v1alpha1.Resource("namespacelifecycles"), "ns", errors.New("another UID")), true, ""},
		"it exists":                          {namespace(closed), apierrors.NewAlreadyExists(v1alpha1.Resource("namespacelifecycles"), "ns"), true, ""},
		"the namespace is going":             {namespace(closed), terminating, false, ""},
		"the namespace is gone":              {namespace(closed), apierrors.NewNotFound(corev1.Resource("namespaces"), "ns"), false, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.namespace, nil)
			f.refuse(func() error { return test.refusal })
			if err := f.reconcile(context.Background(), "ns"); (err != nil) != test.wantErr {
				t.Errorf("error %v, want one: %t", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, f.condition(t, v1alpha1.ConditionInitializing)); diff != "" {
				t.Errorf("the condition (-want +got):\n%s", diff)
			}
			if !test.wantErr { // what brings the name back otherwise is the error
				f.Clock.(*testingclock.FakeClock).Step(cacheDelay)
				eventually(t, "the name is re-queued", func() bool { return f.queue.Len() == 1 })
			}
		})
	}
}

// TestLifecycleNotCached: while the cache does not show a lifecycle that exists, its namespace goes on from
// what is read live, and the name is re-queued without an event.
func TestLifecycleNotCached(t *testing.T) {
	tests := map[string]struct {
		namespace *corev1.Namespace
		lifecycle *v1alpha1.NamespaceLifecycle
		want      string
		closed    bool
	}{
		"an initializer is pending": {namespace(closed), aLifecycle(pending("a"), since(aWhile)), "Initializing=True InitializersPending " + serverMessage, true},
		"nothing is pending":        {namespace(closed), aLifecycle(), "Initializing=False Initialized", false},
		"the namespace is held":     {namespace(deleting, emptied), aLifecycle(leaving), "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.namespace, test.lifecycle)
			if err := f.Lifecycles.Informer().GetStore().Delete(test.lifecycle); err != nil {
				t.Fatal(err)
			}
			if err := f.handle(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			if got := f.condition(t, v1alpha1.ConditionInitializing); !strings.HasPrefix(got, test.want) {
				t.Errorf("the condition is %q, want %q", got, test.want)
			}
			live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if helper.IsClosed(live) != test.closed {
				t.Errorf("closed: %t", helper.IsClosed(live))
			}
			f.Clock.(*testingclock.FakeClock).Step(cacheDelay)
			eventually(t, "the name is re-queued", func() bool { return f.queue.Len() == 1 })
		})
	}
}

// condition returns a condition of the live namespace, or "".
func (f *fixture) condition(t *testing.T, kind corev1.NamespaceConditionType) string {
	t.Helper()
	live, err := f.core.CoreV1().Namespaces().Get(context.Background(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range live.Status.Conditions {
		if c.Type == kind {
			return fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

// TestRefusalsDoNotChaseThemselves: the report of a refusal does not bring on the next try,
// even where the server words each refusal in another way.
func TestRefusalsDoNotChaseThemselves(t *testing.T) {
	f := newFixture(t, namespace(closed), nil)
	refusals := 0
	f.refuse(func() error {
		refusals++
		return apierrors.NewServiceUnavailable(fmt.Sprintf("refusal %d", refusals))
	})
	before := namespace(closed)
	for range 3 {
		_ = f.reconcile(context.Background(), "ns")
		after, err := f.core.CoreV1().Namespaces().Get(context.Background(), "ns", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		after.ResourceVersion = fmt.Sprint(refusals + 1) // the fake clientset keeps the first
		f.namespaceUpdated(before, after)
		before = after
	}
	if refusals != 3 || f.queue.Len() != 0 {
		t.Errorf("after %d refusals %d keys are queued", refusals, f.queue.Len())
	}
	for name, change := range map[string]namespaceOption{
		"a resync":             func(*corev1.Namespace) {},
		"it was opened":        func(n *corev1.Namespace) { n.ResourceVersion, n.Labels = "9", nil },
		"it was deleted":       func(n *corev1.Namespace) { n.ResourceVersion = "9"; deleting(n) },
		"it was created again": func(n *corev1.Namespace) { n.ResourceVersion, n.UID = "9", "newer" },
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			change(after)
			f.namespaceUpdated(before, after)
			if f.queue.Len() != 1 {
				t.Fatal("the name is not queued")
			}
			key, _ := f.queue.Get()
			f.queue.Done(key)
		})
	}
}

// TestPendingNamespaces: the gauge follows the namespaces that are closed.
func TestPendingNamespaces(t *testing.T) {
	f := newFixture(t, nil, nil)
	registry := metrics.NewKubeRegistry()
	if err := registry.CustomRegister(NewCollector(f.namespaces, f.lifecycles, f.Clock)); err != nil {
		t.Fatal(err)
	}
	store := f.Namespaces.Informer().GetStore()
	apply := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string, options ...namespaceOption) *corev1.Namespace {
		n := namespace(options...)
		n.Name = name
		return n
	}
	want := func(count int) {
		t.Helper()
		expected := fmt.Sprintf(`# HELP nsinit_lifecycle_pending_namespaces [ALPHA] Number of closed namespaces, as the leader sees them.
# TYPE nsinit_lifecycle_pending_namespaces gauge
nsinit_lifecycle_pending_namespaces %d
`, count)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(expected), "nsinit_lifecycle_pending_namespaces"); err != nil {
			t.Error(err)
		}
	}
	apply(store.Add(named("a", closed)))
	apply(store.Add(named("b", closed)))
	apply(store.Add(named("c")))
	want(2)
	apply(store.Update(named("a")))
	want(1)
	apply(store.Delete(named("b", closed)))
	want(0)
}

// TestServersThatKeepNothing: where a policy or a webhook undoes what nsinit writes, that is
// an error, and not success.
func TestServersThatKeepNothing(t *testing.T) {
	t.Run("the label", func(t *testing.T) {
		f := newFixture(t, namespace(closed), aLifecycle())
		f.core.PrependReactor("*", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, namespace(closed), nil })
		if err := f.reconcile(context.Background(), "ns"); err == nil {
			t.Error("the gate passes for open")
		}
		if len(f.events.Events) != 0 {
			t.Errorf("an opening was announced: %q", <-f.events.Events)
		}
	})
	t.Run("the finalizer", func(t *testing.T) {
		f := newFixture(t, namespace(closed), aLifecycle(pending(v1alpha1.InitializerLifecycle), participant))
		f.core.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, namespace(closed), nil })
		if err := f.reconcile(context.Background(), "ns"); err == nil {
			t.Error("the namespace passes for secured")
		}
		if diff := cmp.Diff([]string{"create namespaces/finalize"}, f.writes()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestApiGoneIsNotLifecycleGone: while the aggregated API is not registered, everything is
// answered with 404, and no namespace may be released because of that.
func TestApiGoneIsNotLifecycleGone(t *testing.T) {
	f := newFixture(t, namespace(deleting, emptied), nil)
	f.nsinit.PrependReactor("get", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewGenericServerResponse(404, "get", v1alpha1.Resource("namespacelifecycles"), "ns", "404 page not found", 0, true)
	})
	if err := f.reconcile(context.Background(), "ns"); err == nil {
		t.Error("no error")
	}
	if writes := f.writes(); len(writes) != 0 {
		t.Errorf("written: %v", writes)
	}
}

// TestExemptedLater: a namespace that was closed when it became exempt opens all the same.
func TestExemptedLater(t *testing.T) {
	late, itsLifecycle := namespace(closed), aLifecycle()
	late.Name, itsLifecycle.Name = "exempt", "exempt"
	f := newFixture(t, late, itsLifecycle)
	if err := f.reconcile(context.Background(), "exempt"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"patch namespaces/status"}, f.writes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExemptedWithParticipants: nsinit's finalizer leaves a namespace that became exempt
// after it was put there, or it could never be deleted.
func TestExemptedWithParticipants(t *testing.T) {
	late := namespace(deleting, emptied)
	late.Name = "exempt"
	f := newFixture(t, late, nil)
	if err := f.reconcile(context.Background(), "exempt"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"create namespaces/finalize"}, f.writes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExemptByCreator: a namespace that was not stamped, because its creator is exempt, gets a NamespaceLifecycle without a plan,
// as one that is older than nsinit. Its generateName must have the prefix, too.
func TestExemptByCreator(t *testing.T) {
	for name, generateName := range map[string]string{"ns": "", "tool-x": "forged-"} {
		open := namespace()
		open.Name, open.GenerateName = name, generateName
		f := newFixture(t, open, nil)
		if err := f.reconcile(context.Background(), name); err != nil {
			t.Fatal(err)
		}
		lifecycle, err := f.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(context.Background(), name, metav1.GetOptions{})
		if err != nil || len(lifecycle.Spec.Plan) != 0 {
			t.Errorf("%s: the lifecycle is %+v, %v", name, lifecycle, err)
		}
	}
}

// TestExemptNamespacesAreLeftAlone, and so is everything while the list is missing.
func TestExemptNamespacesAreLeftAlone(t *testing.T) {
	for name, generateName := range map[string]string{"exempt": "", "tool-x": "", "tool-abcde": "tool-"} {
		exempt := namespace()
		exempt.Name, exempt.GenerateName = name, generateName
		f := newFixture(t, exempt, nil)
		if err := f.reconcile(context.Background(), name); err != nil {
			t.Fatal(err)
		}
		if writes := f.writes(); len(writes) != 0 {
			t.Errorf("%s: written: %v", name, writes)
		}
	}
	f := newFixture(t, namespace(closed), nil)
	if err := f.core.CoreV1().ConfigMaps("nsinit-system").Delete(context.Background(), "nsinit-exemptions", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.core.ClearActions()
	eventually(t, "the deletion of the list is seen", func() bool { _, known := f.Exemptions.Has("ns", ""); return !known })
	if err := f.reconcile(context.Background(), "ns"); err != nil {
		t.Error(err)
	}
	if writes := f.writes(); len(writes) != 0 {
		t.Errorf("written: %v", writes)
	}
}

// TestCreatorsInTurn: many namespaces of one user do not delay that of another user, also if a portal creates both.
func TestCreatorsInTurn(t *testing.T) {
	f := newFixture(t, nil, nil)
	for _, name := range []string{"eve-1", "eve-2", "eve-3", "ann-1"} {
		creator, _, _ := strings.Cut(name, "-")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "portal", v1alpha1.AnnotationOnBehalfOf: creator}}}
		f.cache(namespace, nil)
		f.queue.Add(name)
	}
	var names []string
	for range 2 {
		name, _ := f.queue.Get()
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"eve-1", "ann-1"}) {
		t.Errorf("the first two are %v", names)
	}
}

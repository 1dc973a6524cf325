/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package gate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/installation"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

// fixture is a cluster with nsinit, and a controller.
type fixture struct {
	*Controller
	core   *fake.Clientset
	clock  *testingclock.FakeClock
	nsinit *nsinitfake.Clientset
	apis   *aggregatorfake.Clientset
	events *record.FakeRecorder
	// broken is why nsinit does not work, or nil.
	broken error
}

func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "platform", UID: "uid"}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: installation.GuardCreate, UID: "guard"}})
	for _, name := range installation.Gates() {
		objects = append(objects, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	f := &fixture{core: fake.NewClientset(objects...), events: record.NewFakeRecorder(10), clock: clock}
	f.nsinit = nsinitfake.NewClientset()
	f.nsinit.PrependReactor("create", "namespacelifecycles", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if create, ok := action.(clienttesting.CreateActionImpl); !ok || len(create.CreateOptions.DryRun) == 0 {
			t.Error("the probe is no dry run")
		}
		return true, nil, f.broken
	})
	f.apis = aggregatorfake.NewClientset(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: installation.APIService},
		Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Name: installation.APIServer}}})
	c, err := New(Dependencies{Core: f.core, Nsinit: f.nsinit, APIs: f.apis, Events: f.events, Clock: clock, Namespace: "platform"})
	if err != nil {
		t.Fatal(err)
	}
	f.Controller = c
	go func() { // ends the wait between stamp and guard
		for t.Context().Err() == nil {
			if clock.HasWaiters() {
				clock.Step(settle)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return f
}

// live returns what exists.
func (f *fixture) live(t *testing.T) (names []string) {
	t.Helper()
	for _, object := range f.InOrder() {
		exists, err := object.Exists(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if exists {
			names = append(names, object.Kind)
		}
	}
	return names
}

// written returns what was applied and deleted since the last call.
func (f *fixture) written() (names []string) {
	for _, action := range f.core.Actions() {
		if verb := action.GetVerb(); verb == "patch" {
			names = append(names, action.GetResource().Resource)
		}
	}
	f.core.ClearActions()
	return names
}

func policy() runtime.Object {
	return &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: installation.Stamp, UID: "stamp"}}
}

func webhook() runtime.Object {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: installation.OpenedBy, UID: "webhook"}}
}

func off() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: installation.Off}}
}

const (
	guardKind, policyKind, webhookKind = "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration"
	guards, stamps                     = "validatingadmissionpolicybindings", "mutatingadmissionpolicybindings"
)

// TestReview: nothing is in force before nsinit works. Then the stamp comes first. Failures remove nothing.
func TestReview(t *testing.T) {
	f := newFixture(t, policy())
	f.broken = errors.New("no etcd")
	if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), "no etcd") || f.live(t) != nil {
		t.Errorf("%v, and there is %v", err, f.live(t))
	}
	f.broken = nil
	f.written()
	if err := f.review(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{stamps, guards}, f.written()); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	if event := <-f.events.Events; !strings.HasPrefix(event, "Normal GateInForce nsinit works: new namespaces are closed") {
		t.Errorf("event %q", event)
	}
	f.broken = errors.New("no etcd")
	if err := f.review(t.Context()); err != nil || f.written() != nil {
		t.Errorf("while nsinit works no more: %v", err)
	}
	f.broken = nil

	// Another version can have other objects, and a user can delete one.
	f.applied = time.Time{}
	if err := f.review(t.Context()); err != nil || len(f.written()) != 2 || len(f.events.Events) > 0 {
		t.Errorf("after a restart: %v", err)
	}
	if _, err := f.Guard.Remove(t.Context(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.review(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{guardKind, policyKind}, f.live(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if binding, err := f.core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(t.Context(), f.Guard.Name, metav1.GetOptions{}); err != nil || binding.Spec.ParamRef.Namespace != "platform" {
		t.Errorf("%+v %v", binding, err)
	}
}

// TestUpgradeFails: a new version that does not work leaves the gate in force.
func TestUpgradeFails(t *testing.T) {
	f := newFixture(t, policy())
	if err := f.review(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.applied, f.broken = time.Time{}, errors.New("no certificate")
	f.written()
	if err := f.review(t.Context()); err != nil || f.written() != nil || len(f.live(t)) != 2 {
		t.Errorf("%v, and there is %v", err, f.live(t))
	}
}

// TestNoStamp: if the stamp is not installed, nothing is brought into force, and what is stays.
func TestNoStamp(t *testing.T) {
	f := newFixture(t)
	if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), "the policy nsinit-stamp is missing") || f.live(t) != nil {
		t.Errorf("%v, and there is %v", err, f.live(t))
	}
}

// TestOwners: what the controller creates is removed with the policies and the webhook of the manifests.
func TestOwners(t *testing.T) {
	f := newFixture(t, policy(), webhook())
	for _, test := range []struct {
		object     Object
		kind, uid  string
		references func() ([]metav1.OwnerReference, error)
	}{
		{f.Guard, "ValidatingAdmissionPolicy", "guard", func() ([]metav1.OwnerReference, error) {
			o, err := f.core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(t.Context(), f.Guard.Name, metav1.GetOptions{})
			return o.GetOwnerReferences(), err
		}},
		{f.PolicyStamp, "MutatingAdmissionPolicy", "stamp", func() ([]metav1.OwnerReference, error) {
			o, err := f.core.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(t.Context(), f.PolicyStamp.Name, metav1.GetOptions{})
			return o.GetOwnerReferences(), err
		}},
		{f.WebhookStamp, "MutatingWebhookConfiguration", "webhook", func() ([]metav1.OwnerReference, error) {
			o, err := f.core.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), f.WebhookStamp.Name, metav1.GetOptions{})
			return o.GetOwnerReferences(), err
		}},
	} {
		if err := test.object.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		references, err := test.references()
		if err != nil || len(references) != 1 || references[0].Kind != test.kind || string(references[0].UID) != test.uid {
			t.Errorf("%s: %v %+v", test.object, err, references)
		}
	}
}

// TestOffMeanwhile: what the controller applies while a user runs off is removed again.
func TestOffMeanwhile(t *testing.T) {
	for _, resource := range []string{stamps, guards} {
		t.Run(resource, func(t *testing.T) {
			f := newFixture(t, policy())
			f.core.PrependReactor("patch", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return false, nil, f.core.Tracker().Add(off())
			})
			if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), "run kubectl nsinit on") || f.live(t) != nil {
				t.Errorf("%v, and there is %v", err, f.live(t))
			}
		})
	}
}

// TestGateMissing: without a gate or a guard, or with a configuration that cannot be read, new namespaces stay open.
func TestGateMissing(t *testing.T) {
	for _, name := range installation.Gates() {
		f := newFixture(t, policy())
		if err := f.core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), name) || f.live(t) != nil {
			t.Errorf("%s: %v, and there is %v", name, err, f.live(t))
		}
	}
	f := newFixture(t, policy())
	f.nsinit.PrependReactor("list", "namespaceinitializerconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("damaged") })
	if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), "damaged") || f.live(t) != nil {
		t.Errorf("%v, and there is %v", err, f.live(t))
	}
}

// TestWebhook: without the policy of the stamp, the webhook stamps, and the other one is removed.
func TestWebhook(t *testing.T) {
	f := newFixture(t, webhook(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "nsinit-stamp.configmap-nsinit-exemptions"}})
	if err := f.review(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{guardKind, webhookKind}, f.live(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOff: the ConfigMap removes what is in force, and the event says how to go back.
func TestOff(t *testing.T) {
	f := newFixture(t, policy())
	if err := f.review(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.core.CoreV1().ConfigMaps("platform").Create(t.Context(), off(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), "ConfigMap platform/nsinit-off exists; to close them again, run kubectl nsinit on") || f.live(t) != nil {
		t.Errorf("%v, and there is %v", err, f.live(t))
	}
	if err := f.core.CoreV1().ConfigMaps("platform").Delete(t.Context(), installation.Off, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.review(t.Context()); err != nil || len(f.live(t)) != 2 {
		t.Errorf("%v, and there is %v", err, f.live(t))
	}
}

// TestErrors: what cannot be read or written is named.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct{ verb, resource, says string }{
		"no ConfigMap": {"get", "configmaps", "cannot read ConfigMap platform/nsinit-off: no"},
		"no policy":    {"get", "mutatingadmissionpolicies", "cannot read MutatingAdmissionPolicy nsinit-stamp: no"},
		"no stamp":     {"patch", stamps, "cannot apply MutatingAdmissionPolicyBinding nsinit-stamp.configmap-nsinit-exemptions: no"},
		"no guard":     {"patch", guards, "cannot apply ValidatingAdmissionPolicyBinding nsinit-guard-create.configmap-nsinit-exemptions: no"},
		"no namespace": {"get", "namespaces", "new namespaces are not closed yet, because nsinit does not work yet: no"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, policy())
			f.core.PrependReactor(test.verb, test.resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
			if err := f.review(t.Context()); err == nil || !strings.HasPrefix(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestRun: each state is reported once.
func TestRun(t *testing.T) {
	f := newFixture(t, policy(), off())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	if event := <-f.events.Events; !strings.HasPrefix(event, "Warning GateNotInForce new namespaces are not closed, because ConfigMap platform/nsinit-off exists") {
		t.Errorf("event %q", event)
	}
	if err := f.core.CoreV1().ConfigMaps("platform").Delete(t.Context(), installation.Off, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-f.events.Events; !strings.HasPrefix(event, "Normal GateInForce") {
		t.Errorf("event %q", event)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestConfirmed: after a review that failed while the gate was in force, the controller says that it is. A review that cannot read whether
// it is in force is no such failure.
func TestConfirmed(t *testing.T) {
	f, reads := newFixture(t, policy()), 0
	var failsRead func() bool
	failsPatch := false
	f.core.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		reads++
		return failsRead(), nil, errors.New("no")
	})
	f.core.PrependReactor("patch", guards, func(clienttesting.Action) (bool, runtime.Object, error) { return failsPatch, nil, errors.New("no") })
	always, never := func() bool { return true }, func() bool { return false }
	for i, test := range []struct {
		// change changes the gate before the review.
		change     func() error
		failsRead  func() bool
		failsPatch bool
		want       string
	}{
		{nil, never, false, "Normal GateInForce"},
		{nil, always, false, ""},
		{nil, never, false, ""},
		{func() error { f.applied = time.Time{}; return nil }, never, true, "Warning GateNotInForce"},
		{nil, always, false, "Warning GateNotInForce"},
		{nil, never, false, "Normal GateInForce"},
		// The gate is not in force when the review can no longer read.
		{func() error { _, err := f.Guard.Remove(t.Context(), metav1.DeleteOptions{}); return err }, func() bool { return reads > 1 }, false, "Warning GateNotInForce"},
	} {
		if test.change != nil {
			if err := test.change(); err != nil {
				t.Fatal(err)
			}
		}
		reads, failsRead, failsPatch = 0, test.failsRead, test.failsPatch
		if delay := f.reviewAndReport(t.Context()); (delay == retryPeriod) != (test.failsPatch || reads > 0 && failsRead()) {
			t.Errorf("%d: the next review is after %s", i, delay)
		}
		got := ""
		select {
		case got = <-f.events.Events:
		default:
		}
		if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%d: event %q, want %q", i, got, test.want)
		}
	}
}

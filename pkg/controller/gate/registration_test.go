/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package gate

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/pkg/installation"
)

// unregistered is a cluster whose API of nsinit is not registered, with a pod of nsinit-apiserver.
func unregistered(t *testing.T, ready bool) *fixture {
	t.Helper()
	f := newFixture(t, policy(),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: installation.APIServer}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8443}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "a", Labels: map[string]string{discoveryv1.LabelServiceName: installation.APIServer}},
			Endpoints: []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "b", Labels: map[string]string{discoveryv1.LabelServiceName: "another"}},
			Endpoints: []discoveryv1.Endpoint{{}}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role, UID: "role"}})
	if err := f.apis.ApiregistrationV1().APIServices().Delete(t.Context(), installation.APIService, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) apiService(t *testing.T) *apiregistrationv1.APIService {
	t.Helper()
	service, err := f.apis.ApiregistrationV1().APIServices().Get(t.Context(), installation.APIService, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// TestRegister: the API is registered once a pod of nsinit-apiserver is ready and its CA is known.
func TestRegister(t *testing.T) {
	f := unregistered(t, false)
	if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), "no pod of nsinit-apiserver is ready (kubectl --namespace platform get pods)") || f.apiService(t) != nil || f.live(t) != nil {
		t.Errorf("before: %v, %+v, %v", err, f.apiService(t), f.live(t))
	}
	f = unregistered(t, true)
	var ca []byte
	f.Trusted = func(context.Context) ([]byte, error) { return ca, nil }
	if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), "its certificate is not issued yet") || f.apiService(t) != nil {
		t.Errorf("without a CA: %v, %+v", err, f.apiService(t))
	}
	ca = []byte("ca")
	if err := f.review(t.Context()); err != nil {
		t.Fatal(err)
	}
	service := f.apiService(t)
	backend := service.Spec.Service
	if backend.Namespace != "platform" || backend.Name != installation.APIServer || *backend.Port != 8443 || string(service.Spec.CABundle) != "ca" || service.Spec.InsecureSkipTLSVerify ||
		len(service.OwnerReferences) != 1 || service.OwnerReferences[0].UID != "role" || service.Annotations[injectCA] != "" {
		t.Errorf("%+v", service)
	}

	f = unregistered(t, true) // cert-manager sets the CA
	if err := f.review(t.Context()); err != nil {
		t.Fatal(err)
	}
	if service := f.apiService(t); service.Annotations[injectCA] != "platform/nsinit-apiserver" {
		t.Errorf("%+v", service)
	}
	if f.live(t) == nil {
		t.Error("the gate is not in force")
	}
}

// TestRegisterForeign: the API of a CustomResourceDefinition is not that of nsinit.
func TestRegisterForeign(t *testing.T) {
	f := unregistered(t, true)
	if _, err := f.apis.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: installation.APIService}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), "delete the CustomResourceDefinitions of the group nsinit.dev") || f.live(t) != nil {
		t.Errorf("%v, %v", err, f.live(t))
	}
}

// TestRegisterOff: while nsinit is off, its API is registered, because namespaces wait for it.
func TestRegisterOff(t *testing.T) {
	f := unregistered(t, true)
	if err := f.core.Tracker().Add(off()); err != nil {
		t.Fatal(err)
	}
	if err := f.review(t.Context()); err == nil || f.apiService(t) == nil || f.live(t) != nil {
		t.Errorf("%v, %+v, %v", err, f.apiService(t), f.live(t))
	}
	f.down(t)
	for range 2 {
		_ = f.review(t.Context())
		f.clock.Step(patience)
	}
	if f.apiService(t) != nil {
		t.Error("during an outage, the API is registered")
	}
}

// down reports that kube-apiserver does not reach nsinit-apiserver.
func (f *fixture) down(t *testing.T) {
	t.Helper()
	service := f.apiService(t)
	service.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse,
		Message: "no route to host", LastTransitionTime: metav1.NewTime(f.clock.Now())}}
	if _, err := f.apis.ApiregistrationV1().APIServices().UpdateStatus(t.Context(), service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestReachedMeanwhile: the registration stays if kube-apiserver reached nsinit-apiserver between two reviews, as on an overloaded machine.
func TestReachedMeanwhile(t *testing.T) {
	f := unregistered(t, true)
	_ = f.review(t.Context())
	for range 3 {
		f.down(t)
		_ = f.review(t.Context())
		f.clock.Step(patience)
	}
	if f.apiService(t) == nil {
		t.Fatal("the API is not registered")
	}
	_ = f.review(t.Context())
	if f.apiService(t) != nil {
		t.Error("after an outage, the API is registered")
	}
}

// TestUnreachable: the registration is removed if kube-apiserver does not reach nsinit-apiserver for a while, and made again later. It
// stays if a user made it.
func TestUnreachable(t *testing.T) {
	f := unregistered(t, true)
	f.broken = apierrors.NewServiceUnavailable("no route")
	review := func(says string, registered bool) {
		t.Helper()
		if err := f.review(t.Context()); err == nil || !strings.Contains(err.Error(), says) || (f.apiService(t) != nil) != registered {
			t.Errorf("%v, %+v, want %q", err, f.apiService(t), says)
		}
	}
	review("no route", true)
	f.down(t)
	review("no route", true)
	f.clock.Step(patience)
	review("kube-apiserver does not reach nsinit-apiserver (no route to host), so APIService v1alpha1.nsinit.dev is removed, and created again at 2026-01-02T03:07", false)
	review("kube-apiserver did not reach nsinit-apiserver (no route to host)", false)
	f.clock.Step(retryReached)
	review("no route", true)

	f = newFixture(t, policy()) // a user made it
	f.broken = apierrors.NewServiceUnavailable("no route")
	f.down(t)
	for range 2 {
		review("no route", true)
		f.clock.Step(patience)
	}
}

// TestOutage: while the gate is in force and no pod of nsinit-apiserver is ready, the registration is removed, so that Kubernetes goes on
// removing namespaces. The gate stays. The registration is made again as soon as a pod is ready.
func TestOutage(t *testing.T) {
	f := unregistered(t, true)
	ready := func(is bool) {
		t.Helper()
		slices := f.core.DiscoveryV1().EndpointSlices("platform")
		slice, err := slices.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		slice.Endpoints[0].Conditions.Ready = &is
		if _, err := slices.Update(t.Context(), slice, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	review := func(registered bool, event string) {
		t.Helper()
		if err := f.review(t.Context()); err != nil || len(f.live(t)) != 2 || (f.apiService(t) != nil) != registered {
			t.Errorf("%v, %+v, %v", err, f.apiService(t), f.live(t))
		}
		var got string
		for len(f.events.Events) > 0 {
			got = <-f.events.Events
		}
		if !strings.HasPrefix(got, event) || event == "" && got != "" {
			t.Errorf("event %q, want %q", got, event)
		}
	}
	review(true, "Normal GateInForce")
	ready(false)
	f.down(t)
	f.broken = apierrors.NewServiceUnavailable("no route")
	review(true, "")
	f.clock.Step(patience - 1)
	review(true, "")
	f.clock.Step(1)
	review(false, "Warning APIUnregistered kube-apiserver does not reach nsinit-apiserver (no route to host), so APIService v1alpha1.nsinit.dev is removed, and created again as soon as a pod of nsinit-apiserver is ready: ")
	f.clock.Step(again)
	review(false, "")
	ready(true)
	f.broken = nil
	review(true, "Normal APIRegistered")

	// An interruption that ends in time changes nothing, and the next one counts from its own beginning.
	f.down(t)
	review(true, "")
	service := f.apiService(t)
	service.Status.Conditions[0].Status = apiregistrationv1.ConditionTrue
	if _, err := f.apis.ApiregistrationV1().APIServices().UpdateStatus(t.Context(), service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(patience)
	review(true, "")
	f.down(t)
	review(true, "")
}

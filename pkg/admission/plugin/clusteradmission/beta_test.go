/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"context"
	"testing"
	"time"

	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// TestBeta: a cluster that serves mutating policies in v1beta1 only has them, those of the list and later ones. With neither
// version, the kind is not served.
func TestBeta(t *testing.T) {
	policies := admissionregistrationv1beta1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies")
	beta := func(name string) *admissionregistrationv1beta1.MutatingAdmissionPolicy {
		p := &admissionregistrationv1beta1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.Mutations = []admissionregistrationv1beta1.Mutation{{JSONPatch: &admissionregistrationv1beta1.JSONPatch{Expression: "[]"}}}
		return p
	}
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "mutatingadmissionpolicies"}, "")
	refuse := func(fake *clienttesting.Fake) {
		fake.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, notFound })
		fake.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, notFound })
	}
	for name, test := range map[string]struct{ served bool }{"served": {true}, "not served": {false}} {
		t.Run(name, func(t *testing.T) {
			core, dynamic := fake.NewClientset(), dynamicfake.NewSimpleDynamicClient(scheme.Scheme, beta("listed"))
			refuse(&core.Fake)
			if !test.served {
				refuse(&dynamic.Fake)
			}
			r := ours()
			r.core, r.dynamic, r.plugins, r.watched = core, dynamic, admission.PluginInitializers{}, map[string][]*watched{}
			r.informers, r.namespaces = informers.NewSharedInformerFactory(core, 0), informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			if err := r.Prepare(mutatingpolicy.PluginName, nil); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			r.namespaces.Core().V1().Namespaces().Informer()
			for _, factory := range []informers.SharedInformerFactory{r.informers, r.namespaces} {
				factory.StartWithContext(ctx)
				t.Cleanup(factory.Shutdown)
			}
			t.Cleanup(cancel)
			waitFor := func(what string, condition func() bool) {
				t.Helper()
				if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return condition(), nil }); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			waitFor("ready", func() bool {
				served, err := r.Ready(mutatingpolicy.PluginName)
				return err == nil && served == test.served
			})
			if !test.served {
				return
			}
			has := func(name string) bool {
				p, err := r.informers.Admissionregistration().V1().MutatingAdmissionPolicies().Lister().Get(name)
				return err == nil && p.Spec.Mutations[0].JSONPatch.Expression == "[]"
			}
			if !has("listed") {
				t.Error("it does not have the policy of the list")
			}
			created, err := runtime.DefaultUnstructuredConverter.ToUnstructured(beta("created"))
			if err != nil {
				t.Fatal(err)
			}
			created["apiVersion"], created["kind"] = admissionregistrationv1beta1.SchemeGroupVersion.String(), "MutatingAdmissionPolicy"
			if _, err := dynamic.Resource(policies).Create(ctx, &unstructured.Unstructured{Object: created}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			waitFor("the policy of the watch", func() bool { return has("created") })
		})
	}
}

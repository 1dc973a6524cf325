/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// inNamespace puts an object of the content into a namespace.
func inNamespace(object *metav1.PartialObjectMetadata, namespace string) *metav1.PartialObjectMetadata {
	object.Namespace = namespace
	return object
}

func called(namespace *corev1.Namespace, name string) *corev1.Namespace {
	namespace.Name = name
	return namespace
}

// webhookFor is a webhook of a service in the namespace x.
func webhookFor(name, service string, policy admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "hook", FailurePolicy: &policy, ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "x", Name: service}},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}, Rule: admissionregistrationv1.Rule{Resources: []string{"pods"}}}},
	}}}
}

func serviceOf(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}}
}

// serversOf are the servers of a service, as they were reported some time ago: ready or not.
func serversOf(service string, reported time.Duration, ready ...bool) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service},
		ManagedFields: []metav1.ManagedFieldsEntry{{Time: ago(24 * time.Hour)}, {Time: ago(reported)}}}}
	for i := range ready {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &ready[i]}})
	}
	return slice
}

// TestDiagnoseAll: every namespace that is not healthy is found, the stuck ones first, also one that only has content or a
// NamespaceLifecycle. What cannot be read is reported.
func TestDiagnoseAll(t *testing.T) {
	w := world{
		apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue), apiService("a.example.com", "v1")},
		core: []runtime.Object{
			lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second), lease("kube-system", "kube-controller-manager", "cp-1", time.Second),
			called(terminating(closed, open), "healthy"), called(terminating(closed, open), "open"),
			called(terminating(closed, open, conditions(lacks(v1alpha1.ConditionReady, "opened without x"))), "bare"),
			webhookFor("missing", "missing", admissionregistrationv1.Fail), webhookFor("lenient", "missing", admissionregistrationv1.Ignore), webhookFor("served", "webhook", admissionregistrationv1.Fail),
			webhookFor("down", "down", admissionregistrationv1.Fail), webhookFor("restarting", "restarting", admissionregistrationv1.Fail), webhookFor("unknown", "unknown", admissionregistrationv1.Fail),
			serviceOf("webhook"), serviceOf("down"), serviceOf("restarting"), serviceOf("unknown"),
			serversOf("webhook", time.Hour, false, true), serversOf("down", time.Hour, false), serversOf("restarting", time.Second),
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "healthy", Name: "data"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost}},
			called(terminating(closed), "closed"),
			called(terminating(), "ending"),
		},
		lifecycles: []runtime.Object{lifecycle(deleting, func(r *v1alpha1.NamespaceLifecycle) { r.Name = "former" })},
		content: []runtime.Object{
			inNamespace(object("ConfigMap", "a"), "orphaned"), inNamespace(object("ConfigMap", "b"), "healthy"), inNamespace(object("ConfigMap", "e", deleted(time.Hour)), "ending"),
			inNamespace(object("ConfigMap", "c", deleted(time.Hour, "a/b")), "open"), inNamespace(object("ConfigMap", "d", deleted(time.Second, "a/b")), "healthy"),
			inNamespace(object("PersistentVolume", "v", deleted(time.Hour, "kubernetes.io/pv-protection")), ""), inNamespace(object("PersistentVolume", "w", deleted(time.Second, "a/b")), ""),
		},
		refuses: func(verb, resource, _ string) error {
			switch {
			case verb == "list" && resource == "pods":
				return forbidden("no")
			case verb == "patch" && resource == "persistentvolumes":
				return apierrors.NewInternalError(errors.New(`failed calling webhook "hook": no endpoints`))
			}
			return nil
		},
	}
	var diagnosed []string
	d := w.diagnoser(t)
	d.Diagnosed = func(done, total int) { diagnosed = append(diagnosed, fmt.Sprintf("%d/%d", done, total)) }
	discover, discovered := d.Discover, 0
	d.Discover = func() ([]*metav1.APIResourceList, error) { discovered++; return discover() }
	list, err := d.DiagnoseAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range list.Items {
		text := fmt.Sprintf("%s %s", item.Namespace, item.State)
		for _, f := range item.Findings {
			text += " " + string(f.Cause)
		}
		got = append(got, text)
	}
	want := []string{
		"bare Stuck ObjectsMissing APIUnavailable", "former Stuck ParticipantPending APIUnavailable", "closed Stuck LifecycleMissing APIUnavailable", "ending Stuck APIUnavailable GracePeriod", "orphaned Stuck APIUnavailable OrphanedContent",
		"open Stuck ContentFinalizer APIUnavailable",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = nil
	for _, f := range list.Cluster {
		got = append(got, fmt.Sprintf("%s %s: %s", f.State, f.Cause, f.Message))
	}
	want = []string{
		`Stuck APIUnavailable: the API of a.example.com/v1 (APIService v1.a.example.com, service apis/server) is not available (kube-apiserver has not tried it yet): Kubernetes cannot determine which of its objects are in a namespace, and removes no namespace of the cluster`,
		`Stuck WebhookUnavailable: the admission webhook "hook" of validatingwebhookconfiguration/down or validatingwebhookconfiguration/lenient or validatingwebhookconfiguration/missing or validatingwebhookconfiguration/restarting or validatingwebhookconfiguration/served or validatingwebhookconfiguration/unknown reviews the removal of finalizers from persistentvolumes/v, and does not answer: Internal error occurred: failed calling webhook "hook": no endpoints`,
		`Stuck WebhookUnavailable: the service x/down of the admission webhook "hook" of validatingwebhookconfiguration/down has no server that is ready, so kube-apiserver refuses DELETE of pods`,
		`Stuck WebhookUnavailable: the service x/missing of the admission webhook "hook" of validatingwebhookconfiguration/missing does not exist, so kube-apiserver refuses DELETE of pods`,
		`Stuck ContentFinalizer: persistentvolumes/v has the finalizer "kubernetes.io/pv-protection", which is removed by kube-controller-manager when no claim is bound to the volume`,
		`Waiting WebhookUnavailable: the service x/restarting of the admission webhook "hook" of validatingwebhookconfiguration/restarting has no server that is ready, so kube-apiserver refuses DELETE of pods`,
		`Healthy WebhookUnavailable: the service x/missing of the admission webhook "hook" of validatingwebhookconfiguration/lenient does not exist, and its failurePolicy is Ignore, so kube-apiserver can wait for its timeout before it accepts DELETE of pods`,
		`Healthy ClaimLost: PersistentVolumeClaims of namespace "healthy" are in the phase Lost, because their volumes do not exist: data. They block no deletion`,
	}
	if diff := cmp.Diff(want, got); diff != "" || list.State() != Stuck {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if objects, apis := lists(t, d.Metadata, "configmaps"), lists(t, d.APIs, "apiservices"); objects != 2 || apis != 1 || discovered != 1 {
		t.Errorf("objects are listed %d times, APIServices %d times, resources %d times, instead of once for all namespaces, and objects once more where the namespace does not exist", objects, apis, discovered)
	}
	if list.Namespaces != 5 || list.Kind != ListKind || strings.Join(diagnosed, " ") != "0/6 1/6 2/6 3/6 4/6 5/6" {
		t.Errorf("%s of %d namespaces, %v", list.Kind, list.Namespaces, diagnosed)
	}
	if len(list.NotExamined) != 1 || !strings.HasPrefix(list.NotExamined[0], "pods: ") {
		t.Errorf("not examined: %q", list.NotExamined)
	}
}

// TestNoOrphans: objects are no orphans if Kubernetes removed them and their namespace after they were listed, or if a client created
// the namespace before.
func TestNoOrphans(t *testing.T) {
	late := inNamespace(object("ConfigMap", "a"), "ns")
	for name, test := range map[string]struct {
		all, created bool
	}{
		"removed after the list":                   {true, false},
		"created before the list of the namespace": {false, true},
		"created before the list of all":           {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := world{content: []runtime.Object{late}, core: []runtime.Object{lease("kube-system", "kube-controller-manager", "cp-1", time.Second)}}.diagnoser(t)
			if !test.created {
				d.Metadata.(*metadatafake.FakeMetadataClient).PrependReactor("list", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
					return action.GetNamespace() == "ns", &metav1.List{}, nil
				})
			}
			reads := 0
			d.Core.(*fake.Clientset).PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				if reads++; reads > 1 && test.created {
					return true, terminating(closed, open), nil
				}
				return true, nil, absent("namespaces")
			})
			if test.all {
				list, err := d.DiagnoseAll(t.Context())
				if err != nil || len(list.Items) > 0 || reads == 0 {
					t.Errorf("%+v %v after %d reads", list, err, reads)
				}
				return
			}
			if found, err := d.Diagnose(t.Context(), "ns"); err != nil || found.Phase != Active || len(found.Findings) > 0 {
				t.Errorf("%+v %v", found, err)
			}
		})
	}
}

// lists counts the lists of a resource, in all namespaces or in one.
func lists(t *testing.T, client any, resource string) (count int) {
	t.Helper()
	recorder, ok := client.(interface{ Actions() []clienttesting.Action })
	if !ok {
		t.Fatalf("%T records no actions", client)
	}
	for _, action := range recorder.Actions() {
		if action.Matches("list", resource) {
			count++
		}
	}
	return count
}

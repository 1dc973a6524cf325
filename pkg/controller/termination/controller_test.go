/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package termination

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

func now() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// object is one object in the namespace, which finalizers may hold.
func object(kind, name string, finalizers ...string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Finalizers: finalizers},
	}
	if len(finalizers) > 0 {
		deleted := metav1.NewTime(now().Add(-time.Minute))
		o.DeletionTimestamp = &deleted
	}
	return o
}

func resources(verbs ...string) []*metav1.APIResourceList {
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Verbs: verbs}, {Name: "pods", Kind: "Pod", Verbs: verbs}, {Name: "bindings", Kind: "Binding", Verbs: []string{"create"}},
	}}}
}

type fixture struct {
	*Controller
	core     *corefake.Clientset
	metadata *metadatafake.FakeMetadataClient
}

func newFixture(t *testing.T, namespace *corev1.Namespace, discovery error, objects ...runtime.Object) *fixture {
	t.Helper()
	core := corefake.NewClientset(namespace)
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, objects...)
	controller, err := New(Dependencies{
		Core: core, Metadata: client, Namespaces: informers.NewSharedInformerFactory(core, 0).Core().V1().Namespaces(),
		Discover: func() ([]*metav1.APIResourceList, error) { return resources("list", "delete"), discovery },
		Clock:    testingclock.NewFakeClock(now()),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{Controller: controller, core: core, metadata: client}
}

func terminating(finalizers ...corev1.FinalizerName) *corev1.Namespace {
	deleted := metav1.NewTime(now().Add(-time.Minute))
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "u", DeletionTimestamp: &deleted},
		Spec:       corev1.NamespaceSpec{Finalizers: finalizers},
	}
}

// writes returns what was written, as "verb resource/subresource name uid".
func (f *fixture) writes() []string {
	var all []string
	for _, action := range append(f.core.Actions(), f.metadata.Actions()...) {
		if !slices.Contains([]string{"create", "update", "delete"}, action.GetVerb()) {
			continue
		}
		text := action.GetVerb() + " " + action.GetResource().Resource
		if action.GetSubresource() != "" {
			text += "/" + action.GetSubresource()
		}
		if deletion, ok := action.(clienttesting.DeleteActionImpl); ok {
			text += " " + deletion.Name + " " + string(*deletion.DeleteOptions.Preconditions.UID)
		}
		all = append(all, text)
	}
	return all
}

func TestReconcile(t *testing.T) {
	active := terminating(corev1.FinalizerKubernetes)
	active.DeletionTimestamp = nil
	held := terminating()
	held.Finalizers = []string{"example.com/other"}
	tests := map[string]struct {
		namespace *corev1.Namespace
		objects   []runtime.Object
		want      []string
	}{
		"it is not deleted":             {active, []runtime.Object{object("ConfigMap", "a")}, nil},
		"it is empty":                   {terminating(corev1.FinalizerKubernetes), nil, []string{"update namespaces/status", "update namespaces/status", "create namespaces/finalize"}},
		"it has content, by its UID":    {terminating(corev1.FinalizerKubernetes), []runtime.Object{object("ConfigMap", "a")}, []string{"update namespaces/status", "update namespaces/status", "create namespaces/finalize", "delete configmaps a uid-of-a"}},
		"finalizers hold content":       {terminating(corev1.FinalizerKubernetes), []runtime.Object{object("Pod", "p", "example.com/hold")}, []string{"update namespaces/status", "update namespaces/status"}},
		"pods first":                    {terminating(corev1.FinalizerKubernetes), []runtime.Object{object("ConfigMap", "a"), object("Pod", "p")}, []string{"update namespaces/status", "update namespaces/status", "create namespaces/finalize", "delete pods p uid-of-p", "delete configmaps a uid-of-a"}},
		"a pod is left":                 {terminating(corev1.FinalizerKubernetes), []runtime.Object{object("ConfigMap", "a"), object("Pod", "p", "example.com/hold")}, []string{"update namespaces/status", "update namespaces/status"}},
		"others hold it":                {terminating("openshift.com/origin"), []runtime.Object{object("ConfigMap", "a")}, []string{"update namespaces/status"}},
		"no finalizers, the last word":  {terminating(), nil, []string{"delete namespaces ns u"}},
		"no finalizers, it has content": {terminating(), []runtime.Object{object("Pod", "p", "example.com/hold")}, nil},
		"no finalizers, content first":  {terminating(), []runtime.Object{object("ConfigMap", "a")}, []string{"delete namespaces ns u", "delete configmaps a uid-of-a"}},
		"metadata.finalizers hold it":   {held, nil, []string{"update namespaces/status"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.namespace, nil, test.objects...)
			if err := f.reconcile(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, f.writes()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// conditions returns what the conditions that are True say.
func (f *fixture) conditions(t *testing.T) map[corev1.NamespaceConditionType]string {
	t.Helper()
	namespace, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(namespace.Status.Conditions) != 5 {
		t.Errorf("there are %d conditions", len(namespace.Status.Conditions))
	}
	said := map[corev1.NamespaceConditionType]string{}
	for _, condition := range namespace.Status.Conditions {
		if condition.Status == corev1.ConditionTrue {
			said[condition.Type] = condition.Reason + ": " + condition.Message
		}
	}
	return said
}

// TestConditions: a resource that cannot be discovered or deleted is reported, and does not keep the
// controller from the rest, unless it is pods.
func TestConditions(t *testing.T) {
	tests := map[string]struct {
		discovery error
		delete    error
		objects   []runtime.Object
		want      map[corev1.NamespaceConditionType]string
		deleted   bool
	}{
		"an API is not available": {discovery: errors.New("unable to retrieve the complete list of server APIs: broken.example.com/v1"), objects: []runtime.Object{object("ConfigMap", "a")}, deleted: true,
			want: map[corev1.NamespaceConditionType]string{corev1.NamespaceDeletionDiscoveryFailure: "DiscoveryFailed: unable to retrieve the complete list of server APIs: broken.example.com/v1"}},
		"a webhook refuses": {delete: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no")), objects: []runtime.Object{object("ConfigMap", "a")},
			want: map[corev1.NamespaceConditionType]string{
				corev1.NamespaceDeletionContentFailure: `ContentDeletionFailed: configmaps: cannot delete "a": configmaps "a" is forbidden: no`,
				corev1.NamespaceContentRemaining:       "SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances",
			}},
		"finalizers": {objects: []runtime.Object{object("Pod", "p", "example.com/hold", "example.com/other"), object("Pod", "q", "example.com/hold"), object("ConfigMap", "a")},
			want: map[corev1.NamespaceConditionType]string{
				corev1.NamespaceContentRemaining:    "SomeResourcesRemain: Some resources are remaining: pods. has 2 resource instances",
				corev1.NamespaceFinalizersRemaining: "SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances, example.com/other in 1 resource instances",
			}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, terminating(corev1.FinalizerKubernetes), test.discovery, test.objects...)
			if test.delete != nil {
				f.metadata.PrependReactor("delete", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.delete })
			}
			err := f.reconcile(t.Context(), "ns")
			if (err != nil) != (test.discovery != nil || test.delete != nil) {
				t.Errorf("reconcile: %v", err)
			}
			if diff := cmp.Diff(test.want, f.conditions(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if slices.Contains(f.writes(), "create namespaces/finalize") {
				t.Error("the namespace was finalized")
			}
			_, err = f.metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("ns").Get(t.Context(), "a", metav1.GetOptions{})
			if apierrors.IsNotFound(err) != test.deleted {
				t.Errorf("the ConfigMap: %v", err)
			}
		})
	}
}

// TestParsing: a version that cannot be parsed is reported, and the rest is deleted.
func TestParsing(t *testing.T) {
	f := newFixture(t, terminating(corev1.FinalizerKubernetes), nil, object("ConfigMap", "a"))
	f.Discover = func() ([]*metav1.APIResourceList, error) {
		return append(resources("list", "delete"), &metav1.APIResourceList{GroupVersion: "a/b/c"}), nil
	}
	if err := f.reconcile(t.Context(), "ns"); err == nil {
		t.Error("no error")
	}
	if said := f.conditions(t)[corev1.NamespaceDeletionGVParsingFailure]; !strings.Contains(said, "a/b/c") {
		t.Errorf("it says %q", said)
	}
	if !slices.Contains(f.writes(), "delete configmaps a uid-of-a") {
		t.Errorf("written: %v", f.writes())
	}
}

// TestWait: a namespace is checked again when grace periods end, or after a while where
// finalizers hold what is left.
func TestWait(t *testing.T) {
	pods := map[schema.GroupVersionResource]int{{Version: "v1", Resource: "pods"}: 1}
	for name, test := range map[string]struct {
		content *content
		want    time.Duration
	}{
		"nothing is left":       {&content{}, 0},
		"a grace period":        {&content{remaining: pods, graceEnds: now().Add(7 * time.Second)}, 7 * time.Second},
		"a long grace period":   {&content{remaining: pods, graceEnds: now().Add(time.Hour)}, longestWait},
		"finalizers":            {&content{remaining: pods, graceEnds: now().Add(-time.Hour), finalizers: map[string]int{"a": 1}}, finalizerWait},
		"no kubelet":            {&content{remaining: pods, graceEnds: now().Add(-time.Second)}, finalizerWait},
		"just not gone already": {&content{remaining: pods}, minRetryDelay},
	} {
		if got := test.content.wait(now()); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestUpdates: what the controller itself writes does not bring it back.
func TestUpdates(t *testing.T) {
	f := newFixture(t, terminating(corev1.FinalizerKubernetes), nil)
	before, said, finalized, again := terminating(corev1.FinalizerKubernetes), terminating(corev1.FinalizerKubernetes), terminating(), terminating(corev1.FinalizerKubernetes)
	said.Status.Conditions = []corev1.NamespaceCondition{{Type: "A"}}
	again.UID = "another"
	active := terminating(corev1.FinalizerKubernetes)
	active.DeletionTimestamp = nil
	for name, test := range map[string]struct {
		before, after *corev1.Namespace
		want          int
	}{
		"conditions":          {before, said, 0},
		"finalizers":          {before, finalized, 1},
		"the deletion":        {active, before, 1},
		"another incarnation": {before, again, 1},
		"not deleted":         {active, active, 0},
	} {
		f.updated(test.before, test.after)
		if got := f.queue.Len(); got != test.want {
			t.Errorf("%s: %d are due, want %d", name, got, test.want)
		}
		for f.queue.Len() > 0 {
			item, _ := f.queue.Get()
			f.queue.Done(item)
		}
	}
}

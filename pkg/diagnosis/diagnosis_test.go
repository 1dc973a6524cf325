/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/pkg/generated/clientset/versioned/fake"
)

func now() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: now().Add(-d)} }

// world is a cluster with one namespace, ns, in it.
type world struct {
	namespace *corev1.Namespace
	core      []runtime.Object
	content   []runtime.Object
	apis      []runtime.Object
	records   []runtime.Object
	// refuses returns why a request of the metadata client or for a record is refused.
	refuses   func(verb, resource, name string) error
	discovery error
	lists     []*metav1.APIResourceList
}

func terminating(changes ...func(*corev1.Namespace)) *corev1.Namespace {
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "u", DeletionTimestamp: ago(10 * time.Minute)},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
	}
	for _, change := range changes {
		change(namespace)
	}
	return namespace
}

func closed(n *corev1.Namespace) {
	n.DeletionTimestamp, n.CreationTimestamp = nil, *ago(10 * time.Minute)
	n.Labels = map[string]string{v1alpha1.LabelInitializing: ""}
}

// open undoes closed: the namespace was opened.
func open(n *corev1.Namespace) { n.Labels = nil }

func lifecycleHeld(n *corev1.Namespace) {
	n.Spec.Finalizers, n.Finalizers = nil, []string{v1alpha1.NamespaceFinalizer}
}

func object(kind, name string, changes ...func(*metav1.ObjectMeta)) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: *ago(time.Hour)},
	}
	for _, change := range changes {
		change(&o.ObjectMeta)
	}
	return o
}

func deleted(when time.Duration, finalizers ...string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) { m.DeletionTimestamp, m.Finalizers = ago(when), finalizers }
}

func coreResources() []*metav1.APIResourceList {
	verbs := metav1.Verbs{"list", "delete"}
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Verbs: verbs}, {Name: "pods", Kind: "Pod", Verbs: verbs},
		{Name: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Verbs: verbs}, {Name: "bindings", Kind: "Binding", Verbs: metav1.Verbs{"create"}},
	}}}
}

// nsinitAPI is nsinit's registration.
func nsinitAPI(available apiregistrationv1.ConditionStatus) *apiregistrationv1.APIService {
	return apiService("nsinit.dev", "v1alpha1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: available,
		Reason: "FailedDiscoveryCheck", Message: "connection refused", LastTransitionTime: *ago(2 * time.Minute)})
}

func apiService(group, version string, conditions ...apiregistrationv1.APIServiceCondition) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group},
		Spec:       apiregistrationv1.APIServiceSpec{Group: group, Version: version, Service: &apiregistrationv1.ServiceReference{Namespace: "apis", Name: "server"}},
		Status:     apiregistrationv1.APIServiceStatus{Conditions: conditions},
	}
}

func lease(namespace, name, holder string, renewed time.Duration) *coordinationv1.Lease {
	valid := int32(15)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &valid, RenewTime: &metav1.MicroTime{Time: now().Add(-renewed)}}}
}

func record(changes ...func(*v1alpha1.NamespaceLifecycle)) *v1alpha1.NamespaceLifecycle {
	r := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "r"}, Spec: v1alpha1.NamespaceLifecycleSpec{
		NamespaceUID: "u", Plan: []v1alpha1.PlannedInitializer{
			{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "a.example.com"}}, {RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "b.example.com"}},
		},
		Initializers: &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: "b.example.com"}}, TurnStartTime: &metav1.MicroTime{Time: now().Add(-time.Minute)}},
	}}
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionInitializing, Message: `waiting for initializer "b.example.com" (2 of 2)`}}
	for _, change := range changes {
		change(r)
	}
	return r
}

// diagnose diagnoses the namespace of a world.
func (w world) diagnose(t *testing.T) (*Diagnosis, error) {
	t.Helper()
	objects := w.core
	if w.namespace != nil {
		objects = append(objects, w.namespace)
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	content := metadatafake.NewSimpleMetadataClient(scheme, w.content...)
	records := nsinitfake.NewClientset(w.records...)
	core := fake.NewClientset(objects...)
	refuse := func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := ""
		if named, ok := action.(interface{ GetName() string }); ok {
			name = named.GetName()
		}
		if action.GetVerb() == "delete" && !strings.Contains(fmt.Sprint(action), metav1.DryRunAll) {
			t.Errorf("%s %s was to be deleted in earnest", action.GetResource().Resource, name)
		}
		if w.refuses != nil {
			if err := w.refuses(action.GetVerb(), action.GetResource().Resource, name); err != nil {
				return true, nil, err
			}
		}
		return action.GetVerb() == "delete", nil, nil
	}
	content.PrependReactor("*", "*", refuse)
	records.PrependReactor("*", "*", refuse)
	core.PrependReactor("*", "*", refuse)
	lists := w.lists
	if lists == nil {
		lists = coreResources()
	}
	calls := 0
	d := Diagnoser{
		Clients: Clients{Core: core, Nsinit: records, APIs: aggregatorfake.NewClientset(w.apis...), Metadata: content,
			Discover: func() ([]*metav1.APIResourceList, error) { return lists, w.discovery }},
		Clock: testingclock.NewFakePassiveClock(now()), Patience: DefaultPatience,
		Progress: func(done, total int) {
			if calls++; done != calls || total != 3 {
				t.Errorf("progress says %d of %d", done, total)
			}
		},
	}
	return d.Diagnose(t.Context(), "ns")
}

func forbidden(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: 403, Message: message}}
}

// refuseOnly refuses one verb on one resource.
func refuseOnly(verb, resource string, err error) func(string, string, string) error {
	return func(v, r, _ string) error {
		if v == verb && r == resource {
			return err
		}
		return nil
	}
}

func TestDiagnose(t *testing.T) {
	silent := errors.New("it never answers")
	conditions := func(conditions ...corev1.NamespaceCondition) func(*corev1.Namespace) {
		return func(n *corev1.Namespace) { n.Status.Conditions = conditions }
	}
	young := func(n *corev1.Namespace) { n.DeletionTimestamp = ago(5 * time.Second) }
	tests := map[string]struct {
		world
		// want are the findings, as "state cause", with parts of the messages.
		want []string
		says []string
	}{
		"an open namespace": {world{namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}}, nil, nil},
		"an API that is down says nothing of an open one": {world{namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, apis: []runtime.Object{apiService("metrics.k8s.io", "v1")}},
			[]string{"Healthy APIUnavailable"}, []string{"kube-apiserver has not tried it yet"}},
		"protected": {world{namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, refuses: refuseOnly("delete", "namespaces", forbidden("protected"))},
			[]string{"Healthy DeletionProtected"}, []string{"protected"}},
		"who may not delete is told nothing": {world{namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}},
			refuses: refuseOnly("delete", "namespaces", forbidden(`User "jane" cannot delete resource "namespaces"`))}, nil, nil},

		"under way":         {world{namespace: terminating(young), content: []runtime.Object{object("ConfigMap", "a")}}, []string{"Waiting NamespaceControllerAtWork"}, nil},
		"nobody empties it": {world{namespace: terminating(), content: []runtime.Object{object("ConfigMap", "a")}}, []string{"Stuck NamespaceControllerSilent"}, []string{"there is no Lease kube-system/kube-controller-manager"}},
		"its controller's Lease ran out": {world{namespace: terminating(young), core: []runtime.Object{lease("kube-system", "kube-controller-manager", "cp-1", time.Minute)}},
			[]string{"Stuck NamespaceControllerSilent"}, []string{"was renewed last at 2026-11-21T11:59:00Z by cp-1"}},
		"its controller's Lease is held, and it has tried": {world{namespace: terminating(conditions(corev1.NamespaceCondition{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue}), func(n *corev1.Namespace) { n.DeletionTimestamp = ago(2 * time.Minute) }),
			core: []runtime.Object{lease("kube-system", "kube-controller-manager", "cp-1", time.Second)}}, []string{"Waiting NamespaceControllerAtWork"}, nil},
		"an API that is down": {world{namespace: terminating(), apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue), apiService("metrics.k8s.io", "v1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: "MissingEndpoints", Message: "no endpoints"})},
			discovery: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: silent}}},
			[]string{"Stuck APIUnavailable"}, []string{"metrics.k8s.io/v1 (APIService v1.metrics.k8s.io, service apis/server) is not available (MissingEndpoints: no endpoints)"}},
		"an API that is up and cannot be discovered": {world{namespace: terminating(), apis: []runtime.Object{apiService("metrics.k8s.io", "v1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue})},
			discovery: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: silent}}},
			[]string{"Stuck DiscoveryFailed"}, []string{"metrics.k8s.io/v1 could not be discovered (it never answers)"}},
		"no discovery at all": {world{namespace: terminating(), discovery: silent}, []string{"Stuck DiscoveryFailed"}, []string{"it never answers"}},
		"a version that cannot be parsed": {world{namespace: terminating(), lists: append(coreResources(), &metav1.APIResourceList{GroupVersion: "a/b/c"})},
			[]string{"Stuck DiscoveryFailed"}, []string{"unexpected GroupVersion string: a/b/c"}},
		"a resource that cannot be listed": {world{namespace: terminating(), refuses: refuseOnly("list", "pods", apierrors.NewInternalError(silent))},
			[]string{"Stuck ListFailed"}, []string{"the pods in the namespace cannot be listed"}},
		"what one may not list": {world{namespace: terminating(young), refuses: refuseOnly("list", "pods", forbidden("no"))},
			[]string{"Waiting NamespaceControllerAtWork", "NotExamined pods"}, nil},
		"a finalizer, for a moment": {world{namespace: terminating(young), content: []runtime.Object{object("Pod", "p", deleted(5*time.Second, "example.com/hold"))}},
			[]string{"Waiting ContentFinalizer", "Waiting NamespaceControllerAtWork"}, []string{"pods/p has the finalizer \"example.com/hold\": whoever put it there"}},
		"finalizers that are known": {world{namespace: terminating(), content: []runtime.Object{object("PersistentVolumeClaim", "data", deleted(time.Hour, "kubernetes.io/pvc-protection")), object("ConfigMap", "a", deleted(time.Hour, metav1.FinalizerDeleteDependents))}},
			[]string{"Stuck ContentFinalizer", "Stuck ContentFinalizer"}, []string{"removed by the garbage collector", "once no pod uses the claim"}},
		"a grace period": {world{namespace: terminating(young), content: []runtime.Object{object("Pod", "p", deleted(-20*time.Second))}},
			[]string{"Waiting GracePeriod", "Waiting NamespaceControllerAtWork"}, []string{"pods/p: time to end, 20s at most"}},
		"a grace period that is over": {world{namespace: terminating(), content: []runtime.Object{object("Pod", "p", deleted(5*time.Minute))},
			core: []runtime.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1"}}}},
			[]string{"Stuck GracePeriod"}, []string{`by the kubelet of node "n1", which does not exist`}},
		"a webhook": {world{namespace: terminating(), content: []runtime.Object{object("ConfigMap", "a"), object("ConfigMap", "b")}, refuses: refuseOnly("delete", "configmaps", forbidden(`admission webhook "keep.example.com" denied the request: no`)),
			core: []runtime.Object{&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "keeper"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "keep.example.com"}}}}},
			[]string{"Stuck WebhookRefusesDeletion"}, []string{`"keep.example.com" of mutatingwebhookconfiguration keeper refuses the deletion of configmaps/a, configmaps/b`}},
		"a webhook without dry-run": {world{namespace: terminating(young), content: []runtime.Object{object("ConfigMap", "a")}, refuses: refuseOnly("delete", "configmaps", apierrors.NewBadRequest(`admission webhook "keep.example.com" does not support dry run`))},
			[]string{"Waiting NamespaceControllerAtWork", "NotExamined whether configmaps/a could be deleted"}, nil},
		"what one may not delete": {world{namespace: terminating(young), content: []runtime.Object{object("ConfigMap", "a")}, refuses: refuseOnly("delete", "configmaps", forbidden(`User "jane" cannot delete resource "configmaps"`))},
			[]string{"Waiting NamespaceControllerAtWork", "NotExamined whether configmaps/a could be deleted"}, nil},
		"something else refuses": {world{namespace: terminating(), content: []runtime.Object{object("ConfigMap", "a")}, refuses: refuseOnly("delete", "configmaps", forbidden("quota exceeded"))},
			[]string{"Stuck DeletionRefused"}, []string{"the deletion of configmaps/a is refused: quota exceeded"}},
		"finalizers of others": {world{namespace: terminating(func(n *corev1.Namespace) {
			n.Spec.Finalizers, n.Finalizers = []corev1.FinalizerName{"openshift.com/origin"}, []string{"example.com/hold"}
		})},
			[]string{"Stuck SpecFinalizer", "Stuck NamespaceFinalizer"}, []string{"openshift.com/origin", "example.com/hold"}},
		"emptied finalizers": {world{namespace: terminating(func(n *corev1.Namespace) { n.Spec.Finalizers = nil })}, []string{"Stuck FinalizersEmptied"}, nil},
		"orphans":            {world{content: []runtime.Object{object("ConfigMap", "a")}}, []string{"Stuck OrphanedContent"}, []string{"(1 configmaps)"}},

		"nsinit is down":         {world{namespace: terminating(closed), apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionFalse)}}, []string{"Stuck NsinitUnavailable"}, []string{"nsinit itself is in the way"}},
		"nsinit is gone, closed": {world{namespace: terminating(closed)}, []string{"Stuck NsinitUninstalled"}, []string{"the namespace is closed"}},
		"nsinit is gone, held":   {world{namespace: terminating(lifecycleHeld)}, []string{"Stuck NsinitUninstalled"}, []string{"nsinit.dev/lifecycle in metadata.finalizers"}},
		"nsinit refuses": {world{namespace: terminating(closed), apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)},
			refuses: refuseOnly("get", "namespacelifecycles", apierrors.NewServiceUnavailable("the storage was lost"))}, []string{"Stuck NsinitRefuses"}, []string{"the storage was lost"}},
		"an initializer": {world{namespace: terminating(closed), apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)}, records: []runtime.Object{record()}},
			[]string{"Waiting InitializerPending"}, []string{`waiting for initializer "b.example.com" (2 of 2): it has reported nothing`}},
		"an initializer that has stalled": {world{namespace: terminating(closed), apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)}, records: []runtime.Object{record(func(r *v1alpha1.NamespaceLifecycle) {
			r.Status.Conditions[0].Message += ": no quota"
			r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue})
			r.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "b.example.com", Message: "no quota", LastActor: "system:serviceaccount:quota:server"}}
		})}}, []string{"Stuck InitializerPending"}, []string{`waiting for initializer "b.example.com" (2 of 2): no quota`}},
		"nsinit's controller is gone": {world{namespace: terminating(closed), apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)}, core: []runtime.Object{lease("nsinit-system", "nsinit-controller-manager", "", 0)}},
			[]string{"Stuck RecordMissing", "Stuck NsinitControllerDown"}, []string{"nobody holds the Lease"}},
		"opened by hand, nsinit's controller is gone": {world{namespace: terminating(closed, open), apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)}, records: []runtime.Object{record()},
			core: []runtime.Object{lease("nsinit-system", "nsinit-controller-manager", "", 0)}},
			[]string{"Stuck NsinitControllerDown", "Waiting InitializerPending"}, []string{"opened by hand", "skip the initializers that are pending: b.example.com"}},
		"opened by hand, and settled": {world{namespace: terminating(closed, open), apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)},
			records: []runtime.Object{record(func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Initializers = nil })}}, nil, nil},
		"open, of a former record": {world{namespace: terminating(closed, open), apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)},
			records: []runtime.Object{record(func(r *v1alpha1.NamespaceLifecycle) { r.Spec.NamespaceUID = "former" })}}, nil, nil},
		"a tenant reads conditions": {world{namespace: terminating(closed, conditions(corev1.NamespaceCondition{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue, Message: "waiting for b"})),
			apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)}, refuses: refuseOnly("get", "namespacelifecycles", forbidden("no"))},
			[]string{"Waiting InitializerPending", "NotExamined nsinit's record of the namespace"}, []string{"waiting for b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found, err := test.diagnose(t)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			var said strings.Builder
			for _, f := range found.Findings {
				got = append(got, fmt.Sprintf("%s %s", f.State, f.Cause))
				said.WriteString(f.Message + "\n")
			}
			for _, what := range found.NotExamined {
				what, _, _ = strings.Cut(what, ":")
				got = append(got, "NotExamined "+what)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s%s", diff, said.String())
			}
			for _, part := range test.says {
				if !strings.Contains(said.String(), part) {
					t.Errorf("%q is not in\n%s", part, said.String())
				}
			}
		})
	}
}

// TestNoNamespace: of a namespace that does not exist, and of which nothing does, there is
// nothing to say.
func TestNoNamespace(t *testing.T) {
	if found, err := (world{}).diagnose(t); !apierrors.IsNotFound(err) {
		t.Errorf("found %v %v", found, err)
	}
}

// TestMany: many objects are counted, the oldest are shown, and some are tried.
func TestMany(t *testing.T) {
	w := world{namespace: terminating()}
	for i := range 120 {
		w.content = append(w.content, object("ConfigMap", fmt.Sprintf("c-%03d", i), func(m *metav1.ObjectMeta) {
			m.CreationTimestamp = *ago(time.Duration(i) * time.Minute)
			m.OwnerReferences = []metav1.OwnerReference{{Kind: "App", Name: "shop"}}
		}))
	}
	found, err := w.diagnose(t)
	if err != nil {
		t.Fatal(err)
	}
	left := found.Remaining[0]
	if len(found.Remaining) != 1 || left.Resource != "configmaps" || left.Count != 120 || len(left.Objects) != objectsShown || left.Objects[0].Name != "c-119" || left.Objects[0].Owners[0] != "App/shop" {
		t.Errorf("left: %s %d %d %+v", left.Resource, left.Count, len(left.Objects), left.Objects[0])
	}
	if len(found.NotExamined) != 1 || !strings.Contains(found.NotExamined[0], "only so many are tried") {
		t.Errorf("not examined: %q", found.NotExamined)
	}
}

// TestCancelled: a diagnosis that was interrupted is none.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := Diagnoser{Clients: Clients{Core: fake.NewClientset(terminating()), Nsinit: nsinitfake.NewClientset(), APIs: aggregatorfake.NewClientset(),
		Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()),
		Discover: func() ([]*metav1.APIResourceList, error) { cancel(); return nil, nil }}, Clock: testingclock.NewFakePassiveClock(now())}
	if _, err := d.Diagnose(ctx, "ns"); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestFinalizerManager(t *testing.T) {
	managed := []metav1.ManagedFieldsEntry{
		{Manager: "status", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"a/b\"":{}}}}`)},
		{Manager: "broken", FieldsV1: metav1.NewFieldsV1(`{`)},
		{Manager: "other", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"c/d\"":{}}}}`)},
		{Manager: "operator", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{".":{},"v:\"a/b\"":{}}}}`)},
	}
	if got := finalizerManager(managed, "a/b"); got != "operator" {
		t.Errorf("got %q", got)
	}
	if got := finalizerManager(managed, "e/f"); got != "" {
		t.Errorf("got %q", got)
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func now() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: now().Add(-d)} }

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

func young(n *corev1.Namespace) { n.DeletionTimestamp = ago(5 * time.Second) }

func conditions(conditions ...corev1.NamespaceCondition) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) { n.Status.Conditions = conditions }
}

// is is a condition that is True.
func is(kind corev1.NamespaceConditionType, message string) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionTrue, Message: message, LastTransitionTime: *ago(2 * time.Minute)}
}

// lacks is a condition that is True because an object does not exist.
func lacks(kind corev1.NamespaceConditionType, message string) corev1.NamespaceCondition {
	condition := is(kind, message)
	condition.Reason = v1alpha1.ReasonObjectsMissing
	return condition
}

func lifecycleHeld(n *corev1.Namespace) {
	n.Spec.Finalizers, n.Finalizers = nil, []string{v1alpha1.NamespaceFinalizer}
}

// contentHeld: a participant holds the content.
func contentHeld(n *corev1.Namespace) {
	lifecycleHeld(n)
	n.Finalizers = append(n.Finalizers, v1alpha1.ContentFinalizer)
}

// contentRefused: kube-controller-manager tried to delete the content.
func contentRefused(n *corev1.Namespace) {
	n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	conditions(is(corev1.NamespaceDeletionContentFailure, "nsinit-content refused it"))(n)
}

// holding makes the participant of a lifecycle hold the content.
func holding(l *v1alpha1.NamespaceLifecycle) {
	l.Spec.Plan = []v1alpha1.PlannedInitializer{{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "a.example.com", Finalizer: true, Holds: new(v1alpha1.HoldContent)}}}
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

// nsinitAPI is nsinit's registration.
func nsinitAPI(available apiregistrationv1.ConditionStatus) *apiregistrationv1.APIService {
	service := apiService("nsinit.dev", "v1alpha1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: available,
		Reason: "FailedDiscoveryCheck", Message: "connection refused", LastTransitionTime: *ago(2 * time.Minute)})
	service.Spec.Service.Namespace = "nsinit-system"
	return service
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

func lifecycle(changes ...func(*v1alpha1.NamespaceLifecycle)) *v1alpha1.NamespaceLifecycle {
	r := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "r"}, Spec: v1alpha1.NamespaceLifecycleSpec{
		NamespaceUID: "u", Plan: []v1alpha1.PlannedInitializer{
			{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "a.example.com"}}, {RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "b.example.com"}},
		},
		Initializers: &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: "b.example.com"}}},
	}}
	r.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "b.example.com", StartTime: &metav1.MicroTime{Time: now().Add(-time.Minute)}}}
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionInitializing, Message: `waiting for initializer "b.example.com" (2 of 2)`}}
	for _, change := range changes {
		change(r)
	}
	return r
}

func forbidden(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: 403, Message: message}}
}

// bare is a cluster without nsinit.
func bare(services ...*apiregistrationv1.APIService) Installation {
	i := Installation{Time: now()}
	for _, service := range services {
		i.APIServices.Object = append(i.APIServices.Object, *service)
	}
	return i
}

// installed is a cluster in which nsinit works, with a NamespaceLifecycle for the namespace, or without.
func installed(lifecycle *v1alpha1.NamespaceLifecycle, err error) Installation {
	i := bare(nsinitAPI(apiregistrationv1.ConditionTrue))
	i.Lifecycle, i.Controller = answer(lifecycle, err), answer(lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second), nil)
	return i
}

// withoutRegistration is an installation during an outage of nsinit-apiserver: nsinit-controller-manager has removed the registration.
func withoutRegistration() Installation {
	i := installed(nil, nil)
	i.APIServices.Object = nil
	return i
}

// withoutPrograms is an installation during a total outage: of nsinit, only the policies are left.
func withoutPrograms() Installation {
	i := stopped(withoutRegistration())
	i.Guard = answer(&admissionregistrationv1.ValidatingAdmissionPolicy{}, nil)
	return i
}

// stopped is an installation whose nsinit-controller-manager does not run.
func stopped(i Installation) Installation {
	i.Controller = answer(lease("nsinit-system", "nsinit-controller-manager", "", 0), nil)
	return i
}

func absent(resource string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "ns")
}

// named is the answer for the namespace.
func named(changes ...func(*corev1.Namespace)) Answer[*corev1.Namespace] {
	return answer(terminating(changes...), nil)
}

func listing(resource string, objects ...*metav1.PartialObjectMetadata) Listing {
	return Listing{Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Objects: objects}
}

// tried is a dry-run deletion of each of some objects.
func tried(err error, objects ...string) []Deletion {
	var all []Deletion
	for _, object := range objects {
		all = append(all, Deletion{Object: object, Err: err})
	}
	return all
}

// deleting is a NamespaceLifecycle that is being deleted, and which a participant holds.
func deleting(r *v1alpha1.NamespaceLifecycle) {
	r.DeletionTimestamp, r.Spec.Finalizers = ago(2*time.Minute), []v1alpha1.FinalizerName{"kubernetes", "a.example.com"}
	r.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "a.example.com", Message: "no access", LastActor: "system:serviceaccount:quota:server"}}
}

func former(r *v1alpha1.NamespaceLifecycle) { r.Spec.NamespaceUID = "former" }

func failed(r *v1alpha1.NamespaceLifecycle) {
	r.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no such cost centre"}
	r.Spec.Initializers.FailedInitializer = "b.example.com"
	r.Status.Conditions[0].Message = `initializer "b.example.com" failed: no such cost centre; the namespace is deleted`
}

func stalled(r *v1alpha1.NamespaceLifecycle) {
	r.Status.Initializers[0].StalledTime = &metav1.MicroTime{Time: now()}
}

// wait adds a pending initializer.
func wait(r *v1alpha1.NamespaceLifecycle, name string, ordering *v1alpha1.InitializerOrdering) {
	r.Spec.Plan = append(r.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name, Ordering: ordering}})
	r.Spec.Initializers.Pending = append(r.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name})
	r.Status.Initializers = append(r.Status.Initializers, v1alpha1.InitializerStatus{Name: name})
}

// parallel lets b and c act at the same time, d after both, and e after all.
func parallel(r *v1alpha1.NamespaceLifecycle) {
	wait(r, "c.example.com", &v1alpha1.InitializerOrdering{})
	wait(r, "d.example.com", &v1alpha1.InitializerOrdering{After: []string{"b.example.com", "c.example.com"}})
	wait(r, "e.example.com", nil)
	r.Spec.Plan[1].FailurePolicy = new(v1alpha1.Ignore)
	r.Status.Initializers[0].Message, r.Status.Initializers[0].Deadline = "two of three", &metav1.MicroTime{Time: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)}
}

// ruleCase is a case of TestRules.
type ruleCase struct {
	observation Observation
	// want are the findings, as "state cause".
	want []string
	// says are parts of the messages, helps the commands of remedies.
	says, helps []string
}

// TestRules: the findings of an observation are the same in whichever order the rules run, and every cause is found.
func TestRules(t *testing.T) {
	quotaWith := func(used corev1.ResourceList) corev1.ResourceQuota {
		hard := corev1.ResourceList{"pods": resource.MustParse("1")}
		return corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", CreationTimestamp: *ago(time.Hour)}, Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
	}
	silent := errors.New("it never answers")
	undiscovered := []error{&discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: silent}}}
	metrics := func(status apiregistrationv1.ConditionStatus) *apiregistrationv1.APIService {
		return apiService("metrics.k8s.io", "v1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: status, Reason: "MissingEndpoints", Message: "no endpoints"})
	}
	none := installed(nil, absent("namespacelifecycles"))
	unregistered := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "ns", "404 page not found", 0, true)
	gone := Answer[*corev1.Namespace]{Err: absent("namespaces")}
	listsConfigMap := []Listing{listing("configmaps", object("ConfigMap", "a"))}
	running := answer(lease("kube-system", "kube-controller-manager", "cp-1", time.Second), nil)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	ready := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	ended := []Listing{listing("pods", object("Pod", "p", deleted(5*time.Minute)))}

	found := map[Cause]bool{}
	tests := map[string]ruleCase{
		"open":                        {Observation{Installation: none, Namespace: named(closed, open)}, nil, nil, nil},
		"a former state":              {Observation{Installation: installed(lifecycle(former), nil), Namespace: named(closed, open)}, nil, nil, nil},
		"opened by hand, and settled": {Observation{Installation: installed(lifecycle(func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Initializers = nil }), nil), Namespace: named(closed, open)}, nil, nil, nil},
		"an API that is down does not block an open namespace": {Observation{Installation: bare(apiService("metrics.k8s.io", "v1")), Namespace: named(closed, open)},
			[]string{"Healthy APIUnavailable"}, []string{"kube-apiserver has not tried it yet"}, nil},
		"an API that is down does not block an initialization": {Observation{Installation: bare(nsinitAPI(apiregistrationv1.ConditionTrue), apiService("metrics.k8s.io", "v1")), Namespace: named(closed)},
			[]string{"Stuck LifecycleMissing", "Healthy APIUnavailable"}, nil, nil},
		"a degraded plan": {Observation{Installation: installed(lifecycle(func(r *v1alpha1.NamespaceLifecycle) {
			r.Spec.Initializers = nil
			r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionPlanDegraded, Status: metav1.ConditionTrue, Message: "an expression failed"})
		}), nil), Namespace: named(closed, open)}, []string{"Healthy PlanDegraded"}, []string{"an expression failed"}, []string{"kubectl nsinit plan ns"}},
		"protected": {Observation{Installation: none, Namespace: named(closed, open), DeletionErr: forbidden("protected")}, []string{"Healthy DeletionProtected"}, []string{"refused: protected"}, nil},
		"frozen": {Observation{Installation: none, Namespace: named(closed, open, func(n *corev1.Namespace) {
			n.Labels, n.Annotations = map[string]string{v1alpha1.LabelFrozen: ""}, map[string]string{v1alpha1.AnnotationFrozenBy: "jane", v1alpha1.AnnotationFrozenReason: "audit"}
		})}, []string{"Healthy NamespaceFrozen"}, []string{`user "jane" froze the namespace: audit`}, []string{"kubectl nsinit unfreeze ns"}},
		"frozen and terminating": {Observation{Installation: none, Content: listsConfigMap, Deletions: tried(nil, "configmaps/a"), Namespace: named(young, func(n *corev1.Namespace) {
			n.Labels, n.Annotations = map[string]string{v1alpha1.LabelFrozen: ""}, map[string]string{v1alpha1.AnnotationFrozenBy: "jane", v1alpha1.AnnotationFrozenReason: "audit"}
		})}, []string{"Stuck NamespaceFrozen"}, []string{"Its content is kept until it is unfrozen: configmaps (1)"}, []string{"kubectl nsinit unfreeze ns"}},
		"a user who may not delete it": {Observation{Installation: none, Namespace: named(closed, open), DeletionErr: forbidden(`User "jane" cannot delete resource "namespaces"`)}, nil, nil, nil},

		// The namespace controller.
		"in progress":          {Observation{Installation: none, Namespace: named(young), Content: listsConfigMap, Deletions: tried(nil, "configmaps/a")}, []string{"Waiting NamespaceControllerAtWork"}, nil, nil},
		"about to be removed":  {Observation{Installation: installed(lifecycle(deleting, func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Finalizers = nil }), nil), Namespace: named(lifecycleHeld, young)}, []string{"Waiting NamespaceControllerAtWork"}, []string{"about to be removed"}, nil},
		"about to be released": {Observation{Installation: none, Namespace: named(lifecycleHeld, young)}, []string{"Waiting LifecycleMissing"}, []string{"every participant has cleaned up"}, nil},
		"no controller":        {Observation{Installation: none, Namespace: named(), Content: listsConfigMap, Deletions: tried(nil, "configmaps/a"), NamespaceController: Answer[*coordinationv1.Lease]{Err: absent("leases")}}, []string{"Stuck NamespaceControllerSilent"}, []string{"Lease kube-system/kube-controller-manager does not exist"}, nil},
		"the Lease lapsed":     {Observation{Installation: none, Namespace: named(young), NamespaceController: answer(lease("kube-system", "kube-controller-manager", "cp-1", time.Minute), nil)}, []string{"Stuck NamespaceControllerSilent"}, []string{"cp-1 has not renewed Lease kube-system/kube-controller-manager since 2026-11-21T11:59:00Z"}, nil},
		"the Lease is held, and it has tried": {Observation{Installation: none, Namespace: named(conditions(is(corev1.NamespaceContentRemaining, "")), func(n *corev1.Namespace) { n.DeletionTimestamp = ago(2 * time.Minute) }), NamespaceController: running},
			[]string{"Waiting NamespaceControllerAtWork"}, nil, nil},
		"the Lease is held, and it has tried for long": {Observation{Installation: none, Namespace: named(conditions(is(corev1.NamespaceContentRemaining, ""))), NamespaceController: running}, []string{"Stuck NamespaceControllerSilent"}, []string{"cp-1 holds Lease"}, nil},
		"it cannot delete what you can": {Observation{Installation: none, Namespace: named(conditions(is(corev1.NamespaceDeletionContentFailure, "backups need it"))), Content: listsConfigMap, Deletions: tried(nil, "configmaps/a"), NamespaceController: running},
			[]string{"Stuck ContentDeletionFailed"}, []string{"although you could: backups need it"}, []string{"kubectl nsinit why ns --as=system:serviceaccount:kube-system:namespace-controller"}},

		// APIs.
		"an API that is down": {Observation{Installation: bare(nsinitAPI(apiregistrationv1.ConditionTrue), metrics(apiregistrationv1.ConditionFalse)), Namespace: named(conditions(is(corev1.NamespaceDeletionContentFailure, "explained"))), DiscoveryErrs: undiscovered},
			[]string{"Stuck APIUnavailable"}, []string{"metrics.k8s.io/v1 (APIService v1.metrics.k8s.io, service apis/server) is not available (MissingEndpoints: no endpoints)"}, []string{"kubectl delete apiservice v1.metrics.k8s.io"}},
		"an API that is up and cannot be discovered": {Observation{Installation: bare(metrics(apiregistrationv1.ConditionTrue)), Namespace: named(), DiscoveryErrs: undiscovered},
			[]string{"Stuck DiscoveryFailed"}, []string{"metrics.k8s.io/v1 cannot be discovered (it never answers)"}, []string{"kubectl get --raw /apis/metrics.k8s.io/v1"}},
		"no discovery":                     {Observation{Installation: none, Namespace: named(), DiscoveryErrs: []error{silent}}, []string{"Stuck DiscoveryFailed"}, []string{"of the cluster cannot be discovered (it never answers)"}, []string{"kubectl get --raw /apis"}},
		"a resource that cannot be listed": {Observation{Installation: none, Namespace: named(), Content: []Listing{{Resource: listing("pods").Resource, Err: silent}}}, []string{"Stuck ListFailed"}, []string{"the pods in the namespace cannot be listed (it never answers)"}, []string{"kubectl --namespace ns get pods"}},
		"a resource of an API that is down": {Observation{Installation: bare(metrics(apiregistrationv1.ConditionFalse)), Namespace: named(),
			Content: []Listing{{Resource: schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1", Resource: "pods"}, Err: silent}}}, []string{"Stuck APIUnavailable"}, nil, nil},

		// Content.
		"a finalizer, for a moment": {Observation{Installation: none, Namespace: named(young), Content: []Listing{listing("pods", object("Pod", "p", deleted(5*time.Second, "example.com/hold")))}},
			[]string{"Waiting ContentFinalizer", "Waiting NamespaceControllerAtWork"}, []string{`pods/p has the finalizer "example.com/hold", which its controller has not removed yet`},
			[]string{`kubectl --namespace ns get pods/p --output json | jq '.metadata.finalizers -= ["example.com/hold"]' | kubectl replace -f -`}},
		"a name that no command can have": {Observation{Installation: none, Namespace: named(), Content: []Listing{listing("roles", object("Role", "a\x1b", deleted(time.Hour, "example.com/hold")), object("Role", "b", deleted(time.Hour, "example.com/hold")))}},
			[]string{"Stuck ContentFinalizer"}, []string{`"roles/a\x1b", roles/b have the finalizer "example.com/hold"`}, []string{"kubectl --namespace ns get roles/b --output yaml --show-managed-fields"}},
		"known finalizers": {Observation{Installation: none, Namespace: named(), Content: []Listing{
			listing("configmaps", object("ConfigMap", "a", deleted(time.Hour, metav1.FinalizerDeleteDependents)), object("ConfigMap", "b", deleted(time.Hour, metav1.FinalizerDeleteDependents))),
			listing("persistentvolumeclaims", object("PersistentVolumeClaim", "data", deleted(time.Hour, "kubernetes.io/pvc-protection")))}},
			[]string{"Stuck ContentFinalizer", "Stuck ContentFinalizer"}, []string{"configmaps/a, configmaps/b have the finalizer", "removed by the garbage collector", "when no pod uses the claim"}, []string{"kubectl --namespace ns get pods"}},
		"a grace period": {Observation{Installation: none, Namespace: named(young), Content: []Listing{listing("pods", object("Pod", "p", deleted(-20*time.Second)))}},
			[]string{"Waiting GracePeriod", "Waiting NamespaceControllerAtWork"}, []string{"pods/p: the grace period ends in 20s at the latest"}, nil},
		"a grace period that is over": {Observation{Installation: none, Namespace: named(), Content: []Listing{listing("things", object("Thing", "a", deleted(5*time.Minute)))}},
			[]string{"Stuck GracePeriod"}, []string{"things/a: the grace period is over, and the end is not confirmed"}, []string{"kubectl --namespace ns describe things/a"}},
		"a pod whose node does not exist": {Observation{Installation: none, Namespace: named(), Content: ended, Pods: answer([]corev1.Pod{pod}, nil), Nodes: map[string]Answer[*corev1.Node]{"n1": {Err: absent("nodes")}}},
			[]string{"Stuck GracePeriod"}, []string{`by the kubelet of node "n1", which does not exist`}, []string{"kubectl --namespace ns delete --grace-period=0 --force pods/p"}},
		"a pod whose node is Ready":             {Observation{Installation: none, Namespace: named(), Content: ended, Pods: answer([]corev1.Pod{pod}, nil), Nodes: map[string]Answer[*corev1.Node]{"n1": answer(ready, nil)}}, []string{"Stuck GracePeriod"}, []string{"which is Ready"}, nil},
		"a pod whose node is not Ready":         {Observation{Installation: none, Namespace: named(), Content: ended, Pods: answer([]corev1.Pod{pod}, nil), Nodes: map[string]Answer[*corev1.Node]{"n1": answer(&corev1.Node{}, nil)}}, []string{"Stuck GracePeriod"}, []string{"which is not Ready"}, nil},
		"a pod, and a user who may read no pod": {Observation{Installation: none, Namespace: named(), Content: ended, Pods: Answer[[]corev1.Pod]{Err: forbidden("no")}}, []string{"Stuck GracePeriod"}, []string{"pods/p: the grace period is over"}, nil},

		// Deletions.
		"a webhook": {Observation{Installation: none, Namespace: named(), Content: listsConfigMap, Deletions: tried(forbidden(`admission webhook "keep.example.com" denied the request: no`), "configmaps/a", "configmaps/b"), Webhooks: map[string][]string{"keep.example.com": {"mutatingwebhookconfiguration/keeper"}}},
			[]string{"Stuck WebhookRefusesDeletion"}, []string{`"keep.example.com" of mutatingwebhookconfiguration/keeper refuses the deletion of configmaps/a, configmaps/b`}, []string{"kubectl edit mutatingwebhookconfiguration/keeper"}},
		"a webhook that does not answer": {Observation{Installation: none, Namespace: named(), Content: listsConfigMap, Deletions: tried(apierrors.NewInternalError(errors.New(`failed calling webhook "keep.example.com"`)), "configmaps/a")},
			[]string{"Stuck WebhookUnavailable"}, []string{`the admission webhook "keep.example.com" reviews the deletion of configmaps/a`}, []string{"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations --output yaml"}},
		"a webhook without dry run":              {Observation{Installation: none, Namespace: named(young), Content: listsConfigMap, Deletions: tried(apierrors.NewBadRequest(`admission webhook "keep.example.com" does not support dry run`), "configmaps/a")}, []string{"Waiting NamespaceControllerAtWork"}, nil, nil},
		"a deletion for which there was no time": {Observation{Installation: none, Namespace: named(young), Content: listsConfigMap, Deletions: tried(errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline"), "configmaps/a")}, []string{"Waiting NamespaceControllerAtWork"}, nil, nil},
		"a policy": {Observation{Installation: none, Namespace: named(), Content: listsConfigMap, Deletions: tried(forbidden(`ValidatingAdmissionPolicy 'keep' with binding 'keep-all' denied request: backups need it`), "configmaps/a")},
			[]string{"Stuck PolicyRefusesDeletion"}, []string{`the ValidatingAdmissionPolicy "keep" refuses the deletion of configmaps/a`}, []string{"kubectl edit validatingadmissionpolicybinding keep-all"}},
		"an update": {Observation{Installation: none, Namespace: named(), Updates: tried(forbidden(`ValidatingAdmissionPolicy 'keep' with binding 'keep-all' denied request: backups need it`), "configmaps/a"), NamespaceController: running},
			[]string{"Stuck PolicyRefusesDeletion"}, []string{`the ValidatingAdmissionPolicy "keep" refuses the removal of finalizers from configmaps/a`}, []string{"kubectl edit validatingadmissionpolicybinding keep-all"}},
		"a lost claim": {Observation{Installation: none, Namespace: named(closed, open), LostClaims: map[string][]string{"ns": {"a", "b"}}},
			[]string{"Healthy ClaimLost"}, []string{`of namespace "ns" are in the phase Lost`, "a, b."}, []string{"kubectl --namespace ns describe persistentvolumeclaims/a persistentvolumeclaims/b"}},
		"another refusal": {Observation{Installation: none, Namespace: named(), Content: listsConfigMap, Deletions: tried(forbidden("quota exceeded"), "configmaps/a")}, []string{"Stuck DeletionRefused"}, []string{"the deletion of configmaps/a is refused: quota exceeded"}, nil},

		// Finalizers of the namespace.
		"finalizers of others": {Observation{Installation: none, Namespace: named(func(n *corev1.Namespace) {
			n.Spec.Finalizers, n.Finalizers = []corev1.FinalizerName{"openshift.com/origin"}, []string{"example.com/hold"}
		})},
			[]string{"Stuck NamespaceFinalizer", "Stuck SpecFinalizer"}, []string{"openshift.com/origin", "example.com/hold"},
			[]string{`kubectl get namespace ns --output json | jq '.spec.finalizers -= ["openshift.com/origin"]' | kubectl replace --raw /api/v1/namespaces/ns/finalize -f -`}},
		"strict-name-reuse": {Observation{Installation: none, Namespace: named(func(n *corev1.Namespace) {
			n.DeletionTimestamp, n.Spec.Finalizers = ago(5*time.Minute), []corev1.FinalizerName{v1alpha1.NameReuseFinalizer}
		})}, []string{"Waiting SpecFinalizer"}, []string{"until no earlier request"}, []string{"kubectl nsinit check"}},
		"strict-name-reuse, stuck": {Observation{Installation: none, Namespace: named(func(n *corev1.Namespace) {
			n.DeletionTimestamp, n.Spec.Finalizers = ago(time.Hour), []corev1.FinalizerName{v1alpha1.NameReuseFinalizer}
		})}, []string{"Stuck SpecFinalizer"}, nil, nil},
		"emptied finalizers": {Observation{Installation: none, Namespace: named(func(n *corev1.Namespace) { n.Spec.Finalizers = nil })}, []string{"Stuck FinalizersEmptied"}, []string{"until a second DELETE"}, []string{"kubectl delete namespace ns"}},
		"emptied finalizers, and content": {Observation{Installation: none, Namespace: named(func(n *corev1.Namespace) { n.Spec.Finalizers = nil }), Content: listsConfigMap}, []string{"Stuck FinalizersEmptied"}, nil,
			[]string{`kubectl get namespace ns --output json | jq '.spec.finalizers = ["kubernetes"]' | kubectl replace --raw /api/v1/namespaces/ns/finalize -f -`}},
		"orphans":                 {Observation{Installation: none, Namespace: gone, Content: listsConfigMap}, []string{"Stuck OrphanedContent"}, []string{"still stored: configmaps (1)"}, []string{"kubectl create namespace ns && kubectl delete namespace ns"}},
		"nothing of no namespace": {Observation{Installation: none, Namespace: gone}, nil, nil, nil},

		// nsinit itself.
		"nsinit is down": {Observation{Installation: bare(nsinitAPI(apiregistrationv1.ConditionFalse)), Namespace: named(closed)}, []string{"Stuck NsinitUnavailable"}, []string{"the API of nsinit (APIService v1alpha1.nsinit.dev, service nsinit-system/server) is not available"}, []string{"kubectl describe apiservice v1alpha1.nsinit.dev"}},
		"the API is not registered": {Observation{Installation: withoutRegistration(), Namespace: named(closed)}, []string{"Stuck NsinitUnavailable"}, []string{"the API of nsinit is not registered", "no pod of nsinit-apiserver is ready"},
			[]string{"kubectl --namespace nsinit-system get service nsinit-apiserver; kubectl --namespace nsinit-system get endpointslices --selector kubernetes.io/service-name=nsinit-apiserver"}},
		"no program of nsinit runs":       {Observation{Installation: withoutPrograms(), Namespace: named(lifecycleHeld)}, []string{"Stuck NsinitUnavailable"}, []string{"the API of nsinit is not registered"}, nil},
		"nsinit is not installed, closed": {Observation{Installation: bare(), Namespace: named(closed)}, []string{"Stuck NsinitUninstalled"}, []string{"the namespace is closed (label nsinit.dev/initializing), and nsinit is not installed"}, []string{"kubectl label namespace ns nsinit.dev/initializing-"}},
		"nsinit is not installed, and held the content": {Observation{Installation: bare(), Namespace: named(contentHeld)}, []string{"Stuck NsinitUninstalled"}, nil,
			[]string{`kubectl get namespace ns --output json | jq '.metadata.finalizers -= ["nsinit.dev/content", "nsinit.dev/lifecycle"] | .spec.finalizers |= (. + ["kubernetes"] | unique)' | kubectl replace --raw /api/v1/namespaces/ns/finalize -f -`}},
		"nsinit is not installed, held": {Observation{Installation: bare(), Namespace: named(lifecycleHeld)}, []string{"Stuck NsinitUninstalled"}, []string{"nsinit.dev/lifecycle in metadata.finalizers"},
			[]string{`kubectl get namespace ns --output json | jq '.metadata.finalizers -= ["nsinit.dev/lifecycle"]' | kubectl replace -f -`}},
		"nsinit is not installed, as a tenant sees it": {Observation{Installation: Installation{Time: now(), APIServices: Answer[[]apiregistrationv1.APIService]{Err: forbidden("no")}, Lifecycle: Answer[*v1alpha1.NamespaceLifecycle]{Err: unregistered}}, Namespace: named(closed)},
			[]string{"Stuck NsinitUninstalled"}, nil, nil},
		"nsinit refuses": {Observation{Installation: installed(nil, apierrors.NewServiceUnavailable("the storage was lost")), Namespace: named(closed, conditions(is(v1alpha1.ConditionFailing, "explained")))},
			[]string{"Stuck NsinitRefuses"}, []string{"the storage was lost"}, nil},
		"nsinit's controller is down": {Observation{Installation: stopped(none), Namespace: named(closed)}, []string{"Stuck NsinitControllerDown", "Stuck LifecycleMissing"}, []string{"Lease nsinit-system/nsinit-controller-manager has no holder"}, nil},
		"nsinit's controller never ran": {Observation{Installation: Installation{Time: now(), APIServices: none.APIServices, Lifecycle: none.Lifecycle, Controller: Answer[*coordinationv1.Lease]{Err: absent("leases")}}, Namespace: named(closed, conditions(is(v1alpha1.ConditionInitializing, "no quota")))},
			[]string{"Stuck NsinitControllerDown", "Stuck LifecycleMissing"}, []string{"does not exist", "has not created the NamespaceLifecycle yet: no quota"}, nil},
		"nsinit fails": {Observation{Installation: installed(lifecycle(), nil), Namespace: named(closed, conditions(is(v1alpha1.ConditionFailing, "cannot create: no quota")))}, []string{"Stuck NsinitFailing", "Waiting InitializerPending"}, []string{"cannot create: no quota"}, []string{"kubectl nsinit check"}},
		"nsinit does not delete its NamespaceLifecycle": {Observation{Installation: installed(lifecycle(), nil), Namespace: named(lifecycleHeld)}, []string{"Stuck NsinitFailing"}, []string{"has not deleted the NamespaceLifecycle yet"}, nil},

		// Initializers and participants.
		"an initializer": {Observation{Installation: installed(lifecycle(), nil), Namespace: named(closed)}, []string{"Waiting InitializerPending"}, []string{`waiting for initializer "b.example.com" (2 of 2)`}, []string{"kubectl nsinit skip ns b.example.com"}},
		"an initializer that has stalled": {Observation{Installation: installed(lifecycle(stalled, func(r *v1alpha1.NamespaceLifecycle) {
			wait(r, "c.example.com", nil)
			r.Status.Initializers[0].LastActor = "system:serviceaccount:quota:server"
		}), nil), Namespace: named(closed)}, []string{"Stuck InitializerPending"}, []string{"(2 of 2); after it: c.example.com"}, []string{"kubectl --namespace quota get pods"}},
		"several initializers": {Observation{Installation: installed(lifecycle(parallel, stalled), nil), Namespace: named(closed)},
			[]string{"Stuck InitializerPending", "Waiting InitializerPending"}, []string{
				`waiting for initializer "b.example.com" until 2026-02-03T04:05:06Z, its deadline with failurePolicy Ignore: two of three; after it: d.example.com (waits for b.example.com, c.example.com), e.example.com`,
				`waiting for initializer "c.example.com"; after it: d.example.com (waits for b.example.com, c.example.com), e.example.com`,
			}, []string{"kubectl nsinit skip ns b.example.com", "kubectl nsinit skip ns c.example.com"}},
		"nsinit's own initializer": {Observation{Installation: installed(lifecycle(func(r *v1alpha1.NamespaceLifecycle) {
			r.Spec.Plan[0].Name, r.Spec.Initializers.Pending[0].Name = v1alpha1.InitializerLifecycle, v1alpha1.InitializerLifecycle
		}), nil), Namespace: named(closed)}, []string{"Waiting InitializerPending"}, nil, nil},
		"every initializer is done": {Observation{Installation: installed(lifecycle(func(r *v1alpha1.NamespaceLifecycle) {
			r.Spec.Initializers, r.Status.Conditions[0].Message = nil, "every initializer is done"
		}), nil), Namespace: named(closed)}, []string{"Stuck InitializerPending"}, []string{"every initializer is done, and nsinit-controller-manager has not opened the namespace yet"}, nil},
		"its quota is not in force": {Observation{Installation: installed(lifecycle(), nil), Namespace: named(closed), Quotas: []corev1.ResourceQuota{quotaWith(nil), quotaWith(corev1.ResourceList{"pods": resource.MustParse("0")})}},
			[]string{"Stuck QuotaNotInForce", "Waiting InitializerPending"}, []string{`ResourceQuota "q" is not in force: kube-controller-manager has not counted pods yet`}, []string{"kubectl --namespace ns describe resourcequota q"}},
		"it waits for an object": {Observation{Installation: installed(lifecycle(func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Initializers = nil }), nil), Namespace: named(closed, conditions(lacks(v1alpha1.ConditionInitializing, "waiting for x")))},
			[]string{"Waiting ObjectsMissing"}, []string{"waiting for x"}, []string{"kubectl --namespace ns get serviceaccount/default configmap/kube-root-ca.crt"}},
		"a tenant sees that it waits for an object": {Observation{Installation: installed(nil, forbidden("no")), Namespace: named(closed, conditions(lacks(v1alpha1.ConditionInitializing, "waiting for x")))}, []string{"Waiting ObjectsMissing"}, []string{"waiting for x"}, nil},
		"it was opened without an object": {Observation{Installation: installed(lifecycle(func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Initializers = nil }), nil), Namespace: named(closed, open, conditions(lacks(v1alpha1.ConditionReady, "opened without x")))},
			[]string{"Stuck ObjectsMissing"}, []string{"opened without x"}, nil},
		"opened by hand":                            {Observation{Installation: stopped(installed(lifecycle(), nil)), Namespace: named(closed, open)}, []string{"Stuck NsinitControllerDown", "Waiting InitializerPending"}, []string{"a user opened the namespace", "b.example.com"}, nil},
		"a tenant reads conditions":                 {Observation{Installation: installed(nil, forbidden("no")), Namespace: named(closed, conditions(is(v1alpha1.ConditionInitializing, "waiting for b")))}, []string{"Waiting InitializerPending"}, []string{"waiting for b"}, nil},
		"a tenant reads that it stalled":            {Observation{Installation: installed(nil, forbidden("no")), Namespace: named(closed, conditions(is(v1alpha1.ConditionInitializing, "waiting for b"), is(v1alpha1.ConditionStalled, "b is slow")))}, []string{"Stuck InitializerPending"}, []string{"b is slow"}, nil},
		"a tenant reads that a participant stalled": {Observation{Installation: installed(nil, forbidden("no")), Namespace: named(lifecycleHeld, conditions(is(v1alpha1.ConditionStalled, "a is slow")))}, []string{"Stuck ParticipantPending"}, []string{"a is slow"}, nil},
		"failed":        {Observation{Installation: installed(lifecycle(failed), nil), Namespace: named(closed), DeletionErr: forbidden("protected")}, []string{"Stuck InitializationFailed", "Stuck DeletionProtected"}, []string{`initializer "b.example.com" failed: no such cost centre`}, []string{"kubectl describe namespacelifecycle ns"}},
		"a participant": {Observation{Installation: installed(lifecycle(deleting), nil), Namespace: named(lifecycleHeld)}, []string{"Stuck ParticipantPending"}, []string{`participant "a.example.com" has not cleaned up yet: no access (system:serviceaccount:quota:server)`}, []string{"kubectl nsinit finalize ns a.example.com", "kubectl --namespace quota get pods"}},
		"a participant that holds the content": {Observation{Installation: installed(lifecycle(deleting, holding), nil), Namespace: named(contentHeld)}, []string{"Stuck ParticipantPending"},
			[]string{`participant "a.example.com" has not cleaned up yet, and keeps the content of the namespace until then: no access`}, []string{"kubectl nsinit finalize ns a.example.com"}},
		"the content was refused":       {Observation{Installation: installed(lifecycle(deleting, holding), nil), Namespace: named(contentHeld, contentRefused)}, []string{"Stuck ParticipantPending"}, nil, nil},
		"a participant of no namespace": {Observation{Installation: installed(lifecycle(deleting), nil), Namespace: gone}, []string{"Stuck ParticipantPending"}, []string{"the namespace does not exist any more, and participant"}, nil},
		"a former namespace":            {Observation{Installation: installed(lifecycle(deleting, former), nil), Namespace: named(closed)}, []string{"Stuck FormerIncarnation"}, []string{`the former namespace of its name is cleaned up: participant "a.example.com"`}, nil},
	}
	maps.Copy(tests, servedCases())
	maps.Copy(tests, objectCases())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := test.observation
			o.Name, o.Patience = "ns", DefaultPatience
			findings := judge(o, rules()...)
			for range 5 {
				shuffled := rules()
				rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				if diff := cmp.Diff(findings, judge(o, shuffled...)); diff != "" {
					t.Errorf("in another order (-want +got):\n%s", diff)
				}
			}
			var got, messages, commands []string
			for _, f := range findings {
				found[f.Cause] = true
				got, messages = append(got, string(f.State)+" "+string(f.Cause)), append(messages, f.Message)
				risky := false
				for _, remedy := range f.Remedies {
					commands = append(commands, remedy.Command)
					if risky && remedy.Risk == "" || strings.Contains(remedy.Command, "$") {
						t.Errorf("remedy %+v comes after one with a risk, or lacks a word", remedy)
					}
					risky = remedy.Risk != ""
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s%s", diff, strings.Join(messages, "\n"))
			}
			for _, part := range test.says {
				if !strings.Contains(strings.Join(messages, "\n"), part) {
					t.Errorf("%q is not in\n%s", part, strings.Join(messages, "\n"))
				}
			}
			for _, part := range test.helps {
				if !strings.Contains(strings.Join(commands, "\n"), part) {
					t.Errorf("%q is not in\n%s", part, strings.Join(commands, "\n"))
				}
			}
		})
	}
	for _, entry := range causes() {
		if !found[entry.cause] {
			t.Errorf("no test finds %s", entry.cause)
		}
	}
}

// TestUnsafeWords: what comes from the cluster is one word of a command, or the command is not offered.
func TestUnsafeWords(t *testing.T) {
	const attack = "x --server=127.0.0.1:9443 --insecure-skip-tls-verify"
	for name, test := range map[string]struct {
		object, finalizer string
		offered           int
		first             string
	}{
		"plain words":             {"roles/b", "a/b", 3, "kubectl --namespace n get roles/b --output yaml --show-managed-fields"},
		"flags in a name":         {"roles/" + attack, "a/b", 3, "kubectl --namespace n get 'roles/" + attack + "' --output yaml --show-managed-fields"},
		"a command in a name":     {"roles/$(reboot)'", "a/b", 3, `kubectl --namespace n get 'roles/$(reboot)'\''' --output yaml --show-managed-fields`},
		"a flag":                  {"-x", "a/b", 1, ""},
		"a control character":     {"roles/a\x1b[31m", "a/b", 1, ""},
		"a line break":            {"roles/a\nreboot", "a/b", 1, ""},
		"no name":                 {"", "a/b", 1, ""},
		"quotes in a jq program":  {"roles/b", `a"] | del(.metadata) | ["`, 2, "kubectl --namespace n get roles/b --output yaml --show-managed-fields"},
		"a space in a jq program": {"roles/b", "a b", 2, "kubectl --namespace n get roles/b --output yaml --show-managed-fields"},
	} {
		t.Run(name, func(t *testing.T) {
			remedies := newFinding(ContentFinalizer, Stuck, nil, "", words{"NAMESPACE": {"n"}, "OBJECT": {test.object}, "FINALIZER": {test.finalizer}, "START": {"true"}, "REMOVABLE": {"true"}}).Remedies
			if len(remedies) != test.offered || remedies[0].Command != test.first {
				t.Errorf("offered %q, want %d, the first %q", remedies, test.offered, test.first)
			}
		})
	}
}

// TestDocs: docs/why.md has the table of causes.
func TestDocs(t *testing.T) {
	const path, begin, end = "../../docs/why.md", "| cause | what it is |\n| --- | --- |\n", "\n\n"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	got, after, _ := strings.Cut(rest, end)
	var want []string
	for _, entry := range causes() {
		want = append(want, "| `"+string(entry.cause)+"` | "+entry.meaning+" |")
	}
	if diff := cmp.Diff(want, strings.Split(got, "\n")); diff == "" {
		return
	} else if !found || os.Getenv("UPDATE_DOCS") == "" {
		t.Fatalf("%s differs from the table of causes; run make generate (-want +got):\n%s", path, diff)
	}
	if err := os.WriteFile(path, []byte(before+begin+strings.Join(want, "\n")+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

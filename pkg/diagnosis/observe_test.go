/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

// world is a cluster with one namespace, ns, in it.
type world struct {
	namespace  *corev1.Namespace
	core       []runtime.Object
	content    []runtime.Object
	apis       []runtime.Object
	lifecycles []runtime.Object
	// refuses returns why a request of the metadata client or for a lifecycle is refused.
	refuses   func(verb, resource, name string) error
	discovery error
	lists     []*metav1.APIResourceList
}

func coreResources() []*metav1.APIResourceList {
	verbs := metav1.Verbs{"list", "delete"}
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: verbs}, {Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs},
		{Name: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true, Verbs: verbs}, {Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}},
		{Name: "persistentvolumes", Kind: "PersistentVolume", Verbs: verbs},
	}}}
}

// diagnose diagnoses the namespace of a world.
func (w world) diagnose(t *testing.T) (*Diagnosis, error) {
	t.Helper()
	return w.diagnoser(t).Diagnose(t.Context(), "ns")
}

func (w world) diagnoser(t *testing.T) Diagnoser {
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
	lifecycles := nsinitfake.NewClientset(w.lifecycles...)
	core := fake.NewClientset(objects...)
	refuse := func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := ""
		if named, ok := action.(interface{ GetName() string }); ok {
			name = named.GetName()
		}
		writes := action.GetVerb() == "delete" || action.GetVerb() == "patch"
		// The fake client drops the options of patches: TestTryUpdates checks them.
		if action.GetVerb() == "delete" && !strings.Contains(fmt.Sprint(action), metav1.DryRunAll) {
			t.Errorf("%s %s was to be deleted in earnest", action.GetResource().Resource, name)
		}
		if w.refuses != nil {
			if err := w.refuses(action.GetVerb(), action.GetResource().Resource, name); err != nil {
				return true, nil, err
			}
		}
		return writes, nil, nil
	}
	core.PrependReactor("create", "subjectaccessreviews", mayUpdate)
	content.PrependReactor("*", "*", refuse)
	lifecycles.PrependReactor("*", "*", refuse)
	core.PrependReactor("*", "*", refuse)
	lists := w.lists
	if lists == nil {
		lists = coreResources()
	}
	calls := 0
	return Diagnoser{
		Clients: Clients{Core: core, Nsinit: lifecycles, APIs: aggregatorfake.NewClientset(w.apis...), Metadata: content,
			Discover: func() ([]*metav1.APIResourceList, error) { return lists, w.discovery }},
		Clock: testingclock.NewFakePassiveClock(now()), Patience: DefaultPatience,
		Progress: func(done, total int) {
			if calls++; done != calls || total != 3 && total != 4 {
				t.Errorf("progress says %d of %d", done, total)
			}
		},
	}
}

// mayUpdate permits every service account to update everything, except for those of the namespace tenant.
func mayUpdate(action clienttesting.Action) (bool, runtime.Object, error) {
	review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
	review.Status.Allowed = review.Spec.ResourceAttributes.Verb == "update" && !strings.HasPrefix(review.Spec.User, "system:serviceaccount:tenant:")
	return true, review, nil
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

// TestObserve: what is read, and what cannot be read or tried, with the verdict.
func TestObserve(t *testing.T) {
	silent := errors.New("it never answers")
	api := []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)}
	elsewhere := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "elsewhere"}}
	leases := []runtime.Object{lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second), lease("kube-system", "kube-controller-manager", "cp-1", time.Second)}
	for name, test := range map[string]struct {
		world
		// want are the findings, as "state cause", and what was not examined.
		want []string
		// says are parts of the messages.
		says []string
	}{
		"an open namespace": {world{namespace: terminating(closed, open)}, nil, nil},
		"protected":         {world{namespace: terminating(closed, open), refuses: refuseOnly("delete", "namespaces", forbidden("protected"))}, []string{"Healthy DeletionProtected"}, nil},
		"failed and protected": {world{namespace: terminating(closed), apis: api, core: leases, lifecycles: []runtime.Object{lifecycle(failed)}, refuses: refuseOnly("delete", "namespaces", forbidden("protected"))},
			[]string{"Stuck InitializationFailed", "Stuck DeletionProtected"}, nil},
		"failed, and the deletion has no answer": {world{namespace: terminating(closed), apis: api, core: leases, lifecycles: []runtime.Object{lifecycle(failed)}, refuses: refuseOnly("delete", "namespaces", context.DeadlineExceeded)},
			[]string{"Stuck InitializationFailed", "NotExamined whether the namespace can be deleted"}, nil},
		"failed, and a webhook without dry run": {world{namespace: terminating(closed), apis: api, core: leases, lifecycles: []runtime.Object{lifecycle(failed)}, refuses: refuseOnly("delete", "namespaces", apierrors.NewBadRequest(`admission webhook "keep.example.com" does not support dry run`))},
			[]string{"Stuck InitializationFailed"}, nil},
		"deletions without an answer": {world{namespace: terminating(young), core: leases, content: []runtime.Object{object("ConfigMap", "a"), object("ConfigMap", "b")}, refuses: refuseOnly("delete", "configmaps", context.DeadlineExceeded)},
			[]string{"Waiting NamespaceControllerAtWork", "NotExamined whether configmaps/a, configmaps/b can be deleted"}, nil},
		"a tenant": {world{namespace: terminating(closed, conditions(is(v1alpha1.ConditionInitializing, "waiting for b"))), apis: api, refuses: refuseOnly("get", "namespacelifecycles", forbidden("no"))},
			[]string{"Waiting InitializerPending", "NotExamined NamespaceLifecycle"}, nil},
		"a user who may read nothing": {world{namespace: terminating(), content: []runtime.Object{object("Pod", "p", deleted(5*time.Minute))}, refuses: func(verb, resource, name string) error {
			if resource == "pods" && verb == "list" || resource == "leases" || resource == "configmaps" {
				return forbidden("no")
			}
			return nil
		}}, []string{"Stuck NamespaceControllerSilent", "NotExamined configmaps", "NotExamined pods", "NotExamined Lease kube-system/kube-controller-manager"}, nil},
		"a participant": {world{namespace: terminating(lifecycleHeld), apis: api, lifecycles: []runtime.Object{lifecycle(deleting)}, refuses: refuseOnly("get", "leases", forbidden("no"))},
			[]string{"Stuck ParticipantPending", "NotExamined Lease nsinit-system/nsinit-controller-manager"}, nil},
		"discovery that fails for a group": {world{namespace: terminating(), core: leases, discovery: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: silent}}}, []string{"Stuck DiscoveryFailed"}, nil},
		"a version that cannot be parsed":  {world{namespace: terminating(), core: leases, lists: append(coreResources(), &metav1.APIResourceList{GroupVersion: "a/b/c"})}, []string{"Stuck DiscoveryFailed"}, []string{"unexpected GroupVersion string: a/b/c"}},
		"a resource that cannot be listed": {world{namespace: terminating(), core: leases, refuses: refuseOnly("list", "pods", apierrors.NewInternalError(silent))}, []string{"Stuck ListFailed"}, nil},
		"a pod": {world{namespace: terminating(), content: []runtime.Object{object("Pod", "p", deleted(5*time.Minute))},
			core: append(leases, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", DeletionTimestamp: ago(5 * time.Minute)}, Spec: corev1.PodSpec{NodeName: "n1"}})}, []string{"Stuck GracePeriod"}, []string{`"n1", which does not exist`}},
		"a webhook": {world{namespace: terminating(), content: []runtime.Object{object("ConfigMap", "a"), object("ConfigMap", "b")}, refuses: refuseOnly("delete", "configmaps", forbidden(`admission webhook "keep.example.com" denied the request: no`)),
			core: append(leases, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "keeper"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "keep.example.com"}}})},
			[]string{"Stuck WebhookRefusesDeletion"}, []string{"mutatingwebhookconfiguration/keeper refuses the deletion of configmaps/a, configmaps/b"}},
		"a webhook whose name is also that of others": {world{namespace: terminating(), content: []runtime.Object{object("ConfigMap", "a")}, refuses: refuseOnly("delete", "configmaps", forbidden(`admission webhook "keep.example.com" denied the request: no`)),
			core: append(leases,
				&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "keep.example.com", NamespaceSelector: elsewhere}}},
				&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "keeper"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "keep.example.com"}}},
				&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "keep.example.com", NamespaceSelector: elsewhere}}},
				&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "keeper"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "keep.example.com"}}})},
			[]string{"Stuck WebhookRefusesDeletion"}, []string{"of mutatingwebhookconfiguration/keeper or validatingwebhookconfiguration/keeper refuses"}},
		"a webhook without dry run": {world{namespace: terminating(young), core: leases, content: []runtime.Object{object("ConfigMap", "a")}, refuses: refuseOnly("delete", "configmaps", apierrors.NewBadRequest(`admission webhook "keep.example.com" does not support dry run`))},
			[]string{"Waiting NamespaceControllerAtWork", "NotExamined whether configmaps/a can be deleted"}, nil},
		"an update that is refused": {world{namespace: terminating(), content: []runtime.Object{object("ConfigMap", "a", deleted(5*time.Minute, "a/b")), object("ConfigMap", "b", deleted(time.Second, "a/b"))}, core: leases, refuses: refuseOnly("patch", "configmaps", apierrors.NewInternalError(errors.New(`failed calling webhook "keep.example.com": no endpoints`)))},
			[]string{"Stuck WebhookUnavailable", "Stuck ContentFinalizer"}, []string{`the admission webhook "keep.example.com" reviews the removal of finalizers from configmaps/a, and does not answer`}},
		"an update of the namespace": {world{namespace: terminating(func(n *corev1.Namespace) { n.Finalizers = []string{"a/b"} }), core: leases, refuses: refuseOnly("patch", "namespaces", forbidden(`admission webhook "keep.example.com" denied the request: no`))},
			[]string{"Stuck WebhookRefusesDeletion", "Stuck NamespaceFinalizer"}, []string{"refuses the removal of finalizers from namespaces/ns"}},
		"an update in an open namespace": {world{namespace: terminating(closed, open), content: []runtime.Object{object("ConfigMap", "a", deleted(5*time.Minute, "a/b"))}, refuses: refuseOnly("patch", "configmaps", forbidden("quota exceeded")), core: leases},
			[]string{"Stuck DeletionRefused", "Stuck ContentFinalizer"}, []string{"the removal of finalizers from configmaps/a is refused: quota exceeded"}},
		"an update that a user may not make": {world{namespace: terminating(), content: []runtime.Object{object("ConfigMap", "a", deleted(5*time.Minute, "a/b"))}, core: leases, refuses: refuseOnly("patch", "configmaps", forbidden(`User "jane" cannot patch resource "configmaps"`))},
			[]string{"Stuck ContentFinalizer", "NotExamined whether configmaps/a can be updated"}, nil},
		"an update of an aggregated API": {world{namespace: terminating(), content: []runtime.Object{object("ConfigMap", "a", deleted(5*time.Minute, "a/b"))}, core: leases, refuses: refuseOnly("patch", "configmaps", forbidden("quota exceeded")),
			apis: []runtime.Object{apiService("", "v1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue})}}, []string{"Stuck ContentFinalizer"}, nil},
		"a lost claim": {world{namespace: terminating(closed, open), core: append(leases, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost}},
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bound"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}})}, []string{"Healthy ClaimLost"}, []string{"do not exist: data."}},
		"what a user may not delete": {world{namespace: terminating(young), core: leases, content: []runtime.Object{object("ConfigMap", "a")}, refuses: refuseOnly("delete", "configmaps", forbidden(`User "jane" cannot delete resource "configmaps"`))},
			[]string{"Waiting NamespaceControllerAtWork", "NotExamined whether configmaps/a can be deleted"}, nil},
		"an object that is gone": {world{namespace: terminating(), core: leases, content: []runtime.Object{object("ConfigMap", "a")}, refuses: refuseOnly("delete", "configmaps", absent("configmaps"))}, []string{"Waiting NamespaceControllerAtWork"}, nil},
		"orphans":                {world{content: []runtime.Object{object("ConfigMap", "a")}}, []string{"Stuck OrphanedContent"}, nil},
	} {
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

// TestTenant: a user who may get neither the namespace nor its NamespaceLifecycle gets what the AccessibleNamespace shows.
func TestTenant(t *testing.T) {
	condition := func(kind, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Message: message, LastTransitionTime: *ago(2 * time.Minute)}
	}
	const unknown = "NotExamined finalizers and annotations of the namespace"
	for name, test := range map[string]struct {
		like       *corev1.Namespace
		conditions []metav1.Condition
		want       []string
	}{
		"closed": {terminating(closed), []metav1.Condition{condition(v1alpha1.ConditionInitializing, "waiting for b")}, []string{"Waiting InitializerPending: waiting for b", unknown, "NotExamined NamespaceLifecycle"}},
		"open":   {terminating(closed, open), nil, []string{unknown}},
		"frozen": {terminating(closed, func(n *corev1.Namespace) { n.Labels = map[string]string{v1alpha1.LabelFrozen: "true"} }),
			[]metav1.Condition{condition(v1alpha1.ConditionFrozen, "jane froze it")}, []string{"Healthy NamespaceFrozen: jane froze it", unknown}},
		"deleted": {terminating(), nil, []string{"Stuck NamespaceControllerAtWork: the namespace is being deleted; you may not get it, so it is not known what it waits for", unknown}},
		"deleted before it opened": {terminating(), []metav1.Condition{condition(v1alpha1.ConditionInitializing, "waiting for b")},
			[]string{"Stuck NamespaceControllerAtWork: the namespace is being deleted; you may not get it, so it is not known what it waits for", unknown}},
		"a participant that stalls": {terminating(), []metav1.Condition{condition(v1alpha1.ConditionStalled, "b has not cleaned up")},
			[]string{"Stuck ParticipantPending: b has not cleaned up", unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			d := world{apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)}, core: []runtime.Object{lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second)},
				lifecycles: []runtime.Object{&v1alpha1.AccessibleNamespace{ObjectMeta: test.like.ObjectMeta, Status: v1alpha1.AccessibleNamespaceStatus{Conditions: test.conditions}}},
				refuses: func(verb, resource, _ string) error {
					if verb == "get" && (resource == "namespaces" || resource == "namespacelifecycles") {
						return forbidden("no")
					}
					return nil
				}}.diagnoser(t)
			found, err := d.Diagnose(t.Context(), "ns")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found.Findings {
				got = append(got, fmt.Sprintf("%s %s: %s", f.State, f.Cause, f.Message))
			}
			for _, what := range found.NotExamined {
				what, _, _ = strings.Cut(what, ":")
				got = append(got, "NotExamined "+what)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamespaceUnavailable: an AccessibleNamespace that cannot be read does not show that the user may not get it.
func TestNamespaceUnavailable(t *testing.T) {
	d := world{refuses: func(_, resource, _ string) error {
		if resource == "accessiblenamespaces" {
			return apierrors.NewServiceUnavailable("no endpoints")
		}
		return forbidden("no")
	}}.diagnoser(t)
	if _, err := d.Namespace(t.Context(), "ns"); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "(no)") {
		t.Errorf("it is %v", err)
	}
}

// TestTryUpdates: updates are dry runs, and change nothing.
func TestTryUpdates(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		want := `PATCH /api/v1/namespaces/ns/configmaps/a?dryRun=All {"metadata":{"uid":"u"}}`
		if got := fmt.Sprintf("%s %s %s", r.Method, r.RequestURI, body); got != want || err != nil {
			t.Errorf("got %s %v, want %s", got, err, want)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"ns","uid":"u"}}`)
	}))
	defer server.Close()
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	held := inNamespace(object("ConfigMap", "a", deleted(time.Hour, "a/b"), func(m *metav1.ObjectMeta) { m.UID = "u" }), "ns")
	o := Observation{Name: "ns", Installation: Installation{Time: now()}, Content: []Listing{listing("configmaps", held)}}
	if diff := cmp.Diff(tried(nil, "configmaps/a"), (Diagnoser{Clients: Clients{Metadata: client}}).tryUpdates(t.Context(), &o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoNamespace: the error is NotFound for a namespace that does not exist, also while an API of the cluster is
// unavailable or cannot be discovered.
func TestNoNamespace(t *testing.T) {
	for name, w := range map[string]world{
		"nothing exists": {},
		"an unavailable API": {apis: []runtime.Object{&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.metrics.k8s.io"},
			Spec: apiregistrationv1.APIServiceSpec{Group: "metrics.k8s.io", Version: "v1", Service: &apiregistrationv1.ServiceReference{}}}}},
		"a failed discovery": {discovery: errors.New("it never answers")},
	} {
		t.Run(name, func(t *testing.T) {
			if found, err := w.diagnose(t); !apierrors.IsNotFound(err) {
				t.Errorf("found %v %v", found, err)
			}
		})
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
	if len(found.NotExamined) != 1 || !strings.Contains(found.NotExamined[0], "only 50 deletions of a resource are tried") {
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

// silentServer never answers lists.
type silentServer struct{ metadata.Interface }

type silentResource struct{ metadata.Getter }

func (s silentServer) Resource(resource schema.GroupVersionResource) metadata.Getter {
	return silentResource{s.Interface.Resource(resource)}
}

func (s silentResource) Namespace(string) metadata.ResourceInterface { return s }

func (silentResource) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSilentServer: the time of an observation is bounded, and what was read is reported.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := world{namespace: terminating(func(n *corev1.Namespace) { n.Finalizers = []string{"example.com/hold"} })}.diagnoser(t)
		d.Metadata = silentServer{d.Metadata}
		began := time.Now()
		found, err := d.Diagnose(t.Context(), "ns")
		if err != nil || time.Since(began) > observationTimeout || found.Findings[0].Cause != NamespaceFinalizer || len(found.NotExamined) != 3 {
			t.Errorf("after %s: %+v %v", time.Since(began), found, err)
		}
	})
}

func TestFinalizerActor(t *testing.T) {
	managed := []metav1.ManagedFieldsEntry{
		{Manager: "status", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"a/b\"":{}}}}`)},
		{Manager: "broken", FieldsV1: metav1.NewFieldsV1(`{`)},
		{Manager: "other", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"c/d\"":{}}}}`)},
		{Manager: "operator", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{".":{},"v:\"a/b\"":{}}}}`)},
	}
	for finalizer, want := range map[string]string{"a/b": "operator", "e/f": ""} {
		if got := finalizerActor(&metav1.ObjectMeta{ManagedFields: managed}, target{}, finalizer); got.manager != want {
			t.Errorf("%s: got %+v", finalizer, got)
		}
	}
}

// TestAggregated: no dry run is sent to the server of an aggregated API, which may ignore that it is one. While the APIServices are
// not known, this holds for each API that is not part of Kubernetes.
func TestAggregated(t *testing.T) {
	verbs := metav1.Verbs{"list", "delete"}
	lists := append(coreResources(), &metav1.APIResourceList{GroupVersion: "apps.example.com/v1", APIResources: []metav1.APIResource{{Name: "apps", Kind: "App", Namespaced: true, Verbs: verbs}}})
	available := apiService("apps.example.com", "v1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue})
	local := apiService("apps.example.com", "v1")
	local.Spec.Service = nil
	const note = "whether apps.apps.example.com can be deleted: not tried: the server of an aggregated API can delete objects although the request is a dry run"
	for name, test := range map[string]struct {
		api    *apiregistrationv1.APIService
		secret bool
		want   []string // the deletions
		note   string
	}{
		"aggregated":  {available, false, []string{"configmaps a"}, note},
		"a CRD":       {local, false, []string{"apps b", "configmaps a"}, ""},
		"not known":   {local, true, []string{"configmaps a"}, note},
		"another one": {apiService("apps.example.com", "v2"), false, []string{"apps b", "configmaps a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var deleted []string
			app := object("App", "b")
			app.APIVersion = "apps.example.com/v1"
			d := world{namespace: terminating(), lists: lists, apis: []runtime.Object{test.api}, content: []runtime.Object{object("ConfigMap", "a"), app}, refuses: func(verb, resource, name string) error {
				if mu.Lock(); verb == "delete" {
					deleted = append(deleted, resource+" "+name)
				}
				mu.Unlock()
				return nil
			}}.diagnoser(t)
			if d.Progress = nil; test.secret {
				d.APIs.(*aggregatorfake.Clientset).PrependReactor("list", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden("no") })
			}
			found, err := d.Diagnose(t.Context(), "ns")
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(deleted)
			if diff := cmp.Diff(test.want, deleted); diff != "" || slices.Contains(found.NotExamined, note) != (test.note != "") {
				t.Errorf("(-want +got):\n%snot examined: %q", diff, found.NotExamined)
			}
		})
	}
}

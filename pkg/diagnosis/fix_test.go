/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// heldBy is a finalizer of an object that a field manager set, and the version of the object.
func heldBy(manager string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) {
		m.ResourceVersion, m.DeletionTimestamp, m.Finalizers = "7", ago(time.Hour), []string{"x/y", "a/b"}
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"a/b\"":{}}}}`)}}
	}
}

// TestFixes: what a program can apply, with preconditions. A controller that is not known to be dead is not replaced.
func TestFixes(t *testing.T) {
	const tests = `{"op":"test","path":"/metadata/uid","value":"%"},{"op":"test","path":"/metadata/resourceVersion","value":"7"}`
	with := func(uid, operations string) string {
		return "[" + strings.ReplaceAll(tests, "%", uid) + "," + operations + "]"
	}
	options := func(uid, grace string) string {
		return `{"kind":"DeleteOptions","apiVersion":"v1",` + grace + `"preconditions":{"uid":"` + uid + `","resourceVersion":"7"}}`
	}
	seven := func(n *corev1.Namespace) { n.ResourceVersion = "7" }
	dead := deployment("x", "billing", 0, 0)
	missing := apiService("a.example.com", "v1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: "False", Reason: "ServiceNotFound", LastTransitionTime: *ago(time.Hour)})
	installing := apiService("c.example.com", "v1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: "False", Reason: "ServiceNotFound", LastTransitionTime: *ago(time.Second)})
	reinstalling := apiService("d.example.com", "v1", missing.Status.Conditions...)
	reinstalling.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-apiserver", Subresource: "status", Time: ago(time.Second)}}
	missing.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: ago(time.Second)}, {Manager: "kube-apiserver", Subresource: "status", Time: ago(time.Hour)}}
	core := apiService("", "v1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: "True"})
	missing.UID, missing.ResourceVersion = "s", "7"
	silent := apiService("b.example.com", "v1", apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: "False", Reason: "FailedDiscoveryCheck"})
	api := []runtime.Object{nsinitAPI("True")}
	version := func(r *v1alpha1.NamespaceLifecycle) { r.ResourceVersion = "7" }
	acted := func(r *v1alpha1.NamespaceLifecycle) {
		r.Status.Initializers[0].LastActor = "system:serviceaccount:quota:server"
	}
	skipped := func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Skipped = []string{"z.example.com"} }
	for name, test := range map[string]struct {
		world
		// want are the cause, and verb, path and body of each request.
		want []string
	}{
		"a finalizer of the namespace": {world{namespace: terminating(seven, setBy("billing")), core: []runtime.Object{dead}}, []string{"NamespaceFinalizer",
			"PATCH /api/v1/namespaces/ns " + with("u", `{"op":"test","path":"/metadata/finalizers/0","value":"billing.example.com/invoices"},{"op":"remove","path":"/metadata/finalizers/0"}`)}},
		"its controller runs":     {world{namespace: terminating(seven, setBy("billing")), core: []runtime.Object{deployment("x", "billing", 1, 1)}}, nil},
		"its controller may run":  {world{namespace: terminating(seven, setBy("billing"))}, nil},
		"it may not be concluded": {world{namespace: terminating(seven, setBy("billing")), core: []runtime.Object{dead}, refuses: refuseOnly("list", "statefulsets", forbidden("no"))}, nil},
		"an open namespace":       {world{namespace: terminating(closed, open, seven, setBy("billing")), core: []runtime.Object{dead}}, nil},
		"a finalizer of objects": {world{namespace: terminating(), core: []runtime.Object{dead}, content: []runtime.Object{object("ConfigMap", "a", heldBy("billing")), object("ConfigMap", "b", heldBy("kubectl")), object("ConfigMap", "c", func(m *metav1.ObjectMeta) { heldBy("billing")(m); m.DeletionTimestamp = nil })}},
			[]string{"ContentFinalizer", "PATCH /api/v1/namespaces/ns/configmaps/a " + with("uid-of-a", `{"op":"test","path":"/metadata/finalizers/1","value":"a/b"},{"op":"remove","path":"/metadata/finalizers/1"}`)}},
		// Only the last writer of the list is known, which need not be the controller.
		"spec.finalizers": {world{namespace: terminating(seven, func(n *corev1.Namespace) {
			n.Spec.Finalizers = append(n.Spec.Finalizers, "openshift.com/origin")
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "billing", Subresource: "finalize", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:finalizers":{}}}`)}}
		}), core: []runtime.Object{dead}}, nil},
		"a tenant's Deployment":        {world{namespace: terminating(seven, setBy("billing")), core: []runtime.Object{deployment("tenant", "billing", 0, 0)}}, nil},
		"objects of an aggregated API": {world{namespace: terminating(), core: []runtime.Object{dead}, content: []runtime.Object{object("ConfigMap", "a", heldBy("billing"))}, apis: []runtime.Object{core}}, nil},
		"an API without a service":     {world{namespace: terminating(), apis: []runtime.Object{missing, silent, installing, reinstalling}}, []string{"APIUnavailable", "DELETE /apis/apiregistration.k8s.io/v1/apiservices/v1.a.example.com " + options("s", "")}},
		"emptied finalizers": {world{namespace: terminating(seven, func(n *corev1.Namespace) { n.Spec.Finalizers = nil })}, []string{"FinalizersEmptied",
			`PUT /api/v1/namespaces/ns/finalize {"kind":"Namespace","apiVersion":"v1","metadata":{"name":"ns","uid":"u","resourceVersion":"7","deletionTimestamp":"2026-11-21T11:50:00Z"},"spec":{"finalizers":["kubernetes"]},"status":{}}`}},
		"orphans": {world{content: []runtime.Object{object("ConfigMap", "a", func(m *metav1.ObjectMeta) { m.ResourceVersion = "7" }), object("ConfigMap", "b", heldBy("billing"))}}, []string{"OrphanedContent",
			`POST /api/v1/namespaces {"kind":"Namespace","apiVersion":"v1","metadata":{"name":"ns"},"spec":{},"status":{}}`, `DELETE /api/v1/namespaces/ns {"kind":"DeleteOptions","apiVersion":"v1"}`}},
		"a lost node": {world{namespace: terminating(), content: []runtime.Object{object("Pod", "p", deleted(5*time.Minute))},
			core: []runtime.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", ResourceVersion: "7", DeletionTimestamp: ago(5 * time.Minute)}, Spec: corev1.PodSpec{NodeName: "n1"}}}},
			[]string{"GracePeriod", "DELETE /api/v1/namespaces/ns/pods/p " + options("p", `"gracePeriodSeconds":0,`)}},
		"nsinit is not installed": {world{namespace: terminating(seven, lifecycleHeld)}, []string{"NsinitUninstalled",
			"PATCH /api/v1/namespaces/ns " + with("u", `{"op":"test","path":"/metadata/finalizers/0","value":"nsinit.dev/lifecycle"},{"op":"remove","path":"/metadata/finalizers/0"}`)}},
		// Without it, the content would be deleted before the participants that hold it have cleaned up.
		"the content is held": {world{namespace: terminating(seven, setBy("billing"), func(n *corev1.Namespace) {
			n.Finalizers = append(n.Finalizers, v1alpha1.ContentFinalizer)
			n.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"billing.example.com/invoices\"":{},"v:\"nsinit.dev/content\"":{}}}}`)
		}), core: []runtime.Object{dead}, apis: api}, []string{"NamespaceFinalizer",
			"PATCH /api/v1/namespaces/ns " + with("u", `{"op":"test","path":"/metadata/finalizers/0","value":"billing.example.com/invoices"},{"op":"remove","path":"/metadata/finalizers/0"}`)}},
		"nsinit is not installed, and held the content": {world{namespace: terminating(seven, contentHeld)}, nil},
		"nsinit's controllers run":                      {world{namespace: terminating(seven, lifecycleHeld), core: []runtime.Object{lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second)}}, nil},
		"they run in another namespace":                 {world{namespace: terminating(seven, lifecycleHeld), core: []runtime.Object{lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Hour), lease("platform", "nsinit-controller-manager", "m-2", time.Second)}}, nil},
		"whether they run is not read":                  {world{namespace: terminating(seven, lifecycleHeld), refuses: refuseOnly("list", "leases", forbidden("no"))}, nil},
		"a participant": {world{namespace: terminating(lifecycleHeld), apis: api, lifecycles: []runtime.Object{lifecycle(deleting, version), overdue("a.example.com", time.Hour)}}, []string{"ParticipantPending",
			"PATCH /apis/nsinit.dev/v1alpha1/namespacelifecycles/ns/finalize " + with("r", `{"op":"test","path":"/spec/finalizers/1","value":"a.example.com"},{"op":"remove","path":"/spec/finalizers/1"}`)}},
		"an initializer": {world{namespace: terminating(closed), apis: api, lifecycles: []runtime.Object{lifecycle(acted, version), overdue("b.example.com", time.Hour)}}, []string{"InitializerPending",
			"PATCH /apis/nsinit.dev/v1alpha1/namespacelifecycles/ns/initialize " + with("r", `{"op":"test","path":"/spec/initializers/pending/0/name","value":"b.example.com"},{"op":"remove","path":"/spec/initializers/pending/0"},{"op":"add","path":"/spec/skipped","value":["b.example.com"]}`)}},
		"another initializer": {world{namespace: terminating(closed), apis: api, lifecycles: []runtime.Object{lifecycle(acted, version, skipped), overdue("b.example.com", time.Hour)}}, []string{"InitializerPending",
			"PATCH /apis/nsinit.dev/v1alpha1/namespacelifecycles/ns/initialize " + with("r", `{"op":"test","path":"/spec/initializers/pending/0/name","value":"b.example.com"},{"op":"remove","path":"/spec/initializers/pending/0"},{"op":"add","path":"/spec/skipped/-","value":"b.example.com"}`)}},
		"an initializer without a report":       {world{namespace: terminating(closed), apis: api, lifecycles: []runtime.Object{lifecycle(acted, version)}}, nil},
		"an initializer that no program served": {world{namespace: terminating(closed), apis: api, lifecycles: []runtime.Object{lifecycle(version)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := test.diagnoser(t).Fixes(t.Context(), "ns")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, fix := range list.Items {
				got = append(got, string(fix.Cause))
				for _, request := range fix.Requests {
					got = append(got, request.Verb+" "+request.Path+" "+request.Body)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := (world{}).diagnoser(t).Fixes(t.Context(), "ns"); !apierrors.IsNotFound(err) {
		t.Errorf("without a namespace: %v", err)
	}
}

// TestDigestOfOrphans: the digest changes if other content of the same kind would be deleted, or content that is not known.
func TestDigestOfOrphans(t *testing.T) {
	digest := func(uid types.UID, refuses func(string, string, string) error) string {
		d := world{refuses: refuses, content: []runtime.Object{object("ConfigMap", "a", func(m *metav1.ObjectMeta) { m.UID = uid })}}.diagnoser(t)
		list, err := d.Fixes(t.Context(), "ns")
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("the fixes are %+v, %v", list, err)
		}
		return list.Items[0].Digest
	}
	first, again, other, unknown := digest("a", nil), digest("a", nil), digest("b", nil), digest("a", refuseOnly("list", "pods", forbidden("no")))
	if first != again || first == other || first == unknown {
		t.Errorf("the digests are %s, %s, for other content %s, and without the right to list pods %s", first, again, other, unknown)
	}
}

// TestRiskOfRelease: to release a participant that holds the content loses the content, too, which the remedy and the fix say.
func TestRiskOfRelease(t *testing.T) {
	const alone = "what it has to clean up remains, perhaps outside the cluster"
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		want      string
	}{
		"it holds the content": {terminating(contentHeld), alone + ", and the content of the namespace is then deleted, unless another participant keeps it"},
		"the content is gone":  {terminating(lifecycleHeld), alone},
	} {
		t.Run(name, func(t *testing.T) {
			d := world{namespace: test.namespace, apis: []runtime.Object{nsinitAPI("True")}, lifecycles: []runtime.Object{lifecycle(deleting, holding), overdue("a.example.com", time.Hour)}}.diagnoser(t)
			d.Progress = nil // it counts one diagnosis
			list, err := d.Fixes(t.Context(), "ns")
			if err != nil || len(list.Items) != 1 || list.Items[0].Risk != test.want {
				t.Errorf("the fixes are %+v, %v", list, err)
			}
			diagnosis, err := d.Diagnose(t.Context(), "ns")
			if err != nil {
				t.Fatal(err)
			}
			var risks []string
			for _, remedy := range diagnosis.Findings[0].Remedies {
				if remedy.Risk != "" {
					risks = append(risks, remedy.Risk)
				}
			}
			if diff := cmp.Diff([]string{test.want}, risks); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDigest: the digest of a fix changes with the namespace, its UID, the cause, the object, its version and the evidence.
func TestDigest(t *testing.T) {
	digest := func(namespace string, uid types.UID, version string, cause Cause, path string, evidence ...Evidence) string {
		return newFix(cause, &Controller{Evidence: evidence}, "", "", remove(path, &metav1.ObjectMeta{UID: "o", ResourceVersion: version}, nil)).digest(&FixList{Namespace: namespace, UID: uid})
	}
	seen := map[string]bool{}
	for _, d := range []string{
		digest("a", "u", "1", ContentFinalizer, "/p"), digest("b", "u", "1", ContentFinalizer, "/p"), digest("a", "v", "1", ContentFinalizer, "/p"),
		digest("a", "u", "2", ContentFinalizer, "/p"), digest("a", "u", "1", GracePeriod, "/p"), digest("a", "u", "1", ContentFinalizer, "/q"),
		digest("a", "u", "1", ContentFinalizer, "/p", Evidence{Source: "Deployment x/billing"}),
	} {
		if seen[d] {
			t.Errorf("%s is that of two fixes", d)
		}
		seen[d] = true
	}
}

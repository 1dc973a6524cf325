//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// operation is one row of the matrix: a request, and its result in each state, with one letter for each identity.
type operation struct {
	name        string
	verb, path  string
	contentType string
	body        func(*testing.T, *matrix, string) string
	want        map[string]string
}

func answers(initializing, active, terminating string) map[string]string {
	return map[string]string{"initializing": initializing, "active": active, "terminating": terminating}
}

// operations returns the rows.
func operations() []operation {
	const (
		core, apps, rbac = "/api/v1/namespaces/{ns}/", "/apis/apps/v1/namespaces/{ns}/", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/"
		dry              = "?dryRun=All"
		merge            = "application/merge-patch+json"
		strategic        = "application/strategic-merge-patch+json"
		jsonPatch        = "application/json-patch+json"
		apply            = "application/apply-patch+yaml"
		namespace        = "/api/v1/namespaces/{ns}"
		lifecycles       = "/apis/nsinit.dev/v1alpha1/namespacelifecycles"
		lifecycle        = lifecycles + "/{ns}"
		configurations   = "/apis/nsinit.dev/v1alpha1/namespaceinitializerconfigurations"
	)
	return []operation{
		// The content of a namespace.
		{"create configmaps", "POST", core + "configmaps" + dry, "", patchOf(`{"metadata":{"name":"new"}}`), answers("GG++r+GrG", "++++r++r+", "ttttrttrt")},
		{"update configmaps", "PUT", core + "configmaps/there" + dry, "", patchOf(`{"metadata":{"name":"there","finalizers":["e2e.example.com/hold"]}}`), answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"patch configmaps", "PATCH", core + "configmaps/there" + dry, merge, patchOf(`{"data":{"a":"b"}}`), answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"apply configmaps", "PATCH", core + "configmaps/there" + dry + "&fieldManager=m", apply, patchOf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"there"},"data":{"a":"b"}}`), answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"delete configmaps", "DELETE", core + "configmaps/there" + dry, "", nil, answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"delete a collection of configmaps", "DELETE", core + "configmaps" + dry, "", nil, answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"create rolebindings", "POST", rbac + "rolebindings" + dry, "", patchOf(`{"metadata":{"name":"new"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"system:basic-user"}}`), answers("GG++r+GrG", "++++r++r+", "ttttrttrt")},
		{"update rolebindings", "PUT", rbac + "rolebindings/there" + dry, "", asIs(rbac + "rolebindings/there"), answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"patch rolebindings", "PATCH", rbac + "rolebindings/there" + dry, merge, patchOf(`{"metadata":{"labels":{"a":"b"}}}`), answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"delete rolebindings", "DELETE", rbac + "rolebindings/there" + dry, "", nil, answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"delete a collection of rolebindings", "DELETE", rbac + "rolebindings" + dry, "", nil, answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"create pods", "POST", core + "pods" + dry, "", patchOf(`{"metadata":{"name":"new"},"spec":{"containers":[{"name":"c","image":"i"}]}}`), answers("GG++r+GrG", "++++r++r+", "ttttrttrt")},
		{"update pods", "PUT", core + "pods/there" + dry, "", asIs(core + "pods/there"), answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"patch pods", "PATCH", core + "pods/there" + dry, merge, patchOf(`{"metadata":{"labels":{"a":"b"}}}`), answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"delete pods", "DELETE", core + "pods/there" + dry, "", nil, answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"delete a collection of pods", "DELETE", core + "pods" + dry, "", nil, answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"connect to pods/exec", "POST", core + "pods/there/exec?command=c&stdout=true", "", nil, answers("GG..r.GrG", "....r..r.", "....r..r.")},
		{"patch pods/ephemeralcontainers", "PATCH", core + "pods/there/ephemeralcontainers" + dry, strategic, patchOf(`{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}`), answers("Gr++r+GrG", "+r++r++r+", "+r++r++r+")},
		{"create pods/eviction", "POST", core + "pods/there/eviction" + dry, "", patchOf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"there","namespace":"{ns}"},"deleteOptions":{"dryRun":["All"]}}`), answers("GG++r+GrG", "++++r++r+", "ttttrttrt")},
		{"patch pods/status", "PATCH", core + "pods/there/status" + dry, merge, patchOf(`{"status":{"message":"m"}}`), answers("Gr++r+GrG", "+r++r++r+", "+r++r++r+")},
		{"create serviceaccounts/token", "POST", core + "serviceaccounts/there/token", "", patchOf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`), answers("GG++r+GrG", "++++r++r+", "ttttrttrt")},
		{"patch deployments/scale", "PATCH", apps + "deployments/there/scale" + dry, merge, patchOf(`{"spec":{"replicas":0}}`), answers("GG++r+GrG", "++++r++r+", "++++r++r+")},
		{"patch deployments/status", "PATCH", apps + "deployments/there/status" + dry, merge, patchOf(`{"status":{"observedGeneration":1}}`), answers("Gr++r+GrG", "+r++r++r+", "+r++r++r+")},
		{"create events", "POST", core + "events" + dry, "", patchOf(`{"metadata":{"name":"new","namespace":"{ns}"},"involvedObject":{"namespace":"{ns}"}}`), answers("GG++++GrG", "+++++++r+", "tttttttrt")},
		// Requests that the gate does not match.
		{"get configmaps", "GET", core + "configmaps/there", "", nil, answers("++++r++r+", "++++r++r+", "++++r++r+")},
		{"list pods", "GET", core + "pods", "", nil, answers("++++r++r+", "++++r++r+", "++++r++r+")},
		{"create localsubjectaccessreviews", "POST", "/apis/authorization.k8s.io/v1/namespaces/{ns}/localsubjectaccessreviews", "",
			patchOf(`{"metadata":{"namespace":"{ns}"},"spec":{"user":"u","resourceAttributes":{"namespace":"{ns}","verb":"get","resource":"pods"}}}`), answers("++++r++r+", "++++r++r+", "++++r++r+")},
		{"create selfsubjectaccessreviews", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "",
			patchOf(`{"spec":{"resourceAttributes":{"namespace":"{ns}","verb":"get","resource":"pods"}}}`), answers("+++++++r+", "+++++++r+", "+++++++r+")},
		// The namespace itself.
		{"get namespaces", "GET", namespace, "", nil, answers("+++++++r+", "+++++++r+", "+++++++r+")},
		{"create namespaces", "POST", "/api/v1/namespaces" + dry, "", patchOf(`{"metadata":{"generateName":"{ns}-"}}`), answers("+rrrr++r+", "+rrrr++r+", "+rrrr++r+")},
		{"label namespaces", "PATCH", namespace + dry, merge, patchOf(`{"metadata":{"labels":{"a":"b"}}}`), answers("rrrrr+rr+", "rrrrr+rr+", "rrrrr+rr+")},
		{"open or close the gate by an update", "PUT", namespace + dry, "", namespaceBody(toggled), answers("rrrrr+rrU", "rrrrr+rrU", "rrrrr+rrU")},
		{"open or close the gate through namespaces/status", "PUT", namespace + "/status" + dry, "", namespaceBody(toggled), answers("rrrrr+rrU", "rrrrr+rrU", "rrrrr+rrU")},
		{"open or close the gate through namespaces/finalize", "PUT", namespace + "/finalize" + dry, "", namespaceBody(toggled), answers("rrrr++rrU", "rrrr++rrU", "rrrr++rrU")},
		{"open the gate by a patch", "PATCH", namespace + dry, jsonPatch, patchOf(`[{"op":"add","path":"/metadata/labels/nsinit.dev~1initializing","value":"x"},{"op":"remove","path":"/metadata/labels/nsinit.dev~1initializing"}]`), answers("rrrrr+rrU", "rrrrr+rr+", "rrrrr+rr+")},
		{"forge the creator", "PATCH", namespace + dry, merge, patchOf(`{"metadata":{"annotations":{"nsinit.dev/created-by":"me"}}}`), answers("rrrrr+rrU", "rrrrr+rrU", "rrrrr+rrU")},
		{"write conditions of namespaces/status", "PATCH", namespace + "/status" + dry, strategic, patchOf(`{"status":{"conditions":[{"type":"E2E","status":"True"}]}}`), answers("rrrr++rr+", "rrrr++rr+", "rrrr++rr+")},
		{"drop nsinit's finalizer", "PUT", namespace + "/finalize" + dry, "", namespaceBody(func(n *corev1.Namespace) { n.Finalizers = nil }), answers("rrrr++rrU", "rrrr++rrU", "rrrr++rrU")},
		{"delete namespaces", "DELETE", namespace + dry, "", nil, answers("rrrr++rr+", "rrrr++rr+", "rrrr++rr+")},
		// Its NamespaceLifecycle.
		{"get NamespaceLifecycles", "GET", lifecycle, "", nil, answers("rr++++rr+", "rr++++rr+", "rr++++rr+")},
		{"watch NamespaceLifecycles", "GET", lifecycles + "?watch=true&timeoutSeconds=1&resourceVersion=0&fieldSelector=metadata.name%3Dnobody", "", nil, answers("rr++++rr+", "rr++++rr+", "rr++++rr+")},
		{"create NamespaceLifecycles", "POST", lifecycles + dry, "", patchOf(`{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespaceLifecycle","metadata":{"name":"{ns}"},"spec":{"namespaceUID":"u"}}`), answers("rrrrccrrc", "rrrrccrrc", "rrrrccrrc")},
		{"label NamespaceLifecycles", "PATCH", lifecycle + dry, merge, patchOf(`{"metadata":{"labels":{"a":"b"}}}`), answers("rrrrr+rr+", "rrrrr+rr+", "rrrrr+rr+")},
		{"delete NamespaceLifecycles", "DELETE", lifecycle + dry, "", nil, answers("rrrr++rrA", "rrrr++rrA", "rrrr++rr+")},
		{"delete a collection of NamespaceLifecycles", "DELETE", lifecycles + dry, "", nil, answers("rrrrr.rr.", "rrrrr.rr.", "rrrrr.rr.")},
		{"remove A by an update", "PUT", lifecycle + "/initialize" + dry, "", lifecycleBody(withoutFirst(1)), answers("rr+AA+rrA", "rr++++rr+", "rr++++rr+")},
		{"remove A by a merge patch", "PATCH", lifecycle + "/initialize" + dry, merge, patchOf(`{"spec":{"initializers":{"pending":[{"name":"b.example.com"}]}}}`), answers("rr+Ar+rrA", "rriirirri", "rriirirri")},
		{"remove A by a strategic merge patch", "PATCH", lifecycle + "/initialize" + dry, strategic, patchOf(`{"spec":{"initializers":{"pending":[{"name":"a.example.com","$patch":"delete"}]}}}`), answers("rr+Ar+rrA", "rr++r+rr+", "rr++r+rr+")},
		{"remove A by a JSON patch", "PATCH", lifecycle + "/initialize" + dry, jsonPatch, patchOf(`[{"op":"test","path":"/spec/initializers/pending/0/name","value":"a.example.com"},{"op":"remove","path":"/spec/initializers/pending/0"}]`), answers("rr+Ar+rrA", "rriirirri", "rriirirri")},
		{"remove A by server-side apply", "PATCH", lifecycle + "/initialize" + dry + "&fieldManager=m&force=true", apply,
			patchOf(`{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespaceLifecycle","metadata":{"name":"{ns}"},"spec":{"initializers":{"pending":[{"name":"b.example.com"}]}}}`), answers("rr++r+rr+", "rriirirri", "rriirirri")},
		{"remove A and B", "PUT", lifecycle + "/initialize" + dry, "", lifecycleBody(withoutFirst(2)), answers("rrAAA+rrA", "rr++++rr+", "rr++++rr+")},
		{"remove B before its turn", "PATCH", lifecycle + "/initialize" + dry, merge, patchOf(`{"spec":{"initializers":{"pending":[{"name":"a.example.com"}]}}}`), answers("rriirirri", "rriirirri", "rriirirri")},
		{"skip A", "PATCH", lifecycle + "/initialize" + dry, merge, patchOf(`{"spec":{"skipped":["a.example.com"],"initializers":{"pending":[{"name":"b.example.com"}]}}}`), answers("rr+Ar+rrA", "rriirirri", "rriirirri")},
		{"fail in A's place", "PATCH", lifecycle + "/initialize" + dry, merge, patchOf(`{"spec":{"initializers":{"result":{"status":"Failure","message":"m"}}}}`), answers("rr+Ar+rrA", "rriirirri", "rriirirri")},
		{"bring A back", "PATCH", lifecycle + "/initialize" + dry, merge, patchOf(`{"spec":{"initializers":{"pending":[{"name":"a.example.com"},{"name":"b.example.com"},{"name":"c.example.com"}]}}}`), answers("rriirirri", "rriirirri", "rriirirri")},
		{"empty the list by a patch with another UID", "PATCH", lifecycle + "/initialize" + dry, merge, patchOf(`{"metadata":{"uid":"u"},"spec":{"initializers":{"pending":[]}}}`), answers("rriirirri", "rriirirri", "rriirirri")},
		{"empty the list", "PATCH", lifecycle + "/initialize" + dry, merge, patchOf(`{"spec":{"initializers":{"pending":[]}}}`), answers("rrAAr+rrA", "rr++r+rr+", "rr++r+rr+")},
		{"write A's message", "PATCH", lifecycle + "/status" + dry, strategic, patchOf(`{"status":{"initializers":[{"name":"a.example.com","message":"m"}]}}`), answers("rr+Ar+rrA", "rr+Ar+rrA", "rr+Ar+rrA")},
		{"write conditions of NamespaceLifecycles", "PUT", lifecycle + "/status" + dry, "", lifecycleBody(func(r *v1alpha1.NamespaceLifecycle) {
			r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: "E2E", Status: metav1.ConditionTrue, Reason: "E2E", LastTransitionTime: metav1.Now()})
		}), answers("rrAA++rrA", "rrAA++rrA", "rrAA++rrA")},
		{"drop A's finalizer by an update", "PUT", lifecycle + "/finalize" + dry, "", lifecycleBody(withoutFinalizer("a.example.com")), answers("rr+AA+rrA", "rr+AA+rrA", "rr+AA+rrA")},
		{"drop A's finalizer by a patch", "PATCH", lifecycle + "/finalize" + dry, merge, patchOf(`{"spec":{"finalizers":["kubernetes"]}}`), answers("rr+Ar+rrA", "rr+Ar+rrA", "rr+Ar+rrA")},
		{"drop A's finalizer by a post", "POST", lifecycle + "/finalize" + dry, "", lifecycleBody(withoutFinalizer("a.example.com")), answers("rr+Ar+rrA", "rr+Ar+rrA", "rr+Ar+rrA")},
		{"drop A's finalizer by a post of another name", "POST", lifecycle + "/finalize" + dry, "", lifecycleBody(func(r *v1alpha1.NamespaceLifecycle) { withoutFinalizer("a.example.com")(r); r.Name = "other" }), answers("rr..r.rr.", "rr..r.rr.", "rr..r.rr.")},
		{"drop A's finalizer by a post with another UID", "POST", lifecycle + "/finalize" + dry, "", lifecycleBody(func(r *v1alpha1.NamespaceLifecycle) { withoutFinalizer("a.example.com")(r); r.UID = "u" }), answers("rrccrcrrc", "rrccrcrrc", "rrccrcrrc")},
		{"drop Kubernetes' finalizer", "PUT", lifecycle + "/finalize" + dry, "", lifecycleBody(withoutFinalizer("kubernetes")), answers("rrAA++rrA", "rrAA++rrA", "rrAA++rrA")},
		{"add a finalizer", "PUT", lifecycle + "/finalize" + dry, "", lifecycleBody(func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Finalizers = append(r.Spec.Finalizers, "x.example.com") }), answers("rrAA++rrA", "rrAA++rrA", "rrAA++rrA")},
		// The objects on which the security of nsinit depends.
		{"create configurations", "POST", configurations + dry, "", patchOf(`{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespaceInitializerConfiguration","metadata":{"name":"new"}}`), answers("rrrrr+rr+", "rrrrr+rr+", "rrrrr+rr+")},
		{"delete a collection of configurations", "DELETE", configurations + dry, "", nil, answers("rrrrr.rr.", "rrrrr.rr.", "rrrrr.rr.")},
		{"change the exemptions", "PATCH", "/api/v1/namespaces/nsinit-system/configmaps/nsinit-exemptions" + dry, merge, patchOf(`{"data":{"namespaces":"{ns}"}}`), answers("UrUUr+UrU", "UrUUr+UrU", "UrUUr+UrU")},
		{"acknowledge the loss of the storage", "DELETE", "/api/v1/namespaces/nsinit-system/configmaps/nsinit-storage" + dry, "", nil, answers("UrUUr+UrU", "UrUUr+UrU", "UrUUr+UrU")},
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

type mapper struct{ meta.RESTMapper }

func (mapper) Reset() {}

// applier returns an Applier that may do what is listed, as "verb resource" or "verb resource/name". The cluster knows
// ConfigMaps, Secrets and ClusterRoles, and fails to answer what concerns Secrets.
func applier(permissions ...string) *Applier {
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	kinds.Add(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, meta.RESTScopeNamespace)
	kinds.Add(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, meta.RESTScopeRoot)
	core := fake.NewClientset()
	core.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		asked := review.Spec.ResourceAttributes
		if asked.Resource == "secrets" {
			return true, nil, errors.New("no answer")
		}
		resource := asked.Verb + " " + asked.Resource
		review.Status.Allowed = slices.Contains(permissions, resource) || slices.Contains(permissions, resource+"/"+asked.Name)
		return true, review, nil
	})
	return &Applier{Mapper: mapper{kinds}, ClusterScoped: map[schema.GroupResource]struct{}{}, Reviews: core.AuthorizationV1().SelfSubjectAccessReviews(), Compiler: &Compiler{}}
}

func manifestOf(name, apiVersion, kind, object string) v1alpha1.PopulationManifest {
	return v1alpha1.PopulationManifest{Name: name, Template: runtime.RawExtension{
		Raw: fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, apiVersion, kind, object),
	}}
}

// TestReadiness: what keeps manifests from being applied to any namespace is reported before there is one.
func TestReadiness(t *testing.T) {
	configMap, secret := manifestOf("map", "v1", "ConfigMap", "m"), manifestOf("secret", "v1", "Secret", "s")
	role := manifestOf("role", "rbac.authorization.k8s.io/v1", "ClusterRole", "r")
	unknown := manifestOf("unknown", "unknown.example.com/v1", "Nothing", "n")
	invalid := configMap
	invalid.When = "nonsense("
	roles := schema.ParseGroupResource("clusterroles.rbac.authorization.k8s.io")
	for name, test := range map[string]struct {
		permissions []string
		manifests   []v1alpha1.PopulationManifest
		allowed     []schema.GroupResource
		status      metav1.ConditionStatus
		reason      string
		message     string
	}{
		"nothing to apply":  {status: metav1.ConditionTrue, reason: reasonApplicable},
		"everything exists": {[]string{"create configmaps", "patch configmaps"}, []v1alpha1.PopulationManifest{configMap}, nil, metav1.ConditionTrue, reasonApplicable, "the initializer can apply every manifest"},
		"permission for the name": {[]string{"create configmaps/m", "patch configmaps/m"}, []v1alpha1.PopulationManifest{configMap}, nil,
			metav1.ConditionTrue, reasonApplicable, ""},
		"permission for one name, and the name depends on the namespace": {[]string{"create configmaps/m", "patch configmaps/m"},
			[]v1alpha1.PopulationManifest{manifestOf("map", "v1", "ConfigMap", "${creator}")}, nil, metav1.ConditionFalse, reasonNotPermitted, ""},
		"one permission is missing": {[]string{"create configmaps"}, []v1alpha1.PopulationManifest{configMap}, nil, metav1.ConditionFalse, reasonNotPermitted,
			`manifest map: cannot apply ConfigMap "m": grant the initializer the missing permission cluster-wide: patch on configmaps`},
		"an unknown kind": {nil, []v1alpha1.PopulationManifest{unknown}, nil, metav1.ConditionFalse, reasonKindNotFound,
			`manifest unknown: cannot apply Nothing "n": the cluster does not know the kind`},
		"the kind depends on the namespace": {nil, []v1alpha1.PopulationManifest{manifestOf("any", "v1", "${creator}", "x")}, nil, metav1.ConditionTrue, reasonApplicable, ""},
		"outside of namespaces, not allowed": {[]string{"create clusterroles", "patch clusterroles", "get clusterroles"}, []v1alpha1.PopulationManifest{role}, nil,
			metav1.ConditionFalse, reasonNotPermitted, "--cluster-scoped-resources"},
		"outside of namespaces, not readable": {[]string{"create clusterroles", "patch clusterroles"}, []v1alpha1.PopulationManifest{role}, []schema.GroupResource{roles},
			metav1.ConditionFalse, reasonNotPermitted, "get on clusterroles.rbac.authorization.k8s.io"},
		"outside of namespaces": {[]string{"create clusterroles", "patch clusterroles", "get clusterroles"}, []v1alpha1.PopulationManifest{role}, []schema.GroupResource{roles},
			metav1.ConditionTrue, reasonApplicable, ""},
		"no answer": {nil, []v1alpha1.PopulationManifest{secret}, nil, metav1.ConditionUnknown, reasonCheckFailed, "manifest secret: cannot apply Secret \"s\": cannot check the permission to create secrets: no answer"},
		"several": {nil, []v1alpha1.PopulationManifest{secret, unknown, configMap}, nil, metav1.ConditionFalse, reasonKindNotFound,
			"(and 2 more, see kubectl nsinit preview)"},
		"invalid": {nil, []v1alpha1.PopulationManifest{invalid}, nil, metav1.ConditionFalse, ReasonInvalid, "spec.manifests[0].when"},
	} {
		t.Run(name, func(t *testing.T) {
			a := applier(test.permissions...)
			for _, resource := range test.allowed {
				a.ClusterScoped[resource] = struct{}{}
			}
			got := a.Readiness(t.Context(), &v1alpha1.NamespacePopulation{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 3}, Spec: v1alpha1.NamespacePopulationSpec{Manifests: test.manifests},
			})
			if got.Type != v1alpha1.ConditionReady || got.ObservedGeneration != 3 || got.Status != test.status || got.Reason != test.reason || !strings.Contains(got.Message, test.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestReadinessOfAll: to apply objects to namespaces that exist, the initializer also reads them.
func TestReadinessOfAll(t *testing.T) {
	for permission, want := range map[string]metav1.ConditionStatus{"get configmaps": metav1.ConditionTrue, "list configmaps": metav1.ConditionFalse} {
		got := applier("create configmaps", "patch configmaps", permission).Readiness(t.Context(), &v1alpha1.NamespacePopulation{
			Spec: v1alpha1.NamespacePopulationSpec{Scope: v1alpha1.ScopeAll, Manifests: []v1alpha1.PopulationManifest{manifestOf("map", "v1", "ConfigMap", "m")}}})
		if got.Status != want || want == metav1.ConditionFalse && !strings.Contains(got.Message, "get on configmaps") {
			t.Errorf("with %s: %+v", permission, got)
		}
	}
}

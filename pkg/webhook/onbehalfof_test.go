/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	mutatingpatch "k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// hostile is a name that the portal may use.
const hostile = "a\"b'c\n${creator}\u202e*,\\"

// portal returns a user who may create namespaces on behalf of alice and hostile, and the authorizer that says so.
func portal() (authenticationv1.UserInfo, authorizer.AuthorizerFunc) {
	info := authenticationv1.UserInfo{Username: "portal", UID: "u", Groups: []string{"portals"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"all"}}}
	return info, func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if u := a.GetUser(); a.GetName() == "unanswered" {
			return authorizer.DecisionNoOpinion, "", errors.New("down")
		} else if u.GetName() == info.Username && u.GetUID() == info.UID && slices.Equal(u.GetGroups(), info.Groups) && slices.Equal(u.GetExtra()["scope"], []string{"all"}) &&
			a.GetVerb() == v1alpha1.VerbImpersonate && a.GetAPIGroup() == v1alpha1.GroupName && a.GetResource() == v1alpha1.ResourceCreators && a.GetNamespace() == "" &&
			slices.Contains([]string{"alice", hostile}, a.GetName()) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
}

// TestOnBehalfOf: the policy and the webhook keep the name of another user only if the creator may create namespaces on behalf of that
// user. They also keep an invalid name, which the guard refuses.
func TestOnBehalfOf(t *testing.T) {
	for name, test := range map[string]struct {
		value string
		kept  bool
	}{
		"a user":                             {"alice", true},
		"another user":                       {"bob", false},
		"any characters":                     {hostile, true},
		"any characters of another user":     {hostile + "x", false},
		"the longest name":                   {strings.Repeat("é", 512), false},
		"too long":                           {strings.Repeat("é", 513), true},
		"empty":                              {"", true},
		"a service account":                  {"system:serviceaccount:a:b", true},
		"a user whose name begins with syst": {"systems", false},
	} {
		t.Run(name, func(t *testing.T) {
			for form, stamp := range map[string]func(*testing.T, *corev1.Namespace) (*corev1.Namespace, int32){"policy": stampByPolicy, "webhook": stampByWebhook} {
				sent := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"a": "b", v1alpha1.AnnotationOnBehalfOf: test.value}}}
				stamped, code := stamp(t, sent.DeepCopy())
				if code != http.StatusOK {
					t.Fatalf("%s: answered %d", form, code)
				}
				if got, kept := stamped.Annotations[v1alpha1.AnnotationOnBehalfOf]; kept != test.kept || kept && got != test.value || stamped.Annotations["a"] != "b" {
					t.Errorf("%s: annotations are %q", form, stamped.Annotations)
				}
			}
		})
	}
	unanswered := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{v1alpha1.AnnotationOnBehalfOf: "unanswered"}}}
	if stamped, _ := stampByPolicy(t, unanswered); !maps.Equal(stamped.Annotations, unanswered.Annotations) {
		t.Errorf("the policy did not leave the decision to the guard: %q", stamped.Annotations)
	}
	if _, code := stampByWebhook(t, unanswered); code != http.StatusServiceUnavailable {
		t.Errorf("the webhook answered %d", code)
	}
}

func stampByWebhook(t *testing.T, namespace *corev1.Namespace) (*corev1.Namespace, int32) {
	t.Helper()
	data, err := json.Marshal(namespace)
	if err != nil {
		t.Fatal(err)
	}
	var may authorizer.AuthorizerFunc
	review := request(string(data))
	review.UserInfo, may = portal()
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: installation.Exemptions}}
	response := NewStamp(fake.NewClientset(list).CoreV1(), list.Namespace, authorization.New(may))(t.Context(), review)
	if !response.Allowed {
		return nil, response.Result.Code
	}
	decoded, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = decoded.Apply(data); err != nil {
		t.Fatal(err)
	}
	stamped := &corev1.Namespace{}
	if err := json.Unmarshal(data, stamped); err != nil {
		t.Fatal(err)
	}
	return stamped, http.StatusOK
}

// stampByPolicy applies the JSON patch of the policy as kube-apiserver does.
func stampByPolicy(t *testing.T, namespace *corev1.Namespace) (*corev1.Namespace, int32) {
	t.Helper()
	var policy admissionregistrationv1.MutatingAdmissionPolicy
	for document := range strings.SplitSeq(strings.Join(artifacts.Policies(true), "\n---\n"), "\n---\n") {
		if strings.Contains(document, "kind: MutatingAdmissionPolicy\nmetadata:\n  name: nsinit-stamp\n") {
			if err := yaml.UnmarshalStrict([]byte(document), &policy); err != nil {
				t.Fatal(err)
			}
		}
	}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	var variables []plugincel.NamedExpressionAccessor
	for _, variable := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: variable.Name, Expression: variable.Expression})
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true}
	compiler.CompileAndStoreVariables(variables, options, environment.StoredExpressions)
	options.HasPatchTypes = true
	patcher := mutatingpatch.NewJSONPatcher(compiler.CompileMutatingEvaluator(&mutatingpatch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression}, options, environment.StoredExpressions))

	info, may := portal()
	kind, resource := corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithResource("namespaces")
	objects := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	attributes, err := admission.NewVersionedAttributes(admission.NewAttributesRecord(namespace, nil, kind, "", namespace.Name, resource, "", admission.Create, &metav1.CreateOptions{}, false,
		&user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string][]string{"scope": info.Extra["scope"]}}), kind, objects)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patcher.Patch(compiler.CreateContext(t.Context()), mutatingpatch.Request{MatchedResource: resource, VersionedAttributes: attributes, ObjectInterfaces: objects,
		OptionalVariables: plugincel.OptionalVariableBindings{Authorizer: may}}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		t.Fatal(err)
	}
	stamped, ok := patched.(*corev1.Namespace)
	if !ok {
		t.Fatalf("the policy made a %T", patched)
	}
	return stamped, http.StatusOK
}

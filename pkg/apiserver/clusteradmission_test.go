/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// everything are the rules of a policy or webhook that matches each request of the group.
func everything() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}
}

func matchEverything() *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: everything()}},
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
	}
}

// refuse registers a policy that refuses everything.
func refuse(core *testserver.CoreAPI, kind *admissionregistrationv1.ParamKind) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: matchEverything(), ParamKind: kind,
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "nothing is allowed here"}}},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "refuse",
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}
	if kind != nil {
		binding.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: "p", Namespace: "default", ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
	}
	core.SetRegistrations("validatingadmissionpolicies", policy)
	core.SetRegistrations("validatingadmissionpolicybindings", binding)
}

// mutate registers policies that set a label in both ways.
func mutate(core *testserver.CoreAPI) {
	spec := admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: matchEverything(), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{
			{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
				Expression: `Object{metadata: Object.metadata{labels: {"applied": "yes"}}}`}},
			{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{
				Expression: `[JSONPatch{op: "add", path: "/metadata/labels/patched", value: "yes"}]`}},
		},
	}
	core.SetRegistrations("mutatingadmissionpolicies", &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mutate"}, Spec: spec})
	core.SetRegistrations("mutatingadmissionpolicybindings", &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mutate"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "mutate"}})
}

// writes are the requests of nsinit and of initializers for a namespace, and the status of a configuration. No policy and no
// webhook refuses one of them.
func writes(t *testing.T, client versioned.Interface, core *testserver.CoreAPI, configuration *v1alpha1.NamespaceInitializerConfiguration) {
	t.Helper()
	ctx, nsinit := t.Context(), client.NsinitV1alpha1()
	name := uniqueName()
	core.SetNamespace(testserver.Namespace(name, types.UID(name), true))
	lifecycle, err := nsinit.NamespaceLifecycles().Create(ctx, testserver.Lifecycle(name, types.UID(name)), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("a NamespaceLifecycle: %v", err)
	}
	if lifecycle.Labels != nil {
		t.Errorf("a NamespaceLifecycle has the labels %v", lifecycle.Labels)
	}
	lifecycle.Status.Conditions = []metav1.Condition{{Type: "A", Status: metav1.ConditionTrue, Reason: "B", LastTransitionTime: metav1.Now()}}
	if lifecycle, err = nsinit.NamespaceLifecycles().UpdateStatus(ctx, lifecycle, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("its status: %v", err)
	}
	lifecycle.Spec.Initializers.Pending = nil
	if _, err = nsinit.NamespaceLifecycles().Initialize(ctx, name, lifecycle, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("its initializers: %v", err)
	}
	core.DeleteNamespace(name)
	if err := nsinit.NamespaceLifecycles().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("its deletion: %v", err)
	}
	if lifecycle, err = nsinit.NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	lifecycle.Spec.Finalizers = nil
	if _, err := nsinit.NamespaceLifecycles().Finalize(ctx, name, lifecycle, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("its finalizers: %v", err)
	}
	if _, err := nsinit.PopulatedNamespaces().Create(ctx, &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: types.UID(name)}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("a PopulatedNamespace: %v", err)
	}
	configuration.Status.PendingNamespaces++
	if _, err := nsinit.NamespaceInitializerConfigurations().UpdateStatus(ctx, configuration, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("the status of a configuration: %v", err)
	}
}

// stored returns a server with a configuration that was stored before there were registrations.
func stored(t *testing.T, core *testserver.CoreAPI, register func()) (*testserver.Server, *v1alpha1.NamespaceInitializerConfiguration) {
	t.Helper()
	dir := testserver.Dir(t)
	before := testserver.StartWith(t, dir, core, func(*options.Options) {})
	before.WaitReady(t)
	configuration := before.MustConfigure(t, testserver.Configuration("first", "a.example.com"))
	before.Stop(t)
	register()
	server := testserver.StartWith(t, dir, core, func(*options.Options) {})
	server.WaitReady(t)
	return server, configuration
}

// TestPoliciesOfCluster: a ValidatingAdmissionPolicy that matches everything refuses writes of configurations and populations,
// with its message, and no other write.
func TestPoliciesOfCluster(t *testing.T) {
	t.Parallel()
	core := testserver.NewCoreAPI(t)
	server, configuration := stored(t, core, func() { refuse(core, nil) })
	client := server.Client(t, "admin")
	nsinit := client.NsinitV1alpha1()
	_, createErr := nsinit.NamespaceInitializerConfigurations().Create(t.Context(), testserver.Configuration("second", "b.example.com"), metav1.CreateOptions{})
	_, updateErr := nsinit.NamespaceInitializerConfigurations().Update(t.Context(), configuration, metav1.UpdateOptions{})
	_, populateErr := nsinit.NamespacePopulations().Create(t.Context(), populationOf("p", manifestOf("a", configMapTemplate)), metav1.CreateOptions{})
	for what, err := range map[string]error{
		"create":   createErr,
		"update":   updateErr,
		"delete":   nsinit.NamespaceInitializerConfigurations().Delete(t.Context(), configuration.Name, metav1.DeleteOptions{}),
		"populate": populateErr,
	} {
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(fmt.Sprint(err), "ValidatingAdmissionPolicy 'refuse' with binding 'refuse' denied request: nothing is allowed here") {
			t.Errorf("%s: %v", what, err)
		}
	}
	writes(t, client, core, configuration)
}

// TestMutatingPoliciesOfCluster: a MutatingAdmissionPolicy changes configurations, and nothing else. While the cluster does not
// serve MutatingAdmissionPolicies, configurations are written without; when it does, they take effect.
func TestMutatingPoliciesOfCluster(t *testing.T) {
	t.Parallel()
	core := testserver.NewCoreAPI(t)
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		core.RefuseRegistrations(resource, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, ""))
	}
	server, configuration := stored(t, core, func() { mutate(core) })
	client := server.Client(t, "admin")
	created, err := client.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), testserver.Configuration("second", "b.example.com"), metav1.CreateOptions{})
	if err != nil || created.Labels != nil {
		t.Fatalf("a cluster without mutating policies: %v, labels %v", err, created.Labels)
	}
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		core.RefuseRegistrations(resource, nil)
	}
	eventually(t, "the policy sets its labels", func(ctx context.Context) bool {
		created, err = client.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(ctx, testserver.Configuration(uniqueName(), uniqueName()+".example.com"), metav1.CreateOptions{})
		return err == nil && created.Labels["applied"] == "yes" && created.Labels["patched"] == "yes"
	})
	writes(t, client, core, configuration)
}

// TestUnreadRegistrations: while the server cannot read the registrations, it refuses writes of configurations and populations,
// and says why. It is ready, and does everything that namespaces need.
func TestUnreadRegistrations(t *testing.T) {
	t.Parallel()
	core := testserver.NewCoreAPI(t)
	server, configuration := stored(t, core, func() {
		core.RefuseRegistrations("validatingwebhookconfigurations", apierrors.NewForbidden(
			schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}, "", errors.New("not allowed to the server")))
	})
	client := server.Client(t, "admin")
	create := func(ctx context.Context) error {
		return client.NsinitV1alpha1().RESTClient().Post().Resource("namespaceinitializerconfigurations").MaxRetries(0).
			Body(testserver.Configuration("second", "b.example.com")).Do(ctx).Error()
	}
	err := create(t.Context())
	for _, what := range []string{"not allowed to the server", `namespaceinitializerconfigurations "second" cannot be written`, "ValidatingAdmissionWebhook", "ClusterRole nsinit:apiserver"} {
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), what) {
			t.Errorf("it does not say %q: %v", what, err)
		}
	}
	writes(t, client, core, configuration)
	server.WaitReady(t)
	core.RefuseRegistrations("validatingwebhookconfigurations", nil)
	eventually(t, "a configuration is written", func(ctx context.Context) bool { return create(ctx) == nil })
}

// TestUnreadParameters: a policy whose parameters the server may not read refuses, and the message says what to grant.
func TestUnreadParameters(t *testing.T) {
	t.Parallel()
	core := testserver.NewCoreAPI(t)
	server, configuration := stored(t, core, func() { refuse(core, &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}) })
	client := server.Client(t, "admin")
	_, err := client.NsinitV1alpha1().NamespaceInitializerConfigurations().Update(t.Context(), configuration, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "allow the service account nsinit-system/nsinit-apiserver to get, list and watch this kind") {
		t.Errorf("it does not say what to grant: %v", err)
	}
	writes(t, client, core, configuration)
}

// TestWebhooksOfCluster: a mutating webhook changes a configuration, and a validating one refuses another. Neither is called for
// any other write.
func TestWebhooksOfCluster(t *testing.T) {
	t.Parallel()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		switch kind := review.Request.Kind.Kind; {
		case kind != "NamespaceInitializerConfiguration" || review.Request.SubResource != "":
			review.Response.Allowed = false
		case r.URL.Path == "/mutate":
			review.Response.Patch, review.Response.PatchType = []byte(`[{"op":"add","path":"/metadata/labels","value":{"hooked":"yes"}}]`), ptr.To(admissionv1.PatchTypeJSONPatch)
		case review.Request.Name == "refused":
			review.Response.Allowed, review.Response.Result = false, &metav1.Status{Message: "this name is refused"}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(hook.Close)
	clientConfig := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: new(hook.URL + path), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})}
	}
	core := testserver.NewCoreAPI(t)
	server, configuration := stored(t, core, func() {
		core.SetRegistrations("mutatingwebhookconfigurations", &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "m.example.com", ClientConfig: clientConfig("/mutate"), Rules: []admissionregistrationv1.RuleWithOperations{everything()},
				SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, FailurePolicy: ptr.To(admissionregistrationv1.Fail), TimeoutSeconds: ptr.To[int32](10),
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}}}})
		core.SetRegistrations("validatingwebhookconfigurations", &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "v.example.com", ClientConfig: clientConfig("/validate"), Rules: []admissionregistrationv1.RuleWithOperations{everything()},
				SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, FailurePolicy: ptr.To(admissionregistrationv1.Fail), TimeoutSeconds: ptr.To[int32](10),
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}}}})
	})
	client := server.Client(t, "admin")
	created, err := client.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), testserver.Configuration("good", "b.example.com"), metav1.CreateOptions{})
	if err != nil || created.Labels["hooked"] != "yes" {
		t.Errorf("a good one: %v, labels %v", err, created.Labels)
	}
	_, err = client.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), testserver.Configuration("refused", "c.example.com"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil || !strings.Contains(err.Error(), `admission webhook "v.example.com" denied the request: this name is refused`) {
		t.Errorf("a refused one: %v", err)
	}
	writes(t, client, core, configuration)
}

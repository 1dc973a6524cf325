/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/installation"
)

// empty returns a cluster in which nsinit can be installed, with more objects. The user has one of the permissions, or every one.
func empty(ca []byte, permissions []string, objects ...runtime.Object) *cmdtesting.Cluster {
	cluster := cmdtesting.New(append(objects,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, Data: map[string]string{
			"requestheader-client-ca-file":   string(ca),
			"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`,
		}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{defaultClass: "true"}}})...)
	ofVersion(cluster, "v1.37.2")
	served := &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1"}
	for _, name := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		served.APIResources = append(served.APIResources, metav1.APIResource{Name: name})
	}
	cluster.Core.Resources = append(cluster.Core.Resources, served)
	cluster.Core.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		of := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).Spec.ResourceAttributes
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: permissions == nil || slices.Contains(permissions, of.Verb)}}, nil
	})
	return cluster
}

func ofVersion(cluster *cmdtesting.Cluster, name string) {
	cluster.Core.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: name}
}

// webhook returns a configuration with one webhook.
func webhook(name string, policy admissionregistrationv1.FailurePolicyType, namespaces *metav1.LabelSelector, operation admissionregistrationv1.OperationType, resource string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "w.example.com", FailurePolicy: &policy, NamespaceSelector: namespaces, Rules: []admissionregistrationv1.RuleWithOperations{rule(operation, resource)},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "guard", Name: "guard"}},
	}}}
}

func rule(operation admissionregistrationv1.OperationType, resource string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{operation},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{resource}}}
}

// policy returns a policy and its binding, without the part that judges.
func policy(name string, match *admissionregistrationv1.MatchResources, action admissionregistrationv1.ValidationAction, bound *admissionregistrationv1.MatchResources) []runtime.Object {
	return []runtime.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: match}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{action}, MatchResources: bound}},
	}
}

func matching(operation admissionregistrationv1.OperationType, resource string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule(operation, resource)}}}
}

// TestInspectBefore: a cluster in which nsinit can be installed has no finding, and each obstacle is one.
func TestInspectBefore(t *testing.T) {
	ca := certificate(t, cmdtesting.Now(), 365*24*time.Hour)
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "guard", Name: "guard"}}
	elsewhere := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	ours := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "nsinit-system"}}
	conditional, unlabelled := webhook("x", fail, nil, "*", "pods"), webhook("x", fail, nil, "*", "*/*")
	conditional.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "true"}}
	unlabelled.Webhooks[0].ObjectSelector = elsewhere
	mutating := []runtime.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "labels"}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{MatchConstraints: matching("*", "*")}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "labels"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "labels"}},
	}
	aggregated := func(name, group string, backend *apiregistrationv1.ServiceReference) func(*cmdtesting.Cluster) {
		return func(c *cmdtesting.Cluster) {
			_ = c.APIs.Tracker().Add(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{Group: group, Service: backend}})
		}
	}
	for name, test := range map[string]struct {
		permissions []string
		objects     []runtime.Object
		change      func(*cmdtesting.Cluster)
		// want are the findings other than OK: the check, the state and a part of the message and the remedy.
		want [][]string
	}{
		"nothing": {},
		"old":     {change: func(c *cmdtesting.Cluster) { ofVersion(c, "v1.33.9") }, want: [][]string{{"Kubernetes", "Problem", "v1.33.9", "upgrade kube-apiserver to 1.34"}}},
		"new":     {change: func(c *cmdtesting.Cluster) { ofVersion(c, "v1.38.0+x") }, want: [][]string{{"Kubernetes", "Warning", "tested up to 1.37, not on v1.38.0+x", "test cluster"}}},
		"no policies": {change: func(c *cmdtesting.Cluster) { c.Core.Resources[1].APIResources = c.Core.Resources[1].APIResources[:2] },
			want: [][]string{{"Policies", "Problem", "does not serve mutatingadmissionpolicies, mutatingadmissionpolicybindings of", "--runtime-config"}}},
		"a webhook stamps": {change: func(c *cmdtesting.Cluster) {
			ofVersion(c, "v1.35.4")
			for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
				c.Core.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewNotFound(admissionregistrationv1.Resource(resource), "")
				})
			}
			c.Core.Resources[1].APIResources = c.Core.Resources[1].APIResources[:2]
		}},
		"no group": {change: func(c *cmdtesting.Cluster) { c.Core.Resources = c.Core.Resources[:1] }, want: [][]string{{"Policies", "Problem", "does not serve validatingadmissionpolicies, ", "--runtime-config"}}},
		"no aggregation": {change: func(c *cmdtesting.Cluster) {
			_ = c.Core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "kube-system", "extension-apiserver-authentication")
		}, want: [][]string{{"Aggregation", "Problem", "has no requestheader-client-ca-file, requestheader-username-headers, ", "--proxy-client-cert-file"}}},
		"no headers": {change: func(c *cmdtesting.Cluster) {
			c.Core.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &corev1.ConfigMap{Data: map[string]string{"requestheader-client-ca-file": "x", "requestheader-username-headers": "[]", "requestheader-group-headers": `["g"]`}}, nil
			})
		}, want: [][]string{{"Aggregation", "Problem", "has no requestheader-username-headers", ""}, {"Leftovers", "Warning", "nsinit-storage", ""}}},
		"a definition": {change: aggregated("v1.nsinit.dev", "nsinit.dev", nil), want: [][]string{{"APIServices", "Problem", "v1.nsinit.dev exists, because CustomResourceDefinitions", "delete the CustomResourceDefinitions"}}},
		"registered": {change: aggregated(installation.APIService, "nsinit.dev", &apiregistrationv1.ServiceReference{Namespace: "n", Name: "s"}),
			want: [][]string{{"APIServices", "Warning", "v1alpha1.nsinit.dev of service n/s exists", "docs/uninstall.md"}}},
		"another API is down": {change: aggregated("v1.x.example.com", "x.example.com", &apiregistrationv1.ServiceReference{}), want: [][]string{{"APIServices", "Warning", "v1.x.example.com is not available", "kubectl nsinit why --all"}}},
		"local APIs":          {change: aggregated("v1.apps", "apps", nil)},
		"no permission":       {permissions: []string{"get"}, want: [][]string{{"Permissions", "Problem", "you may not create namespaces, patch namespaces, create clusterroles, patch clusterroles, escalate clusterroles, bind clusterroles, ", "cluster-admin"}}},
		"no escalation":       {permissions: []string{"create", "patch"}, want: [][]string{{"Permissions", "Problem", "you may not escalate clusterroles, bind clusterroles", "cluster-admin"}}},
		"each permission":     {permissions: []string{"create", "patch", "escalate", "bind"}},
		"a refused namespace": {change: func(c *cmdtesting.Cluster) {
			c.Core.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "nsinit-system", &apierrors.StatusError{ErrStatus: metav1.Status{Message: `admission webhook "w" denied the request: no`}})
			})
		}, want: [][]string{{"Namespace", "Problem", `denied the request: no`, "fix the cause"}}},
		"its namespace":    {objects: []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nsinit-system"}}}},
		"installed":        {objects: []runtime.Object{deployment("nsinit-controller-manager", appsv1.DeploymentStatus{})}, want: [][]string{{"Leftovers", "Warning", "installed already, in namespace nsinit-system", "docs/upgrade.md"}}},
		"closed":           {objects: []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"nsinit.dev/initializing": ""}}}}, want: [][]string{{"Leftovers", "Warning", "1 objects, such as a label or finalizer of namespace a", "docs/uninstall.md"}}},
		"held":             {objects: []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"nsinit.dev/content"}}}}, want: [][]string{{"Leftovers", "Warning", "namespace a", ""}}},
		"former policies":  {objects: policy("nsinit-gate", matching("*", "*"), admissionregistrationv1.Deny, nil), want: [][]string{{"Leftovers", "Warning", "validatingadmissionpolicy/nsinit-gate", ""}}},
		"a former webhook": {objects: []runtime.Object{webhook("nsinit-stamp", fail, nil, "*", "*")}, want: [][]string{{"Leftovers", "Warning", "validatingwebhookconfiguration/nsinit-stamp", ""}}},
		"off":              {objects: []runtime.Object{&corev1.ConfigMap{ObjectMeta: objectMeta(installation.Off, nil)}}, want: [][]string{{"Leftovers", "Warning", "configmap nsinit-system/nsinit-off", ""}}},
		"no class": {change: func(c *cmdtesting.Cluster) {
			_ = c.Core.Tracker().Delete(storagev1.SchemeGroupVersion.WithResource("storageclasses"), "", "standard")
		}, want: [][]string{{"Storage", "Warning", "no StorageClass is the default", "overlay ha"}}},
		"a webhook is down": {objects: []runtime.Object{webhook("x", fail, nil, "UPDATE", "*/*")}, want: [][]string{{"Webhooks", "Problem", `webhook "w.example.com" of validatingwebhookconfiguration/x has failurePolicy Fail for UPDATE of namespaces/status, UPDATE of namespaces, UPDATE of namespaces/finalize, UPDATE of leases: its service guard/guard does not exist, so no namespace opens; no namespace with participants is removed; nsinit-controller-manager does nothing`, "kubectl delete validatingwebhookconfiguration/x"}}},
		"a webhook answers": {objects: []runtime.Object{service, webhook("x", fail, nil, "*", "namespaces")}, want: [][]string{{"Webhooks", "Warning", "Fail for UPDATE of namespaces: while it does not answer, no namespace with participants is removed", "kubectl edit validatingwebhookconfiguration/x"}}},
		"for reviews":       {objects: []runtime.Object{service, webhook("x", fail, elsewhere, "CREATE", "subjectaccessreviews")}, want: [][]string{{"Webhooks", "Warning", "CREATE of subjectaccessreviews", ""}}},
		"for our pods":      {objects: []runtime.Object{service, webhook("x", fail, ours, "*", "*")}, want: [][]string{{"Webhooks", "Warning", "Fail for CREATE of pods, UPDATE of leases, CREATE of apiservices, CREATE of tokenreviews, ", ""}}},
		"on conditions":     {objects: []runtime.Object{service, conditional}, want: [][]string{{"Webhooks", "Warning", "CREATE of pods that meet its matchConditions: while", ""}}},
		"for labels":        {objects: []runtime.Object{unlabelled}},
		"a hostile name":    {objects: []runtime.Object{service, webhook("$(reboot)", fail, nil, "*", "pods")}, want: [][]string{{"Webhooks", "Warning", "", "kubectl edit 'validatingwebhookconfiguration/$(reboot)'"}}},
		"other webhooks":    {objects: []runtime.Object{webhook("a", ignore, nil, "*", "*/*"), webhook("b", fail, elsewhere, "*", "namespaces"), webhook("c", fail, nil, "CREATE", "namespaces"), webhook("d", fail, nil, "*", "secrets")}},
		"a policy":          {objects: policy("x", matching("UPDATE", "namespaces/*"), admissionregistrationv1.Deny, nil), want: [][]string{{"OtherPolicies", "Warning", "validatingadmissionpolicy/x applies to UPDATE of namespaces/status, UPDATE of namespaces, UPDATE of namespaces/finalize: if it refuses nsinit, no namespace opens; ", "kubectl get validatingadmissionpolicy/x --output yaml"}}},
		"that excludes":     {objects: policy("x", &admissionregistrationv1.MatchResources{ResourceRules: matching("*", "*/*").ResourceRules, ExcludeResourceRules: matching("*", "*/*").ResourceRules}, admissionregistrationv1.Deny, nil)},
		"that audits":       {objects: policy("x", matching("UPDATE", "namespaces/*"), admissionregistrationv1.Audit, nil)},
		"bound elsewhere":   {objects: policy("x", matching("UPDATE", "namespaces"), admissionregistrationv1.Deny, &admissionregistrationv1.MatchResources{NamespaceSelector: elsewhere})},
		"without binding":   {objects: policy("x", matching("UPDATE", "namespaces"), admissionregistrationv1.Deny, nil)[:1]},
		"a policy changes":  {objects: mutating, want: [][]string{{"OtherPolicies", "Warning", "mutatingadmissionpolicy/labels applies to ", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := empty(ca, test.permissions, test.objects...)
			if test.change != nil {
				test.change(cluster)
			}
			results := inspectBefore(t.Context(), &cluster.Clients)
			checks := sets.New[string]()
			for _, result := range results {
				checks.Insert(result.Check)
			}
			if want := sets.New("Kubernetes", "Policies", "Aggregation", "APIServices", "Permissions", "Namespace", "Webhooks", "OtherPolicies", "Leftovers", "Storage"); !checks.Equal(want) {
				t.Errorf("the checks are %v", checks.UnsortedList())
			}
			findings := slices.DeleteFunc(results, func(result Result) bool { return result.State == OK })
			if len(findings) != len(test.want) {
				t.Fatalf("found %+v", findings)
			}
			for n, want := range test.want {
				if got := findings[n]; got.Check != want[0] || string(got.State) != want[1] || !strings.Contains(got.Message, want[2]) || got.Remedy == "" || !strings.Contains(got.Remedy, want[3]) {
					t.Errorf("found %+v", got)
				}
			}
		})
	}
}

// TestInspectBeforeUnknown: what the user may not read is a warning.
func TestInspectBeforeUnknown(t *testing.T) {
	cluster := empty(certificate(t, cmdtesting.Now(), 365*24*time.Hour), nil)
	cluster.Core.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetResource().Resource != "version", nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", nil)
	})
	for _, result := range inspectBefore(t.Context(), &cluster.Clients) {
		known := slices.Contains([]string{"Kubernetes", "APIServices", "Webhooks"}, result.Check)
		if result.State != Warning && !known || result.State == Problem || result.State == Warning && !strings.HasPrefix(result.Message, "not checked: ") {
			t.Errorf("found %+v", result)
		}
	}
}

// TestApplied: the permissions are for the kinds of the manifests.
func TestApplied(t *testing.T) {
	want, root := sets.New[string](), filepath.Join("..", "..", "..", "artifacts")
	for _, dir := range []string{"deploy/base", "deploy/programs", "deploy/overlays/embedded", "deploy/overlays/ha", "policies", "early-writes", "deploy/components/stamp-webhook"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			// nsinit-controller-manager creates what is in the folders in-force.
			if err != nil || entry.IsDir() || entry.Name() == "kustomization.yaml" || strings.Contains(path, "in-force") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			objects, err := cmdutil.ReadManifests("nsinit-system", string(text))
			for _, object := range objects {
				resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
				want.Insert(strings.TrimSuffix(object.GetNamespace()+"/"+resource.GroupResource().String(), "."))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	got := sets.New[string]()
	for _, attributes := range (&inspection{namespace: "nsinit-system"}).applied() {
		got.Insert(strings.TrimSuffix(attributes.Namespace+"/"+attributes.Resource+"."+attributes.Group, "."))
	}
	if diff := cmp.Diff(sets.List(want), sets.List(got)); diff != "" {
		t.Errorf("(-manifests +permissions):\n%s", diff)
	}
}

// TestVersions: the tests run on the versions between the oldest and the newest one.
func TestVersions(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join("..", "..", "..", "hack", "dev", "kubernetes"))
	if err != nil || len(entries) == 0 {
		t.Fatal(err)
	}
	if oldest, newest := entries[0].Name(), entries[len(entries)-1].Name(); oldest != "v"+oldestKubernetes || newest != "v"+newestKubernetes {
		t.Errorf("the versions are %s to %s, not %s to %s", oldest, newest, oldestKubernetes, newestKubernetes)
	}
}

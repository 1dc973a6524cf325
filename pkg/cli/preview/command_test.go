/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package preview_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/preview"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// population puts a ConfigMap that names the creator into every namespace.
func population(name, template string) *v1alpha1.NamespacePopulation {
	return &v1alpha1.NamespacePopulation{TypeMeta: metav1.TypeMeta{APIVersion: "nsinit.dev/v1alpha1", Kind: "NamespacePopulation"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NamespacePopulationSpec{Manifests: []v1alpha1.PopulationManifest{{Name: "m", Template: runtime.RawExtension{Raw: []byte(template)}}}}}
}

const template = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"${creator}-x"}}`

// world is a cluster with the namespace shop, that alice created.
type world struct {
	populations []runtime.Object
	// live is what is read, and applied what applying returns.
	live, applied *unstructured.Unstructured
	refusal       error
	// mayNothing says that the initializer has no permissions.
	mayNothing bool
}

func configMap(version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "alice-x", "resourceVersion": version}}}
}

func (w world) cluster() *cmdtesting.Cluster {
	cluster := cmdtesting.New(append(w.populations, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "alice"}}})...)
	cluster.Core.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "bob"}}}, nil
	})
	cluster.Core.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: !w.mayNothing}}, nil
	})
	cluster.Dynamic.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if w.live == nil {
			return true, nil, apierrors.NewNotFound(corev1.Resource("configmaps"), "alice-x")
		}
		return true, w.live, nil
	})
	cluster.Dynamic.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if w.refusal != nil {
			return true, nil, w.refusal
		}
		return true, w.applied, nil
	})
	return cluster
}

// exemptions exempts a namespace.
func exemptions(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: "nsinit-exemptions"}, Data: map[string]string{"namespaces": namespace}}
}

func TestPreview(t *testing.T) {
	const header = "POPULATION   MANIFEST   OBJECT              RESULT\n"
	one := []runtime.Object{population("p", template)}
	changed := configMap("1") // a dry run does not change the version
	changed.SetLabels(map[string]string{"tier": "gold"})
	reaching := population("p", template)
	reaching.Spec.Scope = v1alpha1.ScopeAll
	inventory := &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"},
		Status: v1alpha1.PopulatedNamespaceStatus{Objects: []v1alpha1.PopulatedObject{{Population: "p", Manifest: "m", APIVersion: "v1", Kind: "ConfigMap", Name: "alice-x", UID: "u"}}}}
	tooled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tool-x", GenerateName: "to", Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "alice"}}}
	tools := exemptions("exempt")
	tools.Data["namePrefixes"] = "tool-" // which is not a prefix of its generateName
	file := filepath.Join(t.TempDir(), "population.yaml")
	if err := os.WriteFile(file, []byte("kind: ConfigMap\napiVersion: v1\n---\nkind: NamespacePopulation\napiVersion: nsinit.dev/v1alpha1\nmetadata: {name: q}\nspec: {manifests: [{name: m, template: "+template+"}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		world world
		in    string
		test  cmdtesting.Test
	}{
		"created":    {world{populations: one, applied: configMap("1")}, "", cmdtesting.Test{Args: []string{"shop"}, Out: header + "p            m          ConfigMap/alice-x   created\n"}},
		"unchanged":  {world{populations: one, live: configMap("1"), applied: configMap("1")}, "", cmdtesting.Test{Args: []string{"shop"}, Out: header + "p            m          ConfigMap/alice-x   unchanged\n"}},
		"configured": {world{populations: one, live: configMap("1"), applied: changed}, "", cmdtesting.Test{Args: []string{"shop"}, Out: header + "p            m          ConfigMap/alice-x   configured\n"}},
		"fields":     {world{populations: one, applied: configMap("1")}, "", cmdtesting.Test{Args: []string{"shop", "--output=jsonpath={.kind} {.items[*].result} {.items[*].object.metadata.name}"}, Out: "PopulationPreview created alice-x"}},
		"refused": {world{populations: one, refusal: errors.New("no rights")}, "", cmdtesting.Test{Args: []string{"shop", "--output=jsonpath={.items[*].result}"}, Out: "refused",
			Err: "exit code 2"}},
		"text that is not safe": {world{populations: one, refusal: errors.New("no\nrights\x1b[2J")}, "", cmdtesting.Test{Args: []string{"shop"}, Err: "exit code 2", Out: header +
			"p            m          ConfigMap/alice-x   refused\n\np/m: cannot apply ConfigMap \"alice-x\": no rights?[2J\n"}},
		"with scope All, of another client": {world{populations: []runtime.Object{reaching, exemptions("exempt")}, live: configMap("1"), applied: configMap("2")}, "", cmdtesting.Test{Args: []string{"shop"}, Err: "exit code 2", Out: header +
			"p            m          ConfigMap/alice-x   conflict\n\np/m: cannot apply ConfigMap \"alice-x\": it exists, and another client created or changed it: change the name in the manifest, or delete the object\n"}},
		"with scope All, in the inventory": {world{populations: []runtime.Object{reaching, inventory, exemptions("exempt")}, live: configMap("1"), applied: configMap("2")}, "", cmdtesting.Test{Args: []string{"shop"}, Out: header +
			"p            m          ConfigMap/alice-x   unchanged\n"}},
		"with scope All, in a new one": {world{populations: []runtime.Object{reaching}}, "", cmdtesting.Test{Args: []string{"new", "--output=jsonpath={.items[*].result}"}, Out: "rendered"}},
		"with scope All, exempt": {world{populations: []runtime.Object{reaching, exemptions("shop")}}, "", cmdtesting.Test{Args: []string{"shop"},
			Out: "No population puts anything into namespace \"shop\".\n", ErrOut: "Namespace \"shop\" is exempt by its name: populations with scope All put nothing into it.\n"}},
		"with scope All, of Kubernetes": {world{populations: []runtime.Object{reaching, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}}}, "", cmdtesting.Test{Args: []string{"kube-system"},
			Out: "No population puts anything into namespace \"kube-system\".\n", ErrOut: "Namespace \"kube-system\" belongs to Kubernetes: populations with scope All put nothing into it.\n"}},
		"with scope All, no exemptions":                  {world{populations: []runtime.Object{reaching}}, "", cmdtesting.Test{Args: []string{"shop"}, Err: "cannot read the list of exemptions, ConfigMap nsinit-system/nsinit-exemptions: "}},
		"with scope All, a generated name is not exempt": {world{populations: []runtime.Object{reaching, tooled, tools}, applied: configMap("1")}, "", cmdtesting.Test{Args: []string{"tool-x", "--output=jsonpath={.items[*].result}"}, Out: "created"}},
		"with scope All, closed": {world{populations: []runtime.Object{reaching, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "closed", Labels: map[string]string{v1alpha1.LabelInitializing: "true"},
			Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "alice"}}}}, applied: configMap("1")}, "", cmdtesting.Test{Args: []string{"closed", "--output=jsonpath={.items[*].result}"}, Out: "created"}},
		"nothing": {world{}, "", cmdtesting.Test{Args: []string{"shop"}, Out: "No population puts anything into namespace \"shop\".\n"}},
		"by bob":  {world{populations: one}, "", cmdtesting.Test{Args: []string{"new", "--output=jsonpath={.items[*].object.metadata.name}"}, Out: "bob-x"}},
		"not permitted": {world{populations: one, mayNothing: true}, "", cmdtesting.Test{Args: []string{"new", "--output=jsonpath={.items[*].result} {.items[*].message}"},
			Out: `refused cannot apply ConfigMap "bob-x": grant the initializer the missing permission cluster-wide: create and patch on configmaps`, Err: "exit code 2"}},
		"by carol":  {world{populations: one}, "", cmdtesting.Test{Args: []string{"new", "--creator=carol", "--output=jsonpath={.items[*].object.metadata.name}"}, Out: "carol-x"}},
		"of a file": {world{populations: one}, "", cmdtesting.Test{Args: []string{"new", "-f", file, "--output=jsonpath={.items[*].population}"}, Out: "q"}},
		"of a list": {world{populations: one}, `{"kind":"List","apiVersion":"v1","items":[{"kind":"NamespacePopulation","apiVersion":"nsinit.dev/v1alpha1","metadata":{"name":"s"},"spec":{"manifests":[{"name":"m","template":` + template + `}]}}]}`,
			cmdtesting.Test{Args: []string{"new", "-f", "-", "--output=jsonpath={.items[*].population}"}, Out: "s"}},
		"of the input": {world{populations: one}, `{"kind":"NamespacePopulation","apiVersion":"nsinit.dev/v1alpha1","metadata":{"name":"r"},"spec":{"manifests":[{"name":"n","template":` + template + `}]}}`,
			cmdtesting.Test{Args: []string{"new", "-f", "-", "--output=jsonpath={.items[*].population}"}, Out: "r"}},
		"with scope All, beside one that is not valid": {world{populations: []runtime.Object{population("p", "{}"), exemptions("exempt")}, applied: configMap("1")},
			`{"kind":"NamespacePopulation","apiVersion":"nsinit.dev/v1alpha1","metadata":{"name":"r"},"spec":{"scope":"All","manifests":[{"name":"n","template":` + template + `}]}}`,
			cmdtesting.Test{Args: []string{"shop", "-f", "-", "--output=jsonpath={.items[*].result}"}, Out: "created"}},

		"no file":        {world{}, "", cmdtesting.Test{Args: []string{"shop", "-f", "/nowhere"}, Err: "--filename=/nowhere: the path \"/nowhere\" does not exist"}},
		"an empty input": {world{}, "", cmdtesting.Test{Args: []string{"shop", "-f", "-"}, Err: "there is no NamespacePopulation in it"}},
		"not valid":      {world{populations: []runtime.Object{population("p", "{}")}}, "", cmdtesting.Test{Args: []string{"shop"}, Err: `NamespacePopulation "p" is not valid: `}},
		"its creator":    {world{}, "", cmdtesting.Test{Args: []string{"shop", "--creator=carol"}, Err: `namespace "shop" exists: --creator, --groups and --labels are for namespaces that do not`}},
		"bad labels":     {world{}, "", cmdtesting.Test{Args: []string{"new", "--labels=a"}, Err: "--labels=a: "}},
		"no such format": {world{}, "", cmdtesting.Test{Args: []string{"shop", "-o", "name"}, Err: `output format "name", allowed formats are:`}},
		"no arguments":   {world{}, "", cmdtesting.Test{Err: "the argument NAMESPACE is missing; for example:"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.test.Cluster = test.world.cluster()
			test.test.Cluster.In = test.in
			test.test.Check(t, preview.NewCommand)
		})
	}
}

// TestAll: with --all, the report has what the populations with scope All say of their current version.
func TestAll(t *testing.T) {
	ofAll := func(reason string, observed int64, status v1alpha1.PopulationRolloutStatus) []runtime.Object {
		p := population("p", template)
		p.Generation, p.Spec.Scope, p.Status.Rollout = 2, v1alpha1.ScopeAll, &status
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRolledOut, ObservedGeneration: observed, Reason: reason, Message: "the\x1bmessage"}}
		return []runtime.Object{p, population("new", template)}
	}
	const header = "POPULATION   ROLLOUT       NAMESPACES   CHECKED   CURRENT   TO CREATE   TO CHANGE   TO DELETE   UNCHANGED   CONFLICTS   REFUSED\n"
	counts := v1alpha1.PopulationRolloutStatus{Namespaces: 9, Checked: 9, Current: 8, ToCreate: 7, ToChange: 6, ToDelete: 5, Unchanged: 4}
	refused := v1alpha1.PopulationRolloutStatus{Refused: 1, Problems: []v1alpha1.PopulationProblem{{Namespace: "shop", Manifest: "m", Result: v1alpha1.ProblemRefused, Message: "no\nrights"}}}
	for name, test := range map[string]struct {
		populations []runtime.Object
		test        cmdtesting.Test
	}{
		"counts":          {ofAll("Reported", 2, counts), cmdtesting.Test{Out: strings.Replace(header, "ROLLOUT    ", "ROLLOUT ", 1) + "p            Reported   9            9         8         7           6           5           4           0           0\n\np: the?message\n"}},
		"a problem":       {ofAll("Incomplete", 2, refused), cmdtesting.Test{Err: "exit code 2", Out: strings.Replace(header, "ROLLOUT    ", "ROLLOUT   ", 1) + "p            Incomplete   0            0         0         0           0           0           0           0           1\n\np: the?message\n- shop/m: Refused: no rights\n"}},
		"a conflict":      {ofAll("Incomplete", 2, v1alpha1.PopulationRolloutStatus{Conflicts: 1}), cmdtesting.Test{Args: []string{"--output=jsonpath={.kind} {.items[*].rollout.conflicts} {.items[*].message}"}, Err: "exit code 2", Out: "PopulationReport 1 the\x1bmessage"}},
		"a former state":  {ofAll("Complete", 1, refused), cmdtesting.Test{Args: []string{"--output=jsonpath={.items[*].reason} {.items[*].rollout.refused}"}, Out: "NotObserved 0", Err: "policy-population has not checked every namespace for p"}},
		"a part":          {ofAll("Reporting", 2, v1alpha1.PopulationRolloutStatus{Namespaces: 2, Checked: 1}), cmdtesting.Test{Args: []string{"--output=jsonpath={.items[*].reason}"}, Out: "Reporting", Err: "policy-population has not checked every namespace for p"}},
		"only for new":    {[]runtime.Object{population("new", template)}, cmdtesting.Test{Out: "No population has scope All, so none reaches namespaces that exist.\n"}},
		"and a name":      {nil, cmdtesting.Test{Args: []string{"shop"}, Err: `unexpected argument "shop": --all is for every namespace`}},
		"and a file":      {nil, cmdtesting.Test{Args: []string{"--filename=x"}, Err: "create it with scope: All and rollout: Report"}},
		"and its creator": {nil, cmdtesting.Test{Args: []string{"--creator=carol"}, Err: "--creator, --groups and --labels are for a namespace that does not exist, and --all for those that do"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.test.Cluster = cmdtesting.New(test.populations...)
			test.test.Args = append(test.test.Args, "--all")
			test.test.Check(t, preview.NewCommand)
		})
	}
}

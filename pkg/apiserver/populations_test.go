/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"slices"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const configMapTemplate = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"${creator}-x"},"data":{"team":"${namespaceObject.metadata.name}"}}`

func populationOf(name string, manifests ...v1alpha1.PopulationManifest) *v1alpha1.NamespacePopulation {
	return &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NamespacePopulationSpec{Manifests: manifests}}
}

func manifestOf(name, template string) v1alpha1.PopulationManifest {
	return v1alpha1.PopulationManifest{Name: name, Template: runtime.RawExtension{Raw: []byte(template)}}
}

// TestPopulationErrors: what is wrong is said when it is written, with its field.
func TestPopulationErrors(t *testing.T) {
	t.Parallel()
	populations := testserver.Start(t).Client(t, "admin").NsinitV1alpha1().NamespacePopulations()
	ctx := t.Context()
	conditional := manifestOf("a", configMapTemplate)
	conditional.When = "creator"
	drifting := manifestOf("a", configMapTemplate)
	drifting.DriftPolicy = "Sometimes"
	selecting := populationOf("p", manifestOf("a", configMapTemplate))
	selecting.Spec.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
	reaching := func(scope v1alpha1.PopulationScopeType, rollout v1alpha1.PopulationRolloutType) *v1alpha1.NamespacePopulation {
		p := populationOf("p", manifestOf("a", configMapTemplate))
		p.Spec.Scope, p.Spec.Rollout = scope, rollout
		return p
	}
	labelling := func(labels map[string]string) *v1alpha1.NamespacePopulation {
		p := populationOf("p")
		p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "x"}}
		p.Spec.NamespaceMetadata = &v1alpha1.PopulationNamespaceMetadata{Labels: labels}
		return p
	}
	labels := map[string]string{}
	for i := range 64 {
		labels["l"+strconv.Itoa(i)] = "x"
	}
	many := make([]v1alpha1.PopulationManifest, 129)
	for i := range many {
		many[i] = manifestOf("m"+string(rune('a'+i/26))+string(rune('a'+i%26)), configMapTemplate)
	}
	for name, test := range map[string]struct {
		population *v1alpha1.NamespacePopulation
		want       []string
	}{
		"a name that is no label":  {populationOf("p.q", manifestOf("a", configMapTemplate)), []string{"metadata.name"}},
		"a manifest without name":  {populationOf("p", manifestOf("", configMapTemplate)), []string{"spec.manifests[0].name"}},
		"a manifest's bad name":    {populationOf("p", manifestOf("A b", configMapTemplate)), []string{"spec.manifests[0].name"}},
		"a name twice":             {populationOf("p", manifestOf("a", configMapTemplate), manifestOf("a", configMapTemplate)), []string{"spec.manifests[1]"}},
		"too many":                 {populationOf("p", many...), []string{"spec.manifests"}},
		"no template":              {populationOf("p", v1alpha1.PopulationManifest{Name: "a"}), []string{"spec.manifests[0].template"}},
		"a list":                   {populationOf("p", manifestOf("a", `[]`)), []string{"spec.manifests[0].template"}},
		"an empty object":          {populationOf("p", manifestOf("a", `{}`)), []string{"spec.manifests[0].template"}},
		"nothing that names it":    {populationOf("p", manifestOf("a", `{"data":{}}`)), []string{"spec.manifests[0].template.apiVersion", "spec.manifests[0].template.kind", "spec.manifests[0].template.metadata.name"}},
		"its own labels":           {labelling(map[string]string{"nsinit.dev/a": "b", "kubernetes.io/metadata.name": "c", "tier": "d", "a b": "e", "f": "${unknown}"}), []string{"spec.namespaceMetadata.labels.f", "spec.namespaceMetadata.labels[a b]", "spec.namespaceMetadata.labels[kubernetes.io/metadata.name]", "spec.namespaceMetadata.labels[nsinit.dev/a]", "spec.namespaceMetadata.labels[tier]"}},
		"too many labels":          {labelling(labels), []string{"spec.namespaceMetadata.labels"}},
		"a path":                   {populationOf("p", manifestOf("a", `{"apiVersion":"v1","kind":"A","metadata":{"name":"../a"}}`)), []string{"spec.manifests[0].template.metadata.name"}},
		"a slash in an expression": {populationOf("p", manifestOf("a", `{"apiVersion":"v1","kind":"A","metadata":{"name":"${string(2/1)}"},"status":{}}`)), []string{"spec.manifests[0].template.status"}},
		"a namespace":              {populationOf("p", manifestOf("a", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a","namespace":"b"}}`)), []string{"spec.manifests[0].template.metadata.namespace"}},
		"owners":                   {populationOf("p", manifestOf("a", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a","ownerReferences":[{"name":"a"}]}}`)), []string{"spec.manifests[0].template.metadata.ownerReferences"}},
		"a status":                 {populationOf("p", manifestOf("a", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"status":{}}`)), []string{"spec.manifests[0].template.status"}},
		"a version":                {populationOf("p", manifestOf("a", `{"apiVersion":"a/b/c","kind":"A","metadata":{"name":"a"}}`)), []string{"spec.manifests[0].template.apiVersion"}},
		"expressions":              {populationOf("p", manifestOf("a", `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"data":{"a":"${creator +}","b":["${unknown}"]}}`)), []string{"spec.manifests[0].template.data.a", "spec.manifests[0].template.data.b[0]"}},
		"a condition that is none": {populationOf("p", conditional), []string{"spec.manifests[0].when"}},
		"a policy that is none":    {populationOf("p", drifting), []string{"spec.manifests[0].driftPolicy"}},
		"a selector that is none":  {selecting, []string{"spec.namespaceSelector"}},
		"a scope that is none":     {reaching("Some", ""), []string{"spec.scope"}},
		"a rollout that is none":   {reaching(v1alpha1.ScopeAll, "Later"), []string{"spec.rollout"}},
		"a rollout without scope":  {reaching("", v1alpha1.RolloutReport), []string{"spec.rollout"}},
		"a rollout to new ones":    {reaching(v1alpha1.ScopeNew, v1alpha1.RolloutApply), []string{"spec.rollout"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := populations.Create(ctx, test.population, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if got := fieldsOf(err); !apierrors.IsInvalid(err) || !slices.Equal(got, test.want) {
				t.Errorf("fields %q, want %q: %v", got, test.want, err)
			}
		})
	}
	if p, err := populations.Create(ctx, populationOf("p", manifestOf("a", configMapTemplate)), metav1.CreateOptions{}); err != nil || p.Spec.Scope != v1alpha1.ScopeNew || p.Spec.Rollout != "" {
		t.Errorf("a good one: %+v, %v", p.Spec, err)
	}
	for _, rollout := range []v1alpha1.PopulationRolloutType{"", v1alpha1.RolloutReport, v1alpha1.RolloutApply} {
		if _, err := populations.Create(ctx, reaching(v1alpha1.ScopeAll, rollout), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("one with scope All and rollout %q: %v", rollout, err)
		}
	}
}

func fieldsOf(err error) []string {
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Details == nil {
		return nil
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// TestPopulationEndpoints: the main endpoint writes the spec alone, and status the status.
func TestPopulationEndpoints(t *testing.T) {
	t.Parallel()
	client := testserver.Start(t).Client(t, "admin").NsinitV1alpha1()
	populations, populated, ctx := client.NamespacePopulations(), client.PopulatedNamespaces(), t.Context()

	p := populationOf("p", manifestOf("a", configMapTemplate))
	p.Status.Namespaces = 7
	p, err := populations.Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if m := p.Spec.Manifests[0]; p.Generation != 1 || p.Status.Namespaces != 0 || m.DriftPolicy != v1alpha1.DriftIgnore || m.PrunePolicy != v1alpha1.PruneDelete {
		t.Errorf("created %+v", p)
	}
	p.Status.Namespaces, p.Labels = 3, map[string]string{"a": "b"}
	p.Spec.Manifests[0].When = "false"
	p, err = populations.UpdateStatus(ctx, p, metav1.UpdateOptions{})
	if err != nil || p.Status.Namespaces != 3 || p.Labels["a"] != "" || p.Spec.Manifests[0].When != "" || p.Generation != 1 {
		t.Errorf("status: %+v %v", p, err)
	}
	p.Status.Namespaces = 9
	p.Spec.Manifests[0].When = "false"
	p, err = populations.Update(ctx, p, metav1.UpdateOptions{})
	if err != nil || p.Status.Namespaces != 3 || p.Spec.Manifests[0].When != "false" || p.Generation != 2 {
		t.Errorf("main: %+v %v", p, err)
	}
	// What was stored earlier is compiled again once it changes.
	p.Spec.Manifests[0].When = "fals"
	if _, err = populations.Update(ctx, p, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an update: %v", err)
	}
	p, err = populations.Patch(ctx, "p", types.ApplyPatchType, []byte(`{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespacePopulation","metadata":{"name":"p"},"spec":{"manifests":[{"name":"b","template":`+configMapTemplate+`}]}}`),
		metav1.PatchOptions{FieldManager: "another"})
	if err != nil || len(p.Spec.Manifests) != 2 || p.Generation != 3 {
		t.Errorf("applied: %+v %v", p, err)
	}

	r, err := populated.Create(ctx, &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Spec.NamespaceUID = "v"
	if _, err := populated.Update(ctx, r, metav1.UpdateOptions{}); !slices.Equal(fieldsOf(err), []string{"spec.namespaceUID"}) {
		t.Errorf("another UID: %v", err)
	}
	r.Status.Objects = []v1alpha1.PopulatedObject{{Population: "p", Manifest: "a", State: v1alpha1.PopulatedObjectPending}}
	r, err = populated.UpdateStatus(ctx, r, metav1.UpdateOptions{})
	if err != nil || len(r.Status.Objects) != 1 || r.Spec.NamespaceUID != "u" {
		t.Errorf("status: %+v %v", r, err)
	}
	if _, err := populated.Create(ctx, &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); !slices.Equal(fieldsOf(err), []string{"spec.namespaceUID"}) {
		t.Errorf("without UID: %v", err)
	}
	for _, remove := range []func() error{
		func() error { return populated.Delete(ctx, "shop", metav1.DeleteOptions{}) },
		func() error { return populations.Delete(ctx, "p", metav1.DeleteOptions{}) },
	} {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}
	if _, err := populations.Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

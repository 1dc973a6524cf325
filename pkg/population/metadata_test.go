/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestNamespaceMetadata: a population applies labels and annotations with its own field manager, to that namespace only, and takes those of
// other clients over only in a new namespace. When they are removed from the population, they are removed from the namespace.
func TestNamespaceMetadata(t *testing.T) {
	conflict := apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}, "conflict with kubectl")
	forbidden := apierrors.NewForbidden(corev1.Resource("namespaces"), "shop", errors.New(`User "hook" cannot patch resource "namespaces"`))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", Labels: map[string]string{"a": "b"}}}
	population, errs := Compile("p", &v1alpha1.NamespacePopulationSpec{NamespaceMetadata: &v1alpha1.PopulationNamespaceMetadata{
		Labels: map[string]string{"team": "${namespaceObject.metadata.name}"}, Annotations: map[string]string{"note": "x y"}, DriftPolicy: v1alpha1.DriftRepair,
	}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	wanted := Render([]*Population{population}, namespace)
	entry := IdentityOf(wanted[0].entry())
	if entry != (Identity{Kind: "Namespace", Name: "shop", Population: "p"}) || wanted[0].Hash == "" {
		t.Errorf("rendered %+v", wanted[0])
	}
	known := wanted[0].entry()
	known.UID, known.ContentHash = "u", "former"
	for name, test := range map[string]struct {
		mode      Mode
		wanted    []Object
		known     []v1alpha1.PopulatedObject
		rejection error
		want      string
		outcome   Outcome
	}{
		"a new namespace":         {mode: Initialize, wanted: wanted, want: `hook/p force=true {"apiVersion":"v1","kind":"Namespace","metadata":{"annotations":{"note":"x y"},"labels":{"team":"shop"},"name":"shop","uid":"u"}}`, outcome: Configured},
		"an existing one":         {mode: RollOut, wanted: wanted, want: `hook/p force=false {"apiVersion":"v1","kind":"Namespace","metadata":{"annotations":{"note":"x y"},"labels":{"team":"shop"},"name":"shop","uid":"u"}}`, outcome: Configured},
		"labels of others":        {mode: RollOut, wanted: wanted, rejection: conflict, want: `hook/p force=false {"apiVersion":"v1","kind":"Namespace","metadata":{"annotations":{"note":"x y"},"labels":{"team":"shop"},"name":"shop","uid":"u"}}`, outcome: Conflict},
		"a change":                {mode: RollOut, wanted: wanted, known: []v1alpha1.PopulatedObject{known}, want: `hook/p force=true {"apiVersion":"v1","kind":"Namespace","metadata":{"annotations":{"note":"x y"},"labels":{"team":"shop"},"name":"shop","uid":"u"}}`, outcome: Configured},
		"they were never applied": {mode: Repair, known: []v1alpha1.PopulatedObject{wanted[0].entry()}, rejection: forbidden, want: `hook/p force=false {"apiVersion":"v1","kind":"Namespace","metadata":{"annotations":{},"labels":{},"name":"shop","uid":"u"}}`, outcome: Deleted},
		"they cannot be removed":  {mode: Repair, known: []v1alpha1.PopulatedObject{known}, rejection: forbidden, want: `hook/p force=false {"apiVersion":"v1","kind":"Namespace","metadata":{"annotations":{},"labels":{},"name":"shop","uid":"u"}}`, outcome: Refused},
		"they were removed":       {mode: Repair, known: []v1alpha1.PopulatedObject{known}, want: `hook/p force=false {"apiVersion":"v1","kind":"Namespace","metadata":{"annotations":{},"labels":{},"name":"shop","uid":"u"}}`, outcome: Deleted},
	} {
		t.Run(name, func(t *testing.T) {
			client, did := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), ""
			client.PrependReactor("*", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patch := action.(clienttesting.PatchActionImpl)
				did += fmt.Sprintf("%s force=%t %s", patch.PatchOptions.FieldManager, *patch.PatchOptions.Force, bytes.TrimSpace(patch.GetPatch()))
				stored := &unstructured.Unstructured{}
				_ = stored.UnmarshalJSON(patch.GetPatch())
				return true, stored, test.rejection
			})
			a := applier()
			a.Client, a.FieldManager = client, "hook"
			of := ""
			if test.mode == RollOut {
				of = "p"
			}
			var populations []*Population
			if test.wanted != nil {
				populations = append(populations, population)
			}
			results := a.run(t.Context(), namespace, test.mode, time.Now(), Plan(test.mode, of, populations, test.wanted, test.known), nil)
			if len(results) != 1 || results[0].outcome != test.outcome || did != test.want || (results[0].err != nil) != (test.outcome == Conflict || test.outcome == Refused) {
				t.Errorf("did %s: %+v", did, results)
			}
		})
	}
}

// TestMetadataValues: a rendered value must be a text, and that of a label a valid one.
func TestMetadataValues(t *testing.T) {
	for _, value := range []string{"${1 + 1}", "no label", "${namespaceObject.metadata.labels}"} {
		population, errs := Compile("p", &v1alpha1.NamespacePopulationSpec{NamespaceMetadata: &v1alpha1.PopulationNamespaceMetadata{Labels: map[string]string{"team": value}}})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if got := Render([]*Population{population}, &corev1.Namespace{}); got[0].Err == nil || got[0].Content != nil {
			t.Errorf("%s: %+v", value, got[0])
		}
	}
}

// TestSettles: repairs of values that read what they set would never end.
func TestSettles(t *testing.T) {
	for value, settles := range map[string]bool{
		`${namespaceObject.metadata.annotations["example.com/note"] + "!"}`:        false,
		`${namespaceObject.metadata.labels.team.replace("a", "b")}`:                true,
		`${namespaceObject.metadata.annotations["example.com/note"].lowerAscii()}`: true,
	} {
		for _, drift := range []v1alpha1.DriftPolicyType{v1alpha1.DriftRepair, v1alpha1.DriftIgnore} {
			population, errs := Compile("p", &v1alpha1.NamespacePopulationSpec{NamespaceMetadata: &v1alpha1.PopulationNamespaceMetadata{
				Labels: map[string]string{"other": "x"}, Annotations: map[string]string{"example.com/note": value}, DriftPolicy: drift}})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"example.com/note": "Y"}}}
			got := Render([]*Population{population}, namespace)[0]
			if refused := got.Err != nil && got.Content == nil; refused != (!settles && drift == v1alpha1.DriftRepair) {
				t.Errorf("%s, %s: %+v", value, drift, got)
			}
		}
	}
}

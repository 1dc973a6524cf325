/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/fuzzer"
	"github.com/nsinit/nsinit/pkg/apiserver/scheme"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespaceinitializerconfiguration"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespacelifecycle"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/applyconfiguration"
)

func lifecycles() *generic.Kind[*nsinit.NamespaceLifecycle] {
	return namespacelifecycle.NewKind(nil, nil)
}

func configurations() *generic.Kind[*nsinit.NamespaceInitializerConfiguration] {
	return namespaceinitializerconfiguration.NewKind(nil, clock.RealClock{})
}

// TestOwners: who may change what. A change of this table is a change of the API.
func TestOwners(t *testing.T) {
	owners := map[string]map[string][]string{
		"namespacelifecycles": {
			"":           {"metadata", "spec.namespaceUID"},
			"status":     {"status.initializers", "status.conditions"},
			"finalize":   {"spec.finalizers"},
			"initialize": {"spec.initializers", "spec.skipped"},
		},
		"namespaceinitializerconfigurations": {
			"":         {"metadata", "initializers"},
			"status":   {"status"},
			"finalize": {"spec.finalizers"},
		},
		"namespacepopulations": {"": {"metadata", "spec"}, "status": {"status"}},
		"populatednamespaces":  {"": {"metadata", "spec"}, "status": {"status"}},
	}
	declared := map[string]map[string][]string{}
	declare(declared, lifecycles())
	declare(declared, configurations())
	declare(declared, population.NewKind())
	declare(declared, population.NewPopulatedKind())
	if diff := cmp.Diff(owners, declared); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func declare[T generic.Object](declared map[string]map[string][]string, kind *generic.Kind[T]) {
	declared[kind.Resource] = map[string][]string{}
	for name, endpoint := range kind.Endpoints {
		declared[kind.Resource][name] = endpoint.Owns
	}
}

// TestParts: every field belongs to a part, and each part copies its fields and no other.
func TestParts(t *testing.T) {
	testParts(t, lifecycles())
	testParts(t, configurations())
	testParts(t, population.NewKind())
	testParts(t, population.NewPopulatedKind())
}

func testParts[T generic.Object](t *testing.T, kind *generic.Kind[T]) {
	t.Helper()
	one, other := filled(kind, 1), filled(kind, 2)
	fields, err := typedOf(t, one).ToFieldSet()
	if err != nil {
		t.Fatal(err)
	}
	within(fields, func(path fieldpath.Path) {
		if kind.PartOf(path) == "" {
			t.Errorf("%s: %s belongs to no part", kind.Resource, path)
		}
	})
	for _, part := range kind.Parts {
		copied := one.DeepCopyObject().(T)
		part.Copy(copied, other)
		changes := 0
		within(differing(t, one, copied), func(path fieldpath.Path) {
			changes++
			if part.Depth(path) == 0 {
				t.Errorf("%s: the part %s copies %s", kind.Resource, part.Name, path)
			}
		})
		if changes == 0 {
			t.Errorf("%s: the part %s copies nothing", kind.Resource, part.Name)
		}
		within(differing(t, copied, other), func(path fieldpath.Path) {
			if kind.PartOf(path) == part.Name {
				t.Errorf("%s: the part %s does not copy %s", kind.Resource, part.Name, path)
			}
		})
	}
}

// filled returns an object that has every field.
func filled[T generic.Object](kind *generic.Kind[T], seed int64) T {
	object := kind.New().(T)
	randfill.NewWithSeed(seed).NilChance(0).NumElements(2, 2).Funcs(fuzzer.Funcs(serializer.NewCodecFactory(scheme.New()))...).Funcs(
		func(meta *metav1.ObjectMeta, c randfill.Continue) { // without what no update changes
			*meta = metav1.ObjectMeta{Name: "ns"}
			c.Fill(&meta.Labels)
			c.Fill(&meta.Annotations)
			c.Fill(&meta.Finalizers)
			c.Fill(&meta.OwnerReferences)
		},
		func(at *metav1.MicroTime, c randfill.Continue) {
			*at = metav1.NewMicroTime(time.Unix(int64(c.Uint32()), 0))
		},
		// The server derives these four kinds of entries in part.
		func(entries *[]v1alpha1.RegisteredInitializerStatus, c randfill.Continue) {
			*entries = make([]v1alpha1.RegisteredInitializerStatus, 2)
			for i, name := range []string{"a.example.com", "b.example.com"} {
				c.Fill(&(*entries)[i])
				(*entries)[i].Name = name
			}
		},
		func(entries *[]v1alpha1.NamespaceInitializer, c randfill.Continue) {
			*entries = make([]v1alpha1.NamespaceInitializer, 2)
			for i, name := range []string{"a.example.com", "b.example.com"} {
				c.Fill(&(*entries)[i])
				(*entries)[i].Name = name
			}
		},
		func(entries *[]v1alpha1.InitializerStatus, c randfill.Continue) {
			*entries = make([]v1alpha1.InitializerStatus, 2)
			for i, name := range []string{"a.example.com", "b.example.com"} {
				c.Fill(&(*entries)[i])
				(*entries)[i].Name = name
			}
		},
		func(conditions *[]metav1.Condition, c randfill.Continue) {
			*conditions = make([]metav1.Condition, 3)
			for i, name := range []string{v1alpha1.ConditionInitializing, v1alpha1.ConditionReady, v1alpha1.ConditionStalled} {
				c.Fill(&(*conditions)[i])
				(*conditions)[i].Type = name
			}
		},
	).Fill(object)
	return object
}

func typedOf(t *testing.T, object generic.Object) *typed.TypedValue {
	t.Helper()
	scheme := scheme.New()
	versioned, err := scheme.ConvertToVersion(object, v1alpha1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	converter := applyconfiguration.NewTypeConverter(scheme)
	value, err := converter.ObjectToTyped(versioned)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// differing returns the fields that differ between two objects.
func differing(t *testing.T, a, b generic.Object) *fieldpath.Set {
	t.Helper()
	comparison, err := typedOf(t, a).Compare(typedOf(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return comparison.Added.Union(comparison.Removed).Union(comparison.Modified)
}

// within calls check for each field of a set but the type of the object.
func within(set *fieldpath.Set, check func(fieldpath.Path)) {
	set.Iterate(func(path fieldpath.Path) {
		if name := path[0].String(); name != ".apiVersion" && name != ".kind" {
			check(path)
		}
	})
}

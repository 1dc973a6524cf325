/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func namespaceOf(creator string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop", UID: "u",
		Labels:      map[string]string{"team": "a"},
		Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: creator, v1alpha1.AnnotationCreatedByGroups: "team-a\nsystem:authenticated"},
	}}
}

func environment(t testing.TB, more ...string) *Environment {
	t.Helper()
	e, err := NewEnvironment(more...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRender(t *testing.T) {
	tests := map[string]struct {
		value   string
		creator string
		want    any
	}{
		"a literal":                       {"plain", "alice", "plain"},
		"nothing":                         {"", "alice", ""},
		"an expression":                   {"${creator}", "alice", "alice"},
		"within a text":                   {"for ${creator} in ${namespaceObject.metadata.name}!", "alice", "for alice in shop!"},
		"a label":                         {"${namespaceObject.metadata.labels[\"team\"]}", "alice", "a"},
		"a missing label":                 {"${namespaceObject.metadata.labels[?\"x\"].orValue(\"none\")}", "alice", "none"},
		"a list":                          {"${creatorGroups}", "alice", []any{"team-a", "system:authenticated"}},
		"an object":                       {"${{\"a\": [1]}}", "alice", map[string]any{"a": []any{int64(1)}}},
		"a whole number":                  {"${size(creatorGroups)}", "alice", int64(2)},
		"a number within a text":          {"${size(creatorGroups)} groups", "alice", "2 groups"},
		"braces within an expression":     {"${{\"a\": \"}\"}[\"a\"]}", "alice", "}"},
		"an escaped expression":           {"$${creator}", "alice", "${creator}"},
		"strings functions":               {"${creator.split(\"@\")[0]}", "alice@corp.com", "alice"},
		"another variable":                {"${more.deep[1]}", "alice", "y"},
		"a creator that is an expression": {"${creator}", "${namespaceObject.metadata.name}", "${namespaceObject.metadata.name}"},
		"a creator that breaks lines":     {"x: ${creator}", "a\nkind: Secret\n---", "x: a\nkind: Secret\n---"},
		"a creator with quotes":           {"${creator}", "\"'}${", "\"'}${"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			template, errs := environment(t, "more").Template(map[string]any{"a": []any{test.value, true, nil}, "${creator}": 1.0}, field.NewPath("it"))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			variables := Variables(namespaceOf(test.creator))
			variables["more"] = map[string]any{"deep": []any{"x", "y"}}
			got, err := template.Render(variables)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]any{"a": []any{test.want, true, nil}, "${creator}": int64(1)}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateErrors(t *testing.T) {
	_, errs := environment(t).Template(map[string]any{"a": []any{"${creator +}", "fine"}, "b": "${unknown}", "c": "${creator"}, field.NewPath("it"))
	said := errs.ToAggregate().Error()
	for _, want := range []string{`it.a[0]: Invalid value: "${creator +}": expression "creator +"`, "it.b: ", "undeclared reference to 'unknown'", "it.c: ", "the expression has no end"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in: %s", want, said)
		}
	}
	if len(errs) != 3 {
		t.Errorf("%d errors: %v", len(errs), errs)
	}
}

func TestRenderErrors(t *testing.T) {
	for name, test := range map[string]struct{ value, want string }{
		"a key that is not there": {"${namespaceObject.metadata.labels[\"x\"]}", "it.a: Invalid value"},
		"a list within a text":    {"x ${creatorGroups}", "it must yield a string"},
		"too costly":              {"${[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, true)))))}", "cost limit"},
	} {
		t.Run(name, func(t *testing.T) {
			template, errs := environment(t).Template(map[string]any{"a": test.value}, field.NewPath("it"))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if _, err := template.Render(Variables(namespaceOf("alice"))); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to say %q", err, test.want)
			}
		})
	}
}

func TestCondition(t *testing.T) {
	for source, want := range map[string]bool{
		`creator == "alice"`:                               true,
		`"system:masters" in creatorGroups`:                false,
		`namespaceObject.metadata.labels["team"] == "a"`:   true,
		`namespaceObject.metadata.labels.exists(l, false)`: false,
	} {
		condition, err := environment(t).Condition(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := condition.Holds(Variables(namespaceOf("alice"))); err != nil || got != want {
			t.Errorf("%s: %v, %v", source, got, err)
		}
	}
	bare, err := environment(t).Condition(`namespaceObject.metadata.labels.size() + namespaceObject.metadata.annotations.size() == 0 && !("x" in namespaceObject.metadata.labels)`)
	if err != nil {
		t.Fatal(err)
	}
	if holds, err := bare.Holds(Variables(&corev1.Namespace{})); err != nil || !holds {
		t.Errorf("a namespace without labels and annotations: %t, %v", holds, err)
	}
	for _, source := range []string{"creator", "1", "creator ==", `"a"`} {
		if _, err := environment(t).Condition(source); err == nil {
			t.Errorf("%s is no condition", source)
		}
	}
	for _, source := range []string{`namespaceObject.metadata.labels["x"] == "a"`, `namespaceObject.metadata.name`} {
		condition, err := environment(t).Condition(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
		} else if holds, err := condition.Holds(Variables(namespaceOf("alice"))); err == nil || holds {
			t.Errorf("%s: %v", source, holds)
		}
	}
}

// FuzzTemplate: no text makes the reader of expressions fail otherwise than with an error,
// and a text without expressions stays as it is.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"", "plain", "${creator}", "$${", "${", "${\"}\"}", "a${creator}b${1}", "$$${creator}"} {
		f.Add(seed)
	}
	e := environment(f)
	f.Fuzz(func(t *testing.T, source string) {
		template, errs := e.Template(source, field.NewPath("it"))
		if len(errs) > 0 {
			return
		}
		rendered, err := template.Render(Variables(namespaceOf("alice")))
		if err == nil && !strings.Contains(source, "${") && rendered != source {
			t.Errorf("%q became %q", source, rendered)
		}
	})
}

// TestOnBehalfOf: the creator is the user whom the requester named, without groups of the requester.
func TestOnBehalfOf(t *testing.T) {
	namespace := namespaceOf("portal")
	namespace.Annotations[v1alpha1.AnnotationOnBehalfOf] = "alice"
	template, errs := environment(t).Template(map[string]any{"names": "${creator} by ${requester}", "groups": "${creatorGroups}"}, field.NewPath("it"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	got, err := template.Render(KnownVariables(namespace))
	if diff := cmp.Diff(map[string]any{"names": "alice by portal", "groups": []any{"system:authenticated"}}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestUnknownCreator: an expression that needs the creator of an old namespace fails, and one that does not need it holds.
func TestUnknownCreator(t *testing.T) {
	for source, fails := range map[string]bool{
		`creator == ""`:              true,
		`creator != "alice"`:         true,
		`requester != "alice"`:       true,
		`!("x" in creatorGroups)`:    true,
		`size(creatorGroups) == 0`:   true,
		`true`:                       false,
		`true || creator == "alice"`: false,
		`creator == "alice" || true`: false,
		`namespaceObject.metadata.name != creator || namespaceObject.metadata.name == "shop"`:      false,
		`!("nsinit.dev/created-by" in namespaceObject.metadata.annotations && creator == "alice")`: false,
	} {
		condition, err := environment(t).Condition(source)
		if err != nil {
			t.Fatal(err)
		}
		namespace := namespaceOf("alice")
		if holds, err := condition.Holds(KnownVariables(namespace)); err != nil && !strings.Contains(source, "creatorGroups") {
			t.Errorf("%s of a known creator: %t, %v", source, holds, err)
		}
		namespace.Annotations = nil
		holds, err := condition.Holds(KnownVariables(namespace))
		if fails != (err != nil) || holds == fails || fails && !strings.Contains(err.Error(), "the creator of the namespace is unknown: it has no annotation "+v1alpha1.AnnotationCreatedBy) {
			t.Errorf("%s: %t, %v", source, holds, err)
		}
	}
}

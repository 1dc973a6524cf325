/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// accepted are conditions that Check accepts. They hold for namespaceOf("alice").
func accepted() []string {
	return []string{
		`"team-a" in creatorGroups`,
		`!("system:masters" in creatorGroups)`,
		`creatorGroups.exists(g, g == "team-a")`,
		`creatorGroups.exists(g, g in ["team-a", "team-b"])`,
		`creatorGroups.exists(g, g.startsWith("team-"))`,
		`creatorGroups.exists(g, g.contains("eam"))`,
		`creatorGroups.exists(g, g.matches("^team-[a-z]+$"))`,
		`creatorGroups.map(g, g + g).exists(g, g.contains("team-ateam-a"))`,
		`creatorGroups.filter(g, g.startsWith("system:")).size() == 1`,
		`namespaceObject.metadata.name.startsWith("sh")`,
		`namespaceObject.metadata.name.matches("^s[a-z]*p$") && namespaceObject.metadata.uid == "u"`,
		`namespaceObject.metadata.labels.team == "a"`,
		`namespaceObject.metadata.labels[?"team"].orValue("").contains("a")`,
		`namespaceObject.metadata.labels.?team.or(optional.of("b")).value().contains("a")`,
		`!has(namespaceObject.metadata.labels.other)`,
		`namespaceObject.metadata.labels.exists(k, k.startsWith("te"))`,
		`namespaceObject.metadata.labels.all(k, !namespaceObject.metadata.labels[k].contains("x"))`,
		`!namespaceObject.metadata.annotations["` + v1alpha1.AnnotationCreatedBy + `"].contains("x")`,
		`creator.lowerAscii() == "alice" && creator.substring(1).indexOf("c") == 2`,
		`requester.lowerAscii() == "alice" && requester.substring(1).indexOf("c") == 2`,
		`(creator + "@corp.com").endsWith("@corp.com")`,
		`creator.matches("^system:serviceaccount:.*$") ? false : true`,
	}
}

func TestAcceptedConditions(t *testing.T) {
	s := NewSelection()
	for _, expression := range accepted() {
		if err := s.Check(expression); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
		if holds, _, err := s.Holds(expression, SelectionVariables(namespaceOf("alice"))); err != nil || !holds {
			t.Errorf("%s: %t, %v", expression, holds, err)
		}
	}
}

func TestRefusedConditions(t *testing.T) {
	s := NewSelection()
	for expression, want := range map[string]string{
		`creatorGroup.exists(g, g == "team-a")`: "ERROR: <input>:1:1: undeclared reference to 'creatorGroup' (in container '')\n | creatorGroup.exists(g, g == \"team-a\")\n | ^",
		`namespaceObject.metadata.nam == "a"`:   "ERROR: <input>:1:25: undefined field 'nam'\n | namespaceObject.metadata.nam == \"a\"\n | ........................^",
		`creator ==`:                            "<input>:1:11: Syntax error",
		`creator`:                               "it yields a value of type string: it must yield true or false",
		`.creator == "a" && has(.namespaceObject.metadata.uid)`: "<input>:1:2: .creator begins with a dot: remove the dot\n | .creator",
		`creator == 1`:                                            "found no matching overload for '_==_' applied to '(string, int)'",
		`dyn(creator) == "a"`:                                     "<input>:1:4: dyn is not available here because its cost cannot be bounded",
		`"%s".format([creator])==""`:                              "<input>:1:12: format is not available here because its cost cannot be bounded\n | \"%s\".format([creator])==\"\"\n | ...........^",
		`json.encode(creator) == ""`:                              "json.encode is not available here",
		`creatorGroups.join("") == ""`:                            "join is not available here",
		`base64.encode(b"a") == ""`:                               "base64.encode is not available here",
		`Namespace{} == namespaceObject`:                          "<input>:1:10: objects are not available here: use a map",
		`optional.of(creator).optMap(c, c == "a").orValue(false)`: "<input>:1:12: optMap is not available here because its cost cannot be bounded: use orValue or hasValue",
		`optional.of(creator).optFlatMap(c, optional.of(true)).orValue(false)`:                                  "optFlatMap is not available here",
		`creatorGroups.exists(g, creatorGroups.exists(h, h == g))`:                                              "its estimated cost is 33560578, and may be 1000000: do not nest loops over labels, annotations and creatorGroups",
		`namespaceObject.metadata.annotations.exists(k, namespaceObject.metadata.annotations[k].contains("a"))`: "its estimated cost is 26853380, and may be 1000000",
		`creator.split("@")[0] == "a"`:                                                                          "split is not available here",
		`creator.replace("", creator).contains("x")`:                                                            "its estimated cost is 1155794",
		`namespaceObject.?metadata.?labels.?team.orValue("").contains("a")`:                                     "its cost cannot be bounded, and may be 1000000: use values of a known size",
		`creator == "` + strings.Repeat("x", MaxConditionLength) + `"`:                                          "it has 16397 bytes and may have 16384: split it into several conditions",
	} {
		if err := s.Check(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got\n%v\nwant\n%s", expression, err, want)
		}
	}
}

// TestEstimate: for a namespace as large as the estimate assumes, no accepted condition costs more than estimated.
func TestEstimate(t *testing.T) {
	large := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: strings.Repeat("n", maxName), UID: "12345678-1234-1234-1234-123456789012", Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	var groups []string
	for i := range MaxEntries {
		groups = append(groups, fmt.Sprintf("%0*d", maxGroup, i))
		large.Labels[fmt.Sprintf("%0*d", maxKey, i)] = strings.Repeat("v", maxLabel)
	}
	large.Annotations[v1alpha1.AnnotationCreatedBy] = strings.Repeat("u", maxUser)
	large.Annotations[v1alpha1.AnnotationCreatedByGroups] = strings.Join(groups, "\n")
	s := NewSelection()
	environment, err := s.environment()
	if err != nil {
		t.Fatal(err)
	}
	for _, expression := range accepted() {
		checked, issues := environment.cel.Compile(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		estimate, err := environment.cel.EstimateCost(checked, sizes{})
		if err != nil {
			t.Fatal(err)
		}
		// A failure, such as a missing label, ends the evaluation early.
		if _, cost, _ := s.Holds(expression, SelectionVariables(large)); cost > estimate.Max || cost == 0 {
			t.Errorf("%s costs %d, estimated were %d", expression, cost, estimate.Max)
		}
	}
}

// TestRuntimeLimit: what the estimate does not know cannot make an evaluation cost more.
func TestRuntimeLimit(t *testing.T) {
	const nested = `creatorGroups.exists(g, creatorGroups.exists(h, h == "x"))`
	many := namespaceOf("alice")
	many.Annotations[v1alpha1.AnnotationCreatedByGroups] = strings.Repeat("g\n", 500)
	if holds, cost, err := NewSelection().Holds(nested, SelectionVariables(many)); err == nil || !strings.Contains(err.Error(), "cost limit") || holds || cost < MaxConditionCost {
		t.Errorf("%t, cost %d, %v", holds, cost, err)
	}
}

// TestTooManyEntries: conditions that read too many labels, annotations or groups fail, and others do not.
func TestTooManyEntries(t *testing.T) {
	many := map[string]string{}
	for i := range MaxEntries + 1 {
		many[fmt.Sprint(i)] = ""
	}
	labelled, annotated, grouped := namespaceOf("alice"), namespaceOf("alice"), namespaceOf("alice")
	labelled.Labels, annotated.Annotations = many, many
	grouped.Annotations[v1alpha1.AnnotationCreatedByGroups] = strings.Repeat("g\n", MaxEntries+1)
	s := NewSelection()
	for name, test := range map[string]struct {
		namespace  *corev1.Namespace
		expression string
		want       string
	}{
		"labels":      {labelled, `namespaceObject.metadata.labels.exists(k, k == "x")`, "there are 1025 labels, and a condition can read at most 1024"},
		"one label":   {labelled, `"x" in namespaceObject.metadata.labels`, "there are 1025 labels"},
		"a label":     {labelled, `namespaceObject.metadata.labels.x == "a"`, "there are 1025 labels"},
		"has":         {labelled, `has(namespaceObject.metadata.labels.x)`, "there are 1025 labels"},
		"annotations": {annotated, `namespaceObject.metadata.annotations.all(k, true)`, "there are 1025 annotations"},
		"groups":      {grouped, `"x" in creatorGroups`, "there are 1025 creatorGroups"},
		"the name":    {labelled, `namespaceObject.metadata.name != "x" && creatorGroups.size() == 2`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			holds, _, err := s.Holds(test.expression, SelectionVariables(test.namespace))
			if holds != (test.want == "") || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%t, %v", holds, err)
			}
		})
	}
}

// TestStoredConditions: conditions that Check refuses are evaluated all the same, and only conditions that cannot be
// compiled fail.
func TestStoredConditions(t *testing.T) {
	s := NewSelection()
	if holds, _, err := s.Holds(`"%s".format([creator]) == "alice"`, SelectionVariables(namespaceOf("alice"))); err != nil || !holds {
		t.Errorf("%t, %v", holds, err)
	}
	for _, expression := range []string{"creator", "unknown", `namespaceObject.metadata.labels["x"] == "a"`} {
		if holds, _, err := s.Holds(expression, SelectionVariables(namespaceOf("alice"))); err == nil || holds {
			t.Errorf("%s: %t, %v", expression, holds, err)
		}
	}
}

// TestCache: a condition is compiled once, and the number of compiled conditions is bounded.
func TestCache(t *testing.T) {
	s := NewSelection()
	if first, second := s.compile("true"), s.compile("true"); first.condition != second.condition {
		t.Error("the condition was compiled twice")
	}
	for i := range cachedConditions + 1 {
		s.cache.Add(fmt.Sprint(i), compiled{})
	}
	if got := s.cache.Len(); got != cachedConditions {
		t.Errorf("%d conditions are kept", got)
	}
}

// FuzzCondition: no text that Check accepts costs more than MaxConditionCost, and none makes it panic.
func FuzzCondition(f *testing.F) {
	for _, expression := range accepted() {
		f.Add(expression)
	}
	s, variables := NewSelection(), SelectionVariables(namespaceOf("alice"))
	f.Fuzz(func(t *testing.T, expression string) {
		if s.Check(expression) != nil {
			return
		}
		if _, cost, err := s.Holds(expression, variables); cost > MaxConditionCost {
			t.Errorf("%s costs %d: %v", expression, cost, err)
		}
	})
}

func BenchmarkHolds(b *testing.B) {
	s, variables := NewSelection(), SelectionVariables(namespaceOf("alice"))
	for b.Loop() {
		if holds, _, err := s.Holds(`"team-a" in creatorGroups`, variables); err != nil || !holds {
			b.Fatal(holds, err)
		}
	}
}

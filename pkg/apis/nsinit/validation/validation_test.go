/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// expected is a set of errors by type and field.
type expected map[string]field.ErrorType

func checkErrors(t *testing.T, got field.ErrorList, want expected) {
	t.Helper()
	seen := expected{}
	for _, err := range got {
		seen[err.Field] = err.Type
		if want[err.Field] != err.Type {
			t.Errorf("unexpected error: %v (%s)", err, err.Type)
		}
	}
	for path, kind := range want {
		if seen[path] != kind {
			t.Errorf("missing error %q at %s, got %v", kind, path, got)
		}
	}
}

// valid accepts an expression.
func valid(string) error { return nil }

func configuration(change func(*nsinit.NamespaceInitializerConfiguration)) *nsinit.NamespaceInitializerConfiguration {
	c := &nsinit.NamespaceInitializerConfiguration{
		ObjectMeta:   metav1.ObjectMeta{Name: "c"},
		Initializers: []v1alpha1.RegisteredInitializer{{Name: "a.example.com"}, {Name: "openshift.com/origin", Finalizer: true}},
		Spec:         v1alpha1.NamespaceInitializerConfigurationSpec{Finalizers: []v1alpha1.FinalizerName{"kubernetes"}},
	}
	change(c)
	return c
}

func TestValidateNamespaceInitializerConfiguration(t *testing.T) {
	ignore, seconds := v1alpha1.Ignore, int32(3)
	tests := map[string]struct {
		change func(*nsinit.NamespaceInitializerConfiguration)
		want   expected
	}{
		"valid": {func(*nsinit.NamespaceInitializerConfiguration) {}, nil},
		"the KEP's shape alone": {func(c *nsinit.NamespaceInitializerConfiguration) {
			c.Spec = v1alpha1.NamespaceInitializerConfigurationSpec{}
		}, nil},
		"a deadline": {func(c *nsinit.NamespaceInitializerConfiguration) {
			c.Initializers[0].FailurePolicy, c.Initializers[0].TimeoutSeconds = &ignore, &seconds
		}, nil},
		"unqualified name": {func(c *nsinit.NamespaceInitializerConfiguration) { c.Initializers[1].Name = "x" },
			expected{"initializers[1].name": field.ErrorTypeInvalid}},
		"the built-in name": {func(c *nsinit.NamespaceInitializerConfiguration) {
			c.Initializers[0].Name = v1alpha1.InitializerLifecycle
		},
			expected{"initializers[0].name": field.ErrorTypeForbidden}},
		"a deadline without policy": {func(c *nsinit.NamespaceInitializerConfiguration) { c.Initializers[0].TimeoutSeconds = &seconds },
			expected{"initializers[0].timeoutSeconds": field.ErrorTypeInvalid}},
		"finalizers": {func(c *nsinit.NamespaceInitializerConfiguration) {
			c.Spec.Finalizers = []v1alpha1.FinalizerName{"kubernetes", "kubernetes", "", "x"}
		}, expected{"spec.finalizers[1]": field.ErrorTypeDuplicate, "spec.finalizers[2]": field.ErrorTypeRequired, "spec.finalizers[3]": field.ErrorTypeInvalid}},
		"a selection": {func(c *nsinit.NamespaceInitializerConfiguration) {
			c.Initializers[0].MatchConditions = []v1alpha1.MatchCondition{{Name: "team-a", Expression: "true"}, {Name: "example.com/team-b", Expression: "true"}}
			c.Initializers[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, nil},
		"the content is held": {func(c *nsinit.NamespaceInitializerConfiguration) {
			c.Initializers[1].Holds = new(v1alpha1.HoldContent)
		}, nil},
		"the content is held by no participant": {func(c *nsinit.NamespaceInitializerConfiguration) {
			c.Initializers[0].Holds = new(v1alpha1.HoldContent)
		}, expected{"initializers[0].holds": field.ErrorTypeInvalid}},
		"the name of a condition": {func(c *nsinit.NamespaceInitializerConfiguration) {
			c.Initializers[1].MatchConditions = []v1alpha1.MatchCondition{{Name: "a", Expression: "true"}, {Name: "a b", Expression: "true"}, {Expression: "true"}}
		}, expected{"initializers[1].matchConditions[1].name": field.ErrorTypeInvalid}},
		"a selector": {func(c *nsinit.NamespaceInitializerConfiguration) {
			c.Initializers[1].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
		}, expected{"initializers[1].namespaceSelector.matchLabels": field.ErrorTypeInvalid, "initializers[1].namespaceSelector.matchExpressions[0].operator": field.ErrorTypeInvalid}},
		"the object's name": {func(c *nsinit.NamespaceInitializerConfiguration) { c.Name = "A" },
			expected{"metadata.name": field.ErrorTypeInvalid}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkErrors(t, ValidateNamespaceInitializerConfiguration(configuration(test.change), nil, valid), test.want)
		})
	}
}

// TestValidateInitializerConfiguration: rules name only what Kubernetes can hold, and names can be those of gates and labels.
func TestValidateInitializerConfiguration(t *testing.T) {
	rule := func(group, version, resource string) func(*v1alpha1.Initializer) {
		return func(i *v1alpha1.Initializer) {
			i.Rules = []v1alpha1.Rule{{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}}}
		}
	}
	const at = "initializers[0].rules[0]."
	for name, test := range map[string]struct {
		change func(*v1alpha1.Initializer)
		want   expected
	}{
		"pods":                   {rule("", "v1", "pods"), nil},
		"jobs":                   {rule("batch", "*", "jobs"), nil},
		"all groups":             {rule("*", "v1", "pods"), nil},
		"no rules":               {func(*v1alpha1.Initializer) {}, nil},
		"pods of another group":  {rule("batch", "v1", "pods"), expected{at + "apiGroups[0]": field.ErrorTypeInvalid, at + "resources[0]": field.ErrorTypeInvalid}},
		"another version":        {rule("batch", "v1beta1", "jobs"), expected{at + "apiVersions[0]": field.ErrorTypeInvalid}},
		"another resource":       {rule("apps", "v1", "deployments"), expected{at + "apiGroups[0]": field.ErrorTypeInvalid, at + "resources[0]": field.ErrorTypeInvalid}},
		"every resource":         {rule("*", "*", "*"), expected{at + "resources[0]": field.ErrorTypeInvalid}},
		"a subresource":          {rule("", "v1", "pods/exec"), expected{at + "resources[0]": field.ErrorTypeInvalid}},
		"an empty rule":          {func(i *v1alpha1.Initializer) { i.Rules = []v1alpha1.Rule{{}} }, expected{at + "apiGroups": field.ErrorTypeRequired, at + "apiVersions": field.ErrorTypeRequired, at + "resources": field.ErrorTypeRequired}},
		"all and more":           {func(i *v1alpha1.Initializer) { rule("*", "v1", "pods")(i); i.Rules[0].APIGroups = []string{"*", ""} }, expected{at + "apiGroups": field.ErrorTypeInvalid}},
		"a prefixed name":        {func(i *v1alpha1.Initializer) { i.Name = "example.com/scan" }, expected{"initializers[0].name": field.ErrorTypeInvalid}},
		"a long name":            {func(i *v1alpha1.Initializer) { i.Name = strings.Repeat("a", 60) + ".example.com" }, expected{"initializers[0].name": field.ErrorTypeInvalid}},
		"a deadline, no policy":  {func(i *v1alpha1.Initializer) { i.TimeoutSeconds = new(int32(1)) }, expected{"initializers[0].timeoutSeconds": field.ErrorTypeInvalid}},
		"a new one that is Fail": {func(i *v1alpha1.Initializer) { i.FailurePolicy = new(v1alpha1.Fail) }, expected{"initializers[0].failurePolicy": field.ErrorTypeForbidden}},
		"a selector of no labels": {func(i *v1alpha1.Initializer) {
			i.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}}
		}, expected{"initializers[0].namespaceSelector.matchLabels": field.ErrorTypeInvalid}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &nsinit.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Initializers: []v1alpha1.Initializer{{Name: "scan.example.com"}}}
			test.change(&c.Initializers[0])
			checkErrors(t, ValidateInitializerConfiguration(c, nil, valid), test.want)
			old := c.DeepCopy()
			if old.ResourceVersion = "1"; c.Initializers[0].FailurePolicy != nil {
				c.ResourceVersion = "1"
				checkErrors(t, ValidateInitializerConfiguration(c, old, valid), nil)
			}
		})
	}
}

func record(change func(*nsinit.NamespaceLifecycle)) *nsinit.NamespaceLifecycle {
	plan := func(name string) v1alpha1.PlannedInitializer {
		return v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name}, Configuration: &v1alpha1.ConfigurationReference{Name: "c"}}
	}
	r := &nsinit.NamespaceLifecycle{
		ObjectMeta: metav1.ObjectMeta{Name: "ns"},
		Spec: v1alpha1.NamespaceLifecycleSpec{
			NamespaceUID: "u",
			Plan:         []v1alpha1.PlannedInitializer{plan("a.example.com"), plan("b.example.com"), plan("c.example.com")},
			Initializers: pending("a.example.com", "b.example.com", "c.example.com"),
			Finalizers:   []v1alpha1.FinalizerName{"kubernetes"},
		},
	}
	change(r)
	return r
}

func pending(names ...string) *v1alpha1.NamespaceInitializers {
	p := &v1alpha1.NamespaceInitializers{}
	for _, name := range names {
		p.Pending = append(p.Pending, v1alpha1.NamespaceInitializer{Name: name})
	}
	return p
}

func failed(names ...string) *v1alpha1.NamespaceInitializers {
	p := pending(names...)
	p.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}
	if len(names) > 0 {
		p.FailedInitializer = names[0]
	}
	return p
}

func TestValidateNamespaceLifecycle(t *testing.T) {
	seconds := int32(3)
	tests := map[string]struct {
		change func(*nsinit.NamespaceLifecycle)
		want   expected
	}{
		"valid":             {func(*nsinit.NamespaceLifecycle) {}, nil},
		"a part is pending": {func(r *nsinit.NamespaceLifecycle) { r.Spec.Initializers = pending("b.example.com", "c.example.com") }, nil},
		"a name that no namespace can have": {func(r *nsinit.NamespaceLifecycle) { r.Name = "a.b" },
			expected{"metadata.name": field.ErrorTypeInvalid}},
		"pending is not planned": {func(r *nsinit.NamespaceLifecycle) { r.Spec.Initializers = pending("x.example.com") },
			expected{"spec.initializers.pending[0].name": field.ErrorTypeInvalid}},
		"pending is in another order": {func(r *nsinit.NamespaceLifecycle) { r.Spec.Initializers = pending("b.example.com", "a.example.com") },
			expected{"spec.initializers.pending[1].name": field.ErrorTypeInvalid}},
		"a plan without configuration": {func(r *nsinit.NamespaceLifecycle) { r.Spec.Plan[1].Configuration = nil },
			expected{"spec.plan[1].configuration.name": field.ErrorTypeRequired}},
		"a duplicate in the plan": {func(r *nsinit.NamespaceLifecycle) { r.Spec.Plan[1].Name = "a.example.com"; r.Spec.Initializers = nil },
			expected{"spec.plan[1].name": field.ErrorTypeDuplicate}},
		"a plan with a selection": {func(r *nsinit.NamespaceLifecycle) {
			r.Spec.Plan[0].MatchConditions, r.Spec.Plan[0].NamespaceSelector = []v1alpha1.MatchCondition{{Name: "a", Expression: "true"}}, &metav1.LabelSelector{}
		}, expected{"spec.plan[0].matchConditions": field.ErrorTypeForbidden, "spec.plan[0].namespaceSelector": field.ErrorTypeForbidden}},
		"a deadline without policy": {func(r *nsinit.NamespaceLifecycle) { r.Spec.Plan[0].TimeoutSeconds = &seconds },
			expected{"spec.plan[0].timeoutSeconds": field.ErrorTypeInvalid}},
		"a result of success": {func(r *nsinit.NamespaceLifecycle) {
			r.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusSuccess}
		},
			expected{"spec.initializers.result.status": field.ErrorTypeNotSupported}},
		"a result with nothing pending": {func(r *nsinit.NamespaceLifecycle) { r.Spec.Initializers = failed() },
			expected{"spec.initializers.result": field.ErrorTypeForbidden}},
		"a failed initializer without result": {func(r *nsinit.NamespaceLifecycle) { r.Spec.Initializers.FailedInitializer = "a.example.com" },
			expected{"spec.initializers.failedInitializer": field.ErrorTypeForbidden}},
		"a failed initializer that is not pending": {func(r *nsinit.NamespaceLifecycle) {
			r.Spec.Initializers = failed("a.example.com")
			r.Spec.Initializers.FailedInitializer = "b.example.com"
		}, expected{"spec.initializers.failedInitializer": field.ErrorTypeInvalid}},
		"a message without end": {func(r *nsinit.NamespaceLifecycle) {
			r.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "a.example.com", Message: strings.Repeat("x", v1alpha1.MaxMessageLength+1)}}
		}, expected{"status.initializers[0].message": field.ErrorTypeTooLong}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkErrors(t, ValidateNamespaceLifecycle(record(test.change), nil), test.want)
		})
	}
}

func TestValidateInitialize(t *testing.T) {
	const a, b, c = "a.example.com", "b.example.com", "c.example.com"
	list := "spec.initializers.pending"
	result := "spec.initializers.result"
	tests := map[string]struct {
		old, updated *v1alpha1.NamespaceInitializers
		want         expected
	}{
		"nothing changes":                    {pending(a, b), pending(a, b), nil},
		"the first leaves":                   {pending(a, b, c), pending(b, c), nil},
		"the first two leave":                {pending(a, b, c), pending(c), nil},
		"all leave":                          {pending(a, b), nil, nil},
		"all leave, as an empty list":        {pending(a, b), pending(), nil},
		"empty again after the end":          {nil, pending(), nil},
		"the second leaves":                  {pending(a, b, c), pending(a, c), expected{list: field.ErrorTypeInvalid}},
		"the last leaves":                    {pending(a, b), pending(a), expected{list: field.ErrorTypeInvalid}},
		"one is exchanged, same length":      {pending(a, b), pending(c, b), expected{list: field.ErrorTypeInvalid}},
		"the order changes":                  {pending(a, b), pending(b, a), expected{list: field.ErrorTypeInvalid}},
		"one is added again":                 {pending(b), pending(a, b), expected{list: field.ErrorTypeInvalid}},
		"one is added again after the end":   {nil, pending(a), expected{list: field.ErrorTypeForbidden}},
		"the first fails":                    {pending(a, b), failed(a, b), nil},
		"fails and removes itself":           {pending(a, b), failed(b), expected{result: field.ErrorTypeForbidden}},
		"the failure is taken back":          {failed(a, b), pending(a, b), expected{result: field.ErrorTypeForbidden}},
		"one leaves after the failure":       {failed(a, b), failed(b), expected{list: field.ErrorTypeForbidden}},
		"all leave after the failure":        {failed(a), nil, expected{result: field.ErrorTypeForbidden}},
		"the same failure is reported again": {failed(a), failed(a), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old := record(func(r *nsinit.NamespaceLifecycle) { r.Spec.Initializers = test.old })
			updated := record(func(r *nsinit.NamespaceLifecycle) { r.Spec.Initializers = test.updated })
			checkErrors(t, ValidateInitialize(updated, old), test.want)
		})
	}
}

func TestValidateFinalize(t *testing.T) {
	type names = []v1alpha1.FinalizerName
	tests := map[string]struct {
		old, updated names
		want         expected
	}{
		"one leaves":            {names{"a", "b", "c"}, names{"a", "c"}, nil},
		"all leave":             {names{"a", "b"}, nil, nil},
		"one comes":             {names{"a", "b"}, names{"a", "x", "b"}, nil},
		"the order changes":     {names{"a", "b"}, names{"b", "a"}, expected{"spec.finalizers": field.ErrorTypeInvalid}},
		"twice what stood once": {names{"a", "b"}, names{"a", "a"}, expected{"spec.finalizers": field.ErrorTypeInvalid}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkErrors(t, ValidateFinalize(test.updated, test.old), test.want)
		})
	}
}

// TestPopulationSize: the size of the manifests in total is bounded. A population that exceeds the bound can be changed, but cannot grow.
func TestPopulationSize(t *testing.T) {
	half := strings.Repeat("x", maxManifestsSize/2)
	for name, test := range map[string]struct {
		sizes []string
		want  string
	}{
		"the largest": {[]string{half, half}, ""},
		"too large":   {[]string{half, half, "y"}, "spec.manifests: Too long: the manifests have 1048577 bytes in total, and may have at most 1048576: distribute them over several populations"},
	} {
		population := &nsinit.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "1"}}
		for i, text := range test.sizes {
			population.Spec.Manifests = append(population.Spec.Manifests, v1alpha1.PopulationManifest{Name: fmt.Sprint("m", i), Template: runtime.RawExtension{Raw: []byte(text)}})
		}
		got := ""
		if errs := ValidateNamespacePopulation(population, nil); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q", name, got)
		}
		if errs := ValidateNamespacePopulation(population, population); len(errs) > 0 {
			t.Errorf("%s, unchanged: %v", name, errs)
		}
	}
}

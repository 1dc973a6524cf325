/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/plan"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const own = "nsinit-system"

// rights allows verbs on names: "initialize a.example.com", or "open".
type rights []string

func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	want := a.GetVerb() + " " + a.GetName()
	if a.GetVerb() == v1alpha1.VerbOpen {
		want = v1alpha1.VerbOpen
	}
	if slices.Contains(r, want) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// request is a request for a pod or a Job.
type request struct {
	object, old runtime.Object
	subresource string
	namespace   *corev1.Namespace
	user        string
	groups      []string
	rights      rights
	dryRun      bool
}

func (r *request) attributes(t *testing.T) *admission.VersionedAttributes {
	t.Helper()
	gvk, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	if _, ok := r.object.(*batchv1.Job); ok {
		gvk, resource = batchv1.SchemeGroupVersion.WithKind("Job"), resourceOf("jobs")
	}
	r.object.GetObjectKind().SetGroupVersionKind(gvk)
	operation := admission.Create
	var versionedOld admission.LazyObject
	if r.old != nil {
		operation = admission.Update
		r.old.GetObjectKind().SetGroupVersionKind(gvk)
		versionedOld = admission.NewLazyObject(r.old)
	} else {
		versionedOld = admission.NewLazyObject(nil)
	}
	name := r.object.(metav1.Object).GetName()
	attributes := admission.NewAttributesRecord(r.object, r.old, gvk, r.namespace.Name, name, resource, r.subresource, operation, &metav1.CreateOptions{}, r.dryRun, &user.DefaultInfo{Name: r.user, Groups: r.groups})
	return &admission.VersionedAttributes{Attributes: attributes, VersionedKind: gvk, VersionedObject: admission.NewLazyObject(r.object), VersionedOldObject: versionedOld}
}

// compilerOf compiles variables and conditions as kube-apiserver does.
func compilerOf(t *testing.T, variables []admissionregistrationv1.Variable, conditions []admissionregistrationv1.MatchCondition) (*plugincel.CompositedCompiler, matchconditions.Matcher) {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range variables {
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options, environment.NewExpressions); result.Error != nil {
			t.Fatalf("variable %s: %v in\n%s", v.Name, result.Error, v.Expression)
		}
	}
	var accessors []plugincel.ExpressionAccessor
	for i := range conditions {
		accessors = append(accessors, (*matchconditions.MatchCondition)(&conditions[i]))
	}
	fail := admissionregistrationv1.Fail
	return compiler, matchconditions.NewMatcher(compiler.CompileCondition(accessors, options, environment.NewExpressions), &fail, "policy", "validate", "p")
}

// mutate returns the object after a policy.
func mutate(t *testing.T, policy *admissionregistrationv1.MutatingAdmissionPolicy, r request) runtime.Object {
	t.Helper()
	object, err := tryMutate(t, policy, r)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func tryMutate(t *testing.T, policy *admissionregistrationv1.MutatingAdmissionPolicy, r request) (runtime.Object, error) {
	t.Helper()
	compiler, matcher := compilerOf(t, policy.Spec.Variables, policy.Spec.MatchConditions)
	ctx, attributes := compiler.CreateContext(t.Context()), r.attributes(t)
	matched := matcher.Match(ctx, attributes, nil, r.rights)
	if matched.Error != nil {
		t.Fatal(matched.Error)
	}
	selects := func(selector *metav1.LabelSelector, labels map[string]string) bool {
		compiled, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		return selector == nil || compiled.Matches(labelSet(labels))
	}
	constraints := policy.Spec.MatchConstraints
	if !matched.Matches || !selects(constraints.NamespaceSelector, r.namespace.Labels) || !selects(constraints.ObjectSelector, r.object.(metav1.Object).GetLabels()) {
		return r.object, nil
	}
	evaluator := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression},
		plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasPatchTypes: true}, environment.NewExpressions)
	return patch.NewJSONPatcher(evaluator).Patch(ctx, patch.Request{
		MatchedResource: attributes.GetResource(), VersionedAttributes: attributes, ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme.Scheme),
		OptionalVariables: plugincel.OptionalVariableBindings{Authorizer: r.rights}, Namespace: r.namespace,
	}, celconfig.RuntimeCELCostBudget)
}

type labelSet map[string]string

func (l labelSet) Has(key string) bool              { _, has := l[key]; return has }
func (l labelSet) Get(key string) string            { return l[key] }
func (l labelSet) Lookup(key string) (string, bool) { value, has := l[key]; return value, has }

func namespaceOf(name string, labels, annotations map[string]string) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", Labels: map[string]string{corev1.LabelMetadataName: name}, Annotations: annotations}}
	maps.Copy(namespace.Labels, labels)
	return namespace
}

func podOf(gates ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "2"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, gate := range gates {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	return pod
}

func jobOf(suspend bool, labels map[string]string, annotations map[string]string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "3", Labels: labels, Annotations: annotations}, Spec: batchv1.JobSpec{Suspend: &suspend}}
}

// marked returns an object with the label of objects that wait.
func marked[T metav1.Object](object T) T {
	labels := maps.Clone(object.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelInitializing] = "true"
	object.SetLabels(labels)
	return object
}

func gateOf(name string) string { return v1alpha1.PendingPrefix + name }

func configurationOf(name string, initializers ...v1alpha1.Initializer) *v1alpha1.InitializerConfiguration {
	return &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: initializers}
}

func initializerOf(name string, resources ...string) v1alpha1.Initializer {
	initializer := v1alpha1.Initializer{Name: name}
	for _, resource := range resources {
		initializer.Rules = append(initializer.Rules, v1alpha1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"v1"}, Resources: []string{resource}})
	}
	return initializer
}

// policiesFor returns the stamp of a resource and the policy for the other namespaces.
func policiesFor(t *testing.T, resource string, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) (stamp, others *admissionregistrationv1.MutatingAdmissionPolicy) {
	t.Helper()
	all, _, err := compile(configurations, exempt, own)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		switch one.Name {
		case prefix + resource:
			stamp = one.Policy
		case prefix + resource + "-others":
			others = one.Policy
		}
	}
	return stamp, others
}

func exemptionsOf(data map[string]string) *installation.ExemptionList {
	return installation.ParseExemptions(&corev1.ConfigMap{Data: data})
}

// TestStamp: new objects wait for the initializers that select them, in the order of the configurations. Names that the creator sets
// have no effect.
func TestStamp(t *testing.T) {
	selected, conditional, served := initializerOf("c.example.com", "pods"), initializerOf("d.example.com", "pods"), initializerOf("e.example.com", "pods", "jobs")
	selected.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}, MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "env", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"test"}}, {Key: "off", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	conditional.MatchConditions = []v1alpha1.MatchCondition{
		{Name: "creator", Expression: `creator == "alice" && "dev" in creatorGroups // a comment`},
		{Name: "namespace", Expression: `namespaceObject.metadata.name.startsWith("shop") && namespaceObject.metadata.?labels["x"].orValue("") == "" && requester != "" && namespaceObject.metadata.uid == "1"`},
	}
	served.Activation = new(v1alpha1.ActivationWhenServed)
	second := configurationOf("20", initializerOf("a.example.com", "pods", "jobs"), initializerOf("b.example.com", "jobs"), selected, conditional)
	first := configurationOf("10", served, initializerOf("z.example.com", "pods"))
	first.Status.Initializers = []v1alpha1.RegisteredInitializerStatus{{Name: "z.example.com", Reporter: "system:serviceaccount:scanner:default"}}
	configurations := []*v1alpha1.InitializerConfiguration{second, first, configurationOf("30", initializerOf("a.example.com", "pods"))}
	exempt := exemptionsOf(map[string]string{"namespaces": "default\nnsinit-system", "namePrefixes": "kube-\nopenshift-", "users": "robot", "groups": "admins"})
	policy, others := policiesFor(t, "pods", configurations, exempt)
	if others != nil {
		t.Error("a.example.com selects every namespace")
	}
	// An error of a condition does not stop the system.
	if got := metav1.FormatLabelSelector(policy.Spec.MatchConstraints.NamespaceSelector); got != "kubernetes.io/metadata.name notin (kube-system,nsinit-system)" {
		t.Errorf("the policy is for namespaces with %s", got)
	}
	alices := map[string]string{v1alpha1.AnnotationCreatedBy: "alice", v1alpha1.AnnotationCreatedByGroups: "dev\nops"}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		user      string
		pod       *corev1.Pod
		want      []string
	}{
		"any pod":                          {namespaceOf("x", nil, nil), "alice", podOf(), []string{gateOf("z.example.com"), gateOf("a.example.com")}},
		"selected":                         {namespaceOf("x", map[string]string{"team": "a", "env": "prod"}, nil), "alice", podOf(), []string{gateOf("z.example.com"), gateOf("a.example.com"), gateOf("c.example.com")}},
		"not selected by an expression":    {namespaceOf("x", map[string]string{"team": "a", "env": "test"}, nil), "alice", podOf(), []string{gateOf("z.example.com"), gateOf("a.example.com")}},
		"not selected by another one":      {namespaceOf("x", map[string]string{"team": "a", "off": ""}, nil), "alice", podOf(), []string{gateOf("z.example.com"), gateOf("a.example.com")}},
		"conditions":                       {namespaceOf("shop", nil, alices), "bob", podOf(), []string{gateOf("z.example.com"), gateOf("a.example.com"), gateOf("d.example.com")}},
		"forged, out of order, and others": {namespaceOf("x", nil, nil), "alice", podOf(gateOf("a.example.com"), "other/gate", gateOf("unknown.example.com")), []string{"other/gate", gateOf("z.example.com"), gateOf("a.example.com")}},
		"exempt namespace":                 {namespaceOf("default", nil, nil), "alice", podOf(gateOf("a.example.com")), []string{gateOf("a.example.com")}},
		"kube-system":                      {namespaceOf("kube-system", nil, nil), "alice", podOf(), nil},
		"nsinit":                           {namespaceOf(own, nil, nil), "alice", podOf(), nil},
		"exempt prefix":                    {namespaceOf("openshift-x", nil, nil), "alice", podOf(), nil},
		"exempt user":                      {namespaceOf("x", nil, nil), "robot", podOf(), nil},
		"namespace of an initializer":      {namespaceOf("scanner", nil, nil), "alice", podOf(), []string{gateOf("a.example.com")}},
	} {
		t.Run(name, func(t *testing.T) {
			got := mutate(t, policy, request{object: test.pod, namespace: test.namespace, user: test.user}).(*corev1.Pod)
			var gates []string
			for _, g := range got.Spec.SchedulingGates {
				gates = append(gates, g.Name)
			}
			if diff := cmp.Diff(test.want, gates); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, marked := got.Labels[v1alpha1.LabelInitializing]; marked != (len(helper.PendingOfObject(got)) > 0 && name != "exempt namespace") {
				t.Errorf("labels %v", got.Labels)
			}
		})
	}
	if stamp, others := policiesFor(t, "jobs", []*v1alpha1.InitializerConfiguration{first}, exempt); stamp != nil || others == nil {
		t.Error("a stamp without an active initializer")
	}
	onJobs, _ := policiesFor(t, "jobs", configurations, exempt)
	labels := map[string]string{gateOf("a.example.com"): "0", gateOf("b.example.com"): "1", v1alpha1.LabelInitializing: "true"}
	for name, test := range map[string]struct{ job, want *batchv1.Job }{
		"a Job":                {jobOf(false, nil, nil), jobOf(true, labels, nil)},
		"a suspended Job":      {jobOf(true, map[string]string{"app": "x"}, nil), jobOf(true, map[string]string{"app": "x", gateOf("a.example.com"): "0", gateOf("b.example.com"): "1", v1alpha1.LabelInitializing: "true"}, map[string]string{v1alpha1.AnnotationSuspend: "true"})},
		"stamped before":       {jobOf(true, labels, nil), jobOf(true, labels, nil)},
		"stamped and wish":     {jobOf(true, labels, map[string]string{v1alpha1.AnnotationSuspend: "true"}), jobOf(true, labels, map[string]string{v1alpha1.AnnotationSuspend: "true"})},
		"forged and suspended": {jobOf(true, map[string]string{gateOf("b.example.com"): "0"}, nil), jobOf(true, labels, map[string]string{v1alpha1.AnnotationSuspend: "true"})},
		"forged":               {jobOf(false, map[string]string{gateOf("b.example.com"): "0", gateOf("x.example.com"): "1"}, map[string]string{"a": "b"}), jobOf(true, labels, map[string]string{"a": "b"})},
	} {
		t.Run(name, func(t *testing.T) {
			got := mutate(t, onJobs, request{object: test.job.DeepCopy(), namespace: namespaceOf("x", nil, nil), user: "alice"}).(*batchv1.Job)
			got.TypeMeta = metav1.TypeMeta{}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRelabelled: an object that does not wait any more when the policy runs again, because the namespace changed meanwhile, is as its creator
// wrote it.
func TestRelabelled(t *testing.T) {
	initializer := initializerOf("a.example.com", "pods", "jobs")
	initializer.MatchConditions = []v1alpha1.MatchCondition{{Name: "a", Expression: `"scan" in namespaceObject.metadata.labels`}}
	configurations := []*v1alpha1.InitializerConfiguration{configurationOf("c", initializer)}
	labelled := jobOf(true, map[string]string{"app": "x"}, map[string]string{"a": "b"})
	for name, object := range map[string]metav1.Object{"a pod": podOf("x/y"), "a Job": jobOf(false, map[string]string{"app": "x"}, nil), "a suspended Job": labelled} {
		t.Run(name, func(t *testing.T) {
			resource := "pods"
			if _, ok := object.(*batchv1.Job); ok {
				resource = "jobs"
			}
			policy, _ := policiesFor(t, resource, configurations, exemptionsOf(nil))
			stamped := mutate(t, policy, request{object: object.(runtime.Object).DeepCopyObject(), namespace: namespaceOf("x", map[string]string{"scan": ""}, nil), user: "alice"})
			if pending := helper.PendingOfObject(stamped.(metav1.Object)); len(pending) != 1 {
				t.Fatalf("it waits for %q", pending)
			}
			got := mutate(t, policy, request{object: stamped, namespace: namespaceOf("x", nil, nil), user: "alice"})
			got.GetObjectKind().SetGroupVersionKind(object.(runtime.Object).GetObjectKind().GroupVersionKind())
			if diff := cmp.Diff(object, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSameVersion: the same configurations are the same version.
func TestSameVersion(t *testing.T) {
	initializer := initializerOf("a.example.com", "pods")
	initializer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := range 12 {
		initializer.NamespaceSelector.MatchLabels[fmt.Sprint("l", i)] = "x"
		initializer.NamespaceSelector.MatchExpressions = append(initializer.NamespaceSelector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{fmt.Sprint("t", i)}})
	}
	versions := map[string]bool{}
	for range 100 {
		_, version, err := compile([]*v1alpha1.InitializerConfiguration{configurationOf("c", initializer)}, exemptionsOf(nil), own)
		if err != nil {
			t.Fatal(err)
		}
		versions[version] = true
	}
	if len(versions) != 1 {
		t.Errorf("%d versions", len(versions))
	}
}

// TestEntries: a condition that reads more labels, annotations or groups than pkg/expressions allows fails, and others do not.
func TestEntries(t *testing.T) {
	labels, annotations, groups := map[string]string{}, map[string]string{}, map[string]string{}
	for i := range expressions.MaxEntries + 1 {
		labels[fmt.Sprint("l", i)], annotations[fmt.Sprint("a", i)] = "", ""
	}
	groups[v1alpha1.AnnotationCreatedByGroups] = strings.Repeat("g\n", expressions.MaxEntries+1)
	for name, test := range map[string]struct {
		condition string
		namespace *corev1.Namespace
		says      string
	}{
		"labels":           {`"x" in namespaceObject.metadata.labels`, namespaceOf("x", labels, nil), "there are more than 1024 labels"},
		"annotations":      {`"x" in namespaceObject.metadata.annotations`, namespaceOf("x", nil, annotations), "there are more than 1024 annotations"},
		"groups":           {`"x" in creatorGroups`, namespaceOf("x", nil, groups), "there are more than 1024 groups"},
		"not read":         {`creator == ""`, namespaceOf("x", labels, groups), ""},
		"as many as allow": {`namespaceObject.metadata.labels.size() > 0`, namespaceOf("x", map[string]string{"a": "b"}, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			initializer := initializerOf("a.example.com", "pods")
			initializer.MatchConditions = []v1alpha1.MatchCondition{{Name: "a", Expression: test.condition}}
			policy, _ := policiesFor(t, "pods", []*v1alpha1.InitializerConfiguration{configurationOf("c", initializer)}, exemptionsOf(nil))
			got, err := tryMutate(t, policy, request{object: podOf(), namespace: test.namespace, user: "alice"})
			switch {
			case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
				t.Errorf("%v, want %q", err, test.says)
			case test.says == "" && (err != nil || len(got.(*corev1.Pod).Spec.SchedulingGates) != 1):
				t.Errorf("%v: %v", got, err)
			}
		})
	}
}

// guardPolicies returns the policies of guard.yaml.
func guardPolicies(t *testing.T) (guard *admissionregistrationv1.ValidatingAdmissionPolicy, released *admissionregistrationv1.MutatingAdmissionPolicy) {
	t.Helper()
	for document := range strings.SplitSeq(artifacts.ObjectsGuard(), "\n---\n") {
		var kind metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		var into any
		switch kind.Kind + " " + kind.Name {
		case "ValidatingAdmissionPolicy " + installation.ObjectsGuard:
			guard = &admissionregistrationv1.ValidatingAdmissionPolicy{}
			into = guard
		case "MutatingAdmissionPolicy nsinit-objects-release":
			released = &admissionregistrationv1.MutatingAdmissionPolicy{}
			into = released
		default:
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Fatal(err)
		}
	}
	return guard, released
}

// TestGuard: only the holder of the verb initialize removes its name, and only in its turn.
func TestGuard(t *testing.T) {
	policy, released := guardPolicies(t)
	compiler, matcher := compilerOf(t, policy.Spec.Variables, policy.Spec.MatchConditions)
	var accessors []plugincel.ExpressionAccessor
	for _, v := range policy.Spec.Validations {
		accessors = append(accessors, &validating.ValidationCondition{Expression: v.Expression})
	}
	evaluator := compiler.CompileCondition(accessors, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	var messages []plugincel.ExpressionAccessor
	for _, v := range policy.Spec.Validations {
		if v.MessageExpression != "" {
			messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		}
	}
	texts := compiler.CompileCondition(messages, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	a, b, mayA, mayB, open := gateOf("a.example.com"), gateOf("b.example.com"), rights{"initialize a.example.com"}, rights{"initialize b.example.com"}, rights{"open"}
	ab := map[string]string{a: "2", b: "10"}
	wish := map[string]string{v1alpha1.AnnotationSuspend: "true"}
	for name, test := range map[string]struct {
		old, updated runtime.Object
		subresource  string
		rights       rights
		allowed      bool
	}{
		"not a pod that waits":             {podOf(), podOf(), "", nil, true},
		"no change":                        {podOf(a, b), podOf(a, b), "", nil, true},
		"a tenant removes the gate":        {podOf(a, b), podOf(b), "", nil, false},
		"a tenant removes all":             {podOf(a, b), podOf(), "", nil, false},
		"the initializer removes its gate": {podOf(a, b), podOf(b), "", mayA, true},
		"out of order":                     {podOf(a, b), podOf(a), "", mayB, false},
		"both together":                    {podOf(a, b), podOf(), "", append(slices.Clone(mayA), mayB...), false},
		"another one's":                    {podOf(a, b), podOf(b), "", mayB, false},
		"open":                             {podOf(a, b), podOf(), "", open, true},
		"a foreign gate":                   {podOf(a, "x/y", b), podOf(a, b), "", nil, true},
		"a gate is added":                  {podOf(), podOf(a), "", open, false},
		"a gate is replaced":               {podOf(a), podOf(b), "", mayA, false},
		"the label of a pod":               {marked(podOf(a, b)), podOf(a, b), "", append(slices.Clone(mayA), open...), false},
		"the label and a gate":             {marked(podOf(a, b)), podOf(b), "", mayA, false},
		"the label and the last gate":      {marked(podOf(a)), podOf(), "", mayA, true},
		"no label before":                  {podOf(a, b), podOf(b), "", mayA, true},
		"a tenant adds the label":          {podOf(a, b), marked(podOf(a, b)), "", mayA, false},
		"the label is added again":         {podOf(a, b), marked(podOf(a, b)), "", open, true},
		"the label of a Job":               {marked(jobOf(true, maps.Clone(ab), nil)), jobOf(true, ab, nil), "status", nil, false},
		"a Job: no change":                 {jobOf(true, ab, nil), jobOf(true, ab, nil), "", nil, true},
		"a Job: resumed":                   {jobOf(true, ab, nil), jobOf(false, ab, nil), "", append(slices.Clone(mayA), open...), false},
		"a Job: a tenant removes a label":  {jobOf(true, ab, nil), jobOf(true, map[string]string{b: "10"}, nil), "", nil, false},
		"a Job: the initializer":           {jobOf(true, ab, nil), jobOf(true, map[string]string{b: "10"}, nil), "", mayA, true},
		"a Job: out of order":              {jobOf(true, ab, nil), jobOf(true, map[string]string{a: "2"}, nil), "", mayB, false},
		"a Job: two have one position":     {jobOf(true, map[string]string{a: "1", b: "1"}, nil), jobOf(true, map[string]string{b: "1"}, nil), "", mayA, false},
		"a Job: another position":          {jobOf(true, ab, nil), jobOf(true, map[string]string{a: "2", b: "1"}, nil), "", nil, false},
		"a Job: added":                     {jobOf(true, nil, nil), jobOf(true, map[string]string{a: "0"}, nil), "", open, false},
		"a Job: the last, which starts it": {jobOf(true, map[string]string{a: "0"}, nil), jobOf(false, nil, nil), "", mayA, true},
		"a Job: all, by a tenant":          {jobOf(true, ab, nil), jobOf(false, nil, nil), "", nil, false},
		"a Job: open":                      {jobOf(true, ab, nil), jobOf(false, nil, nil), "", open, true},
		"a Job: through the status":        {jobOf(true, map[string]string{a: "0"}, nil), jobOf(true, nil, nil), "status", mayA, false},
		"a Job: its status":                {jobOf(true, ab, nil), jobOf(true, ab, nil), "status", nil, true},
		"a Job: the wish":                  {jobOf(true, ab, wish), jobOf(true, ab, nil), "", nil, false},
		"a Job: a wish":                    {jobOf(true, ab, nil), jobOf(true, ab, wish), "status", nil, false},
		"a Job that runs: no change":       {jobOf(false, ab, nil), jobOf(false, ab, nil), "", nil, true},
		"a Job that runs: its status":      {jobOf(false, ab, nil), jobOf(false, ab, nil), "status", nil, true},
		"a Job that runs: a tenant":        {jobOf(false, ab, nil), jobOf(false, nil, nil), "", nil, false},
		"a Job: released by no policy":     {jobOf(true, map[string]string{a: "0"}, nil), jobOf(true, nil, nil), "", mayA, false},
		"a Job: released against the wish": {jobOf(true, map[string]string{a: "0"}, wish), jobOf(false, nil, nil), "", mayA, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{object: test.updated, old: test.old, subresource: test.subresource, namespace: namespaceOf("x", nil, nil), user: "alice", rights: test.rights}
			attributes, ctx := r.attributes(t), compiler.CreateContext(t.Context())
			matched := matcher.Match(ctx, attributes, nil, r.rights)
			if matched.Error != nil {
				t.Fatal(matched.Error)
			}
			allowed := true
			if matched.Matches {
				kind := metav1.GroupVersionKind(attributes.VersionedKind)
				review := plugincel.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(attributes.GetResource()), kind)
				bindings := plugincel.OptionalVariableBindings{Authorizer: r.rights}
				results, _, err := evaluator.ForInput(ctx, attributes, review, bindings, r.namespace, celconfig.RuntimeCELCostBudget)
				if err != nil {
					t.Fatal(err)
				}
				for i, result := range results {
					if result.Error != nil {
						t.Fatalf("validation %d: %v", i, result.Error)
					}
					allowed = allowed && result.EvalResult.Value() == true
				}
				said, _, err := texts.ForInput(ctx, attributes, review, bindings, r.namespace, celconfig.RuntimeCELCostBudget)
				for i, text := range said {
					if text.Error != nil {
						t.Errorf("message %d: %v", i, text.Error)
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
			if allowed != test.allowed {
				t.Errorf("allowed: %t", allowed)
			}
		})
	}
	released.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{}
	for name, test := range map[string]struct {
		old, updated metav1.Object
		suspended    bool
		marked       bool
	}{
		"the last name":          {jobOf(true, map[string]string{a: "0"}, nil), marked(jobOf(true, nil, nil)), false, false},
		"the last name and wish": {jobOf(true, map[string]string{a: "0"}, wish), marked(jobOf(false, nil, wish)), true, false},
		"another name":           {jobOf(true, ab, nil), marked(jobOf(true, map[string]string{b: "10"}, nil)), true, true},
		"the last gate":          {podOf(a, "x/y"), marked(podOf("x/y")), false, false},
		"another gate":           {podOf(a, b), marked(podOf(b)), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := mutate(t, released, request{object: test.updated.(runtime.Object), old: test.old.(runtime.Object), namespace: namespaceOf("x", nil, nil)}).(metav1.Object)
			job, ok := got.(*batchv1.Job)
			if _, is := got.GetLabels()[v1alpha1.LabelInitializing]; is != test.marked || ok && *job.Spec.Suspend != test.suspended || len(got.GetAnnotations()) > 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestCommon: every namespace that a selector selects is one of those of the stamp, and all others are those of the other policy.
func TestCommon(t *testing.T) {
	in := func(key string, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	exists := metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpExists}
	not := metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}}
	of := func(requirements ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: requirements}
	}
	for name, test := range map[string]struct {
		selectors []*metav1.LabelSelector
		in, out   string
	}{
		"none":                 {nil, "", ""},
		"every namespace":      {[]*metav1.LabelSelector{of(in("team", "a")), nil}, "", ""},
		"values":               {[]*metav1.LabelSelector{of(in("team", "b", "a")), {MatchLabels: map[string]string{"team": "c", "env": "x"}}}, "team in (a,b,c)", "team notin (a,b,c)"},
		"a label":              {[]*metav1.LabelSelector{of(in("team", "a")), of(exists), of(in("team", "b"))}, "team", "!team"},
		"a label first":        {[]*metav1.LabelSelector{of(exists), of(in("team", "b"))}, "team", "!team"},
		"different labels":     {[]*metav1.LabelSelector{of(in("team", "a")), of(in("env", "x"))}, "", ""},
		"what must not be":     {[]*metav1.LabelSelector{of(not)}, "", ""},
		"two of one label":     {[]*metav1.LabelSelector{of(exists, in("team", "a"))}, "team in (a)", "team notin (a)"},
		"the first of several": {[]*metav1.LabelSelector{of(in("team", "a"), in("env", "x")), of(in("env", "y"), in("team", "b"))}, "env in (x,y)", "env notin (x,y)"},
	} {
		t.Run(name, func(t *testing.T) {
			in, out := common(test.selectors)
			if got := metav1.FormatLabelSelector(of(in...)); len(in) > 0 && got != test.in || len(in) == 0 && test.in != "" {
				t.Errorf("got %s", got)
			}
			if got := metav1.FormatLabelSelector(of(out...)); len(out) > 0 && got != test.out || len(out) == 0 && test.out != "" {
				t.Errorf("the opposite is %s", got)
			}
		})
	}
}

// TestManyExempt: kube-apiserver compiles the conditions for as many entries as a ConfigMap can have.
func TestManyExempt(t *testing.T) {
	for key, test := range map[string]struct {
		prefix  string
		count   int
		request func(name string) request
	}{
		installation.KeyNamespaces: {strings.Repeat("x", 57), 15_000, func(name string) request {
			return request{namespace: namespaceOf(name, nil, nil), user: "alice"}
		}},
		installation.KeyNamePrefixes: {strings.Repeat("x", 57), 15_000, func(name string) request {
			return request{namespace: namespaceOf(name+"-a", nil, nil), user: "alice"}
		}},
		installation.KeyUsers: {serviceaccount.MakeUsername(strings.Repeat("n", 63), strings.Repeat("x", 247)), 3000, func(name string) request {
			return request{namespace: namespaceOf("n", nil, nil), user: name}
		}},
		installation.KeyGroups: {serviceaccount.MakeNamespaceGroupName(strings.Repeat("x", 57)), 10_000, func(name string) request {
			return request{namespace: namespaceOf("n", nil, nil), user: "alice", groups: []string{"another", name}}
		}},
	} {
		t.Run(key, func(t *testing.T) {
			var names []string
			for n := range test.count {
				names = append(names, fmt.Sprintf("%s-%05d", test.prefix, n))
			}
			exempt := exemptionsOf(map[string]string{key: strings.Join(names, "\n")})
			policy, _ := policiesFor(t, "pods", []*v1alpha1.InitializerConfiguration{configurationOf("c", initializerOf("a.example.com", "pods"))}, exempt)
			if conditions := len(policy.Spec.MatchConditions); conditions > 64 {
				t.Errorf("%d conditions", conditions)
			}
			for _, name := range []string{names[0], names[test.count/2], names[test.count-1], "another"} {
				r := test.request(name)
				r.object = podOf()
				if got := mutate(t, policy, r).(*corev1.Pod); (len(got.Spec.SchedulingGates) > 0) != (name == "another") {
					t.Errorf("%s: the pod has %d gates", name, len(got.Spec.SchedulingGates))
				}
			}
		})
	}
}

// TestLongSelector: kube-apiserver compiles the longest selector that nsinit-apiserver accepts.
func TestLongSelector(t *testing.T) {
	initializer, labels := initializerOf("a.example.com", "pods"), map[string]string{}
	accepted := func() bool { return len(plan.ValidateObjects([]v1alpha1.Initializer{initializer}, nil, nil, nil)) == 0 }
	initializer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: labels}
	key := ""
	for n := 0; accepted(); n++ {
		key = fmt.Sprintf("%s/%s-%04d", strings.Repeat("d", 253), strings.Repeat("n", 58), n)
		labels[key] = "v"
	}
	delete(labels, key)
	if !accepted() || len(labels) < 100 {
		t.Errorf("%d labels", len(labels))
	}
	policy, _ := policiesFor(t, "pods", []*v1alpha1.InitializerConfiguration{configurationOf("c", initializer)}, exemptionsOf(nil))
	if got := mutate(t, policy, request{object: podOf(), namespace: namespaceOf("n", labels, nil), user: "alice"}).(*corev1.Pod); len(got.Spec.SchedulingGates) != 1 {
		t.Error("the pod does not wait")
	}
}

// TestOthers: in namespaces that no initializer can select, programs do not see names that the creator set.
func TestOthers(t *testing.T) {
	selected := initializerOf("a.example.com", "pods", "jobs")
	selected.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	configurations := []*v1alpha1.InitializerConfiguration{configurationOf("c", selected)}
	exempt := exemptionsOf(map[string]string{"namespaces": "default", "users": "robot"})
	a, wish := gateOf("a.example.com"), map[string]string{v1alpha1.AnnotationSuspend: "true"}
	for name, test := range map[string]struct {
		object    metav1.Object
		namespace string
		user      string
		want      []string
	}{
		"forged gates":         {marked(podOf(a, "x/y")), "x", "alice", nil},
		"forged labels":        {marked(jobOf(true, map[string]string{a: "0"}, wish)), "x", "alice", nil},
		"a forged wish":        {marked(jobOf(true, nil, wish)), "x", "alice", nil},
		"without the label":    {podOf(a), "x", "alice", []string{"a.example.com"}},
		"by an exempt user":    {marked(podOf(a)), "x", "robot", []string{"a.example.com"}},
		"an exempt namespace":  {marked(podOf(a)), "default", "alice", []string{"a.example.com"}},
		"the one of nsinit":    {marked(podOf(a)), own, "alice", []string{"a.example.com"}},
		"the selected ones do": {marked(podOf(a)), "team", "alice", []string{"a.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			resource := "pods"
			if _, ok := test.object.(*batchv1.Job); ok {
				resource = "jobs"
			}
			stamp, others := policiesFor(t, resource, configurations, exempt)
			r := request{object: test.object.(runtime.Object), namespace: namespaceOf(test.namespace, nil, nil), user: test.user}
			if test.namespace == "team" {
				r.namespace.Labels["team"] = "a"
			}
			r.object = mutate(t, stamp, r)
			got := mutate(t, others, r).(metav1.Object)
			if pending := helper.PendingOfObject(got); !slices.Equal(pending, test.want) || len(got.GetAnnotations()) > 0 {
				t.Errorf("it waits for %q, with annotations %v", pending, got.GetAnnotations())
			}
		})
	}
	if stamp, others := policiesFor(t, "pods", nil, exempt); stamp != nil || others == nil || len(others.Spec.MatchConstraints.NamespaceSelector.MatchExpressions) != 0 {
		t.Errorf("without initializers: %v, %v", stamp, others)
	}
}

// TestNext: objects of deleted configurations are released, and deadlines count from the creation.
func TestNext(t *testing.T) {
	ignore, failing := initializerOf("a.example.com"), initializerOf("b.example.com")
	ignore.FailurePolicy, ignore.TimeoutSeconds = new(v1alpha1.Ignore), new(int32(5))
	failing.FailurePolicy, failing.TimeoutSeconds = new(v1alpha1.Fail), new(int32(10))
	registered := byName([]*v1alpha1.InitializerConfiguration{configurationOf("2", failing, initializerOf("a.example.com")), configurationOf("1", ignore, initializerOf("c.example.com"))})
	created := metav1.NewTime(time.Unix(1000, 0))
	for name, test := range map[string]struct {
		gates []string
		after time.Duration
		step  step
		names []string
		left  time.Duration
	}{
		"no gate":              {nil, 0, wait, nil, 0},
		"before the deadline":  {[]string{gateOf("a.example.com")}, 2 * time.Second, wait, nil, 3 * time.Second},
		"Ignore":               {[]string{gateOf("a.example.com"), gateOf("b.example.com")}, 6 * time.Second, skip, []string{"a.example.com"}, 0},
		"Fail":                 {[]string{gateOf("b.example.com")}, 10 * time.Second, fail, []string{"b.example.com"}, 0},
		"without a policy":     {[]string{gateOf("c.example.com"), gateOf("b.example.com")}, time.Hour, wait, nil, 0},
		"no longer registered": {[]string{gateOf("c.example.com"), gateOf("x.example.com")}, 0, release, []string{"x.example.com"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(test.gates...)
			pod.CreationTimestamp = created
			step, names, left := next(pod, registered, created.Add(test.after))
			if step != test.step || !slices.Equal(names, test.names) || left != test.left {
				t.Errorf("got %s %v after %s", step, names, left)
			}
			pod.DeletionTimestamp = &created
			if step, names, left := next(pod, registered, created.Add(test.after)); step != wait || names != nil || left != 0 {
				t.Errorf("being deleted: got %s %v after %s", step, names, left)
			}
		})
	}
}

// TestTake: each write is for the version of the object for which the step was decided.
func TestTake(t *testing.T) {
	pod, job := podOf("x/y", gateOf("a.example.com")), jobOf(true, map[string]string{gateOf("a.example.com"): "0"}, nil)
	pod.Namespace, pod.ResourceVersion, job.Namespace, job.ResourceVersion = "n", "7", "n", "8"
	events := record.NewFakeRecorder(10)
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: job.ObjectMeta}
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	deleted := false
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if deleted {
			return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), "p")
		}
		deleted = action.GetVerb() == "delete"
		return true, metadata, nil
	})
	s := &session{Controller: New(Dependencies{Metadata: client, Events: events, Clock: clock.RealClock{}})}
	names := []string{"a.example.com"}
	for _, err := range []error{
		s.take(t.Context(), "jobs", metadata, skip, names), s.take(t.Context(), "jobs", metadata, fail, names),
		s.take(t.Context(), "pods", pod, skip, names), s.take(t.Context(), "pods", pod, fail, names), s.take(t.Context(), "pods", pod, fail, names),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	var bodies []string
	for _, action := range client.Actions() {
		switch action := action.(type) {
		case clienttesting.PatchAction:
			bodies = append(bodies, string(action.GetPatch()))
		case clienttesting.DeleteAction:
			bodies = append(bodies, fmt.Sprintf("delete %s %s", *action.GetDeleteOptions().Preconditions.UID, *action.GetDeleteOptions().Preconditions.ResourceVersion))
		}
	}
	wants := []string{`{"metadata":{"labels":{"initializers.nsinit.dev/a.example.com":null},"resourceVersion":"8","uid":"3"}}`, `"type":"FailureTarget"`,
		`{"metadata":{"resourceVersion":"7","uid":"2"},"spec":{"schedulingGates":[{"$patch":"delete","name":"initializers.nsinit.dev/a.example.com"}]}}`, "delete 2 7", "delete 2 7"}
	for _, want := range wants {
		if !slices.ContainsFunc(bodies, func(body string) bool { return strings.Contains(body, want) }) {
			t.Errorf("no request has %s: %q", want, bodies)
		}
	}
	if len(events.Events) != 4 { // the last object did not exist
		t.Errorf("there are %d events", len(events.Events))
	}
}

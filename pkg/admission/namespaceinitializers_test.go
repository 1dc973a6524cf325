/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// source answers each call with the next of its lists.
type source struct {
	lists [][]v1alpha1.NamespaceInitializerConfiguration
	err   error
}

func (s *source) Configurations(context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	if s.err != nil {
		return nil, s.err
	}
	list := s.lists[0]
	if len(s.lists) > 1 {
		s.lists = s.lists[1:]
	}
	return list, nil
}

func list(initializers ...string) []v1alpha1.NamespaceInitializerConfiguration {
	c := v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u"}}
	for _, name := range initializers {
		c.Initializers = append(c.Initializers, v1alpha1.RegisteredInitializer{Name: name})
	}
	return []v1alpha1.NamespaceInitializerConfiguration{c}
}

func denyAll(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

func newPlugin(s *source) *NamespaceInitializers {
	p := NewNamespaceInitializers()
	p.setDependencies(Dependencies{
		Checker:        authorization.New(authorizer.AuthorizerFunc(denyAll)),
		Configurations: s.Configurations,
		Namespace: func(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}}, nil
		},
	})
	return p
}

func create(lifecycle *nsinit.NamespaceLifecycle, subresource string) admission.Attributes {
	return admission.NewAttributesRecord(lifecycle, nil, v1alpha1.SchemeGroupVersion.WithKind("NamespaceLifecycle"), "", lifecycle.Name,
		v1alpha1.SchemeGroupVersion.WithResource("namespacelifecycles"), subresource, admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "u"})
}

func newTestLifecycle() *nsinit.NamespaceLifecycle {
	return &nsinit.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "ns"}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u"}}
}

// TestRegistration: a user adds, changes, moves and removes only the entries of initializers that it may act as. Every other write is
// allowed, also if the configurations cannot be read.
func TestRegistration(t *testing.T) {
	const own, other, third = "own.example.com", "other.example.com", "third.example.com"
	entry := func(name string, finalizer bool) v1alpha1.RegisteredInitializer {
		return v1alpha1.RegisteredInitializer{Name: name, Finalizer: finalizer}
	}
	type entries = []v1alpha1.RegisteredInitializer
	p := newPlugin(&source{err: errors.New("down")})
	p.Checker = authorization.New(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == v1alpha1.VerbInitialize && a.GetName() == own {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	for name, test := range map[string]struct {
		old, updated entries // old is nil for a creation
		subresource  string
		allowed      bool
	}{
		"its own":            {nil, entries{entry(own, true)}, "", true},
		"none":               {nil, nil, "", true},
		"another":            {nil, entries{entry(own, true), entry(other, true)}, "", false},
		"nothing changed":    {entries{entry(other, true)}, entries{entry(other, true)}, "", true},
		"another order":      {entries{entry(other, true), entry(own, true)}, entries{entry(own, true), entry(other, true)}, "", true},
		"order of others":    {entries{entry(other, true), entry(own, true), entry(third, true)}, entries{entry(third, true), entry(own, true), entry(other, true)}, "", false},
		"its own beside one": {entries{entry(other, true)}, entries{entry(other, true), entry(own, true)}, "", true},
		"its own changed":    {entries{entry(other, true), entry(own, true)}, entries{entry(other, true), entry(own, false)}, "", true},
		"its own removed":    {entries{entry(other, true), entry(own, true)}, entries{entry(other, true)}, "", true},
		"another added":      {entries{entry(own, true)}, entries{entry(own, true), entry(other, true)}, "", false},
		"another changed":    {entries{entry(other, true)}, entries{entry(other, false)}, "", false},
		"another removed":    {entries{entry(other, true), entry(own, true)}, entries{entry(own, true)}, "", false},
		"another renamed":    {entries{entry(other, true)}, entries{entry(own, true)}, "", false},
		"through the status": {entries{entry(other, true)}, entries{entry(other, false)}, "status", true}, // which keeps the entries
	} {
		t.Run(name, func(t *testing.T) {
			operation, old := admission.Create, runtime.Object(nil)
			if test.old != nil {
				operation, old = admission.Update, &nsinit.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Initializers: test.old}
			}
			u := &user.DefaultInfo{Name: "u"}
			attributes := admission.NewAttributesRecord(&nsinit.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Initializers: test.updated}, old,
				v1alpha1.SchemeGroupVersion.WithKind("NamespaceInitializerConfiguration"), "", "c",
				v1alpha1.SchemeGroupVersion.WithResource("namespaceinitializerconfigurations"), test.subresource, operation, nil, false, u)
			err := p.Validate(genericapirequest.WithUser(t.Context(), u), attributes, nil)
			if test.allowed && err != nil || !test.allowed && !apierrors.IsForbidden(err) {
				t.Error(err)
			}
		})
	}
}

// TestDeletion: a deletion of a configuration of pods and Jobs releases objects, so it needs the same right as the removal of each entry.
// Writes cannot exceed the bounds.
func TestDeletion(t *testing.T) {
	const own, other = "own.example.com", "other.example.com"
	p := newPlugin(&source{})
	p.Checker = authorization.New(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == v1alpha1.VerbInitialize && a.GetName() == own {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	of := func(name string, initializers ...string) *nsinit.InitializerConfiguration {
		c := &nsinit.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, initializer := range initializers {
			c.Initializers = append(c.Initializers, v1alpha1.Initializer{Name: initializer})
		}
		return c
	}
	p.ObjectConfigurations = func(context.Context) ([]nsinit.InitializerConfiguration, error) {
		return []nsinit.InitializerConfiguration{*of("many", make([]string, 127)...), *of("c", own)}, nil
	}
	for name, test := range map[string]struct {
		old, updated runtime.Object
		operation    admission.Operation
		allowed      func(error) bool
	}{
		"its own":          {of("c", own), nil, admission.Delete, func(err error) bool { return err == nil }},
		"another beside":   {of("c", own, other), nil, admission.Delete, apierrors.IsForbidden},
		"within the bound": {nil, of("c", own), admission.Create, func(err error) bool { return err == nil }},
		"too many":         {nil, of("d", own), admission.Create, apierrors.IsInvalid},
		"too many of one":  {of("c", own), of("c", own, own), admission.Update, apierrors.IsInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			u := &user.DefaultInfo{Name: "u"}
			attributes := admission.NewAttributesRecord(test.updated, test.old, v1alpha1.SchemeGroupVersion.WithKind("InitializerConfiguration"), "", "",
				v1alpha1.SchemeGroupVersion.WithResource("initializerconfigurations"), "", test.operation, nil, false, u)
			if err := p.Validate(genericapirequest.WithUser(t.Context(), u), attributes, nil); !p.Handles(test.operation) || !test.allowed(err) {
				t.Error(err)
			}
		})
	}
}

// failing registers an initializer whose condition fails.
func failing() []v1alpha1.NamespaceInitializerConfiguration {
	c := list("a.example.com")
	c[0].Initializers[0].MatchConditions = []v1alpha1.MatchCondition{{Name: "team", Expression: `namespaceObject.metadata.labels.team == "a"`}}
	return c
}

// TestPlanDegraded: a lifecycle has the condition PlanDegraded if an expression fails, and a client cannot forge it.
func TestPlanDegraded(t *testing.T) {
	ctx := genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: "u"})
	forged := metav1.Condition{Type: v1alpha1.ConditionPlanDegraded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonExpressionFailed, Message: "forged"}
	const message = `initializer "a.example.com" of configuration "c" is in the plan because an expression failed, which counts as a match: matchCondition "team": no such key: team`
	for name, test := range map[string]struct {
		configurations []v1alpha1.NamespaceInitializerConfiguration
		// sent are conditions that the client sets.
		sent []metav1.Condition
		want string
	}{
		"an expression fails":          {configurations: failing(), want: message},
		"none fails":                   {configurations: list("a.example.com")},
		"forged by the client":         {configurations: list("a.example.com"), sent: []metav1.Condition{forged}},
		"another forged by the client": {configurations: failing(), sent: []metav1.Condition{forged}, want: message},
	} {
		t.Run(name, func(t *testing.T) {
			p, lifecycle := newPlugin(&source{lists: [][]v1alpha1.NamespaceInitializerConfiguration{test.configurations}}), newTestLifecycle()
			lifecycle.Status.Conditions = test.sent
			if err := p.Admit(ctx, create(lifecycle, ""), nil); err != nil {
				t.Fatal(err)
			}
			got := ""
			if condition := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionPlanDegraded); condition != nil {
				got = condition.Message
			}
			if got != test.want {
				t.Errorf("the message is %q, want %q", got, test.want)
			}
		})
	}
}

// TestNoConfigurations: without a list of configurations, no lifecycle is created, and the client retries.
func TestNoConfigurations(t *testing.T) {
	p := newPlugin(&source{err: errors.New("etcd did not answer within 2s")})
	err := p.Admit(context.Background(), create(newTestLifecycle(), ""), nil)
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !ok || seconds != 1 {
		t.Errorf("got %v, delay %d %v", err, seconds, ok)
	}
}

// TestTerminating: a namespace that is being deleted gets no lifecycle, and the refusal has the cause
// that the core API returns.
func TestTerminating(t *testing.T) {
	p := newPlugin(&source{})
	p.Namespace = func(context.Context, string, metav1.GetOptions) (*corev1.Namespace, error) {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "u", DeletionTimestamp: &metav1.Time{}}}, nil
	}
	if err := p.Admit(context.Background(), create(newTestLifecycle(), ""), nil); !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("got %v", err)
	}
}

// TestCachedNamespace: a namespace is read live unless the cache shows that it is closed.
func TestCachedNamespace(t *testing.T) {
	closed := func(change func(*corev1.Namespace)) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "u", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}}
		change(n)
		return n
	}
	for name, test := range map[string]struct {
		cached *corev1.Namespace
		live   bool
	}{
		"closed":           {closed(func(*corev1.Namespace) {}), false},
		"open":             {closed(func(n *corev1.Namespace) { n.Labels = nil }), true},
		"being deleted":    {closed(func(n *corev1.Namespace) { n.DeletionTimestamp = &metav1.Time{} }), true},
		"of another UID":   {closed(func(n *corev1.Namespace) { n.UID = "former" }), true},
		"not in the cache": {closed(func(n *corev1.Namespace) { n.Name = "other" }), true},
	} {
		t.Run(name, func(t *testing.T) {
			p, live := newPlugin(&source{lists: [][]v1alpha1.NamespaceInitializerConfiguration{list("a.example.com")}}), false
			read := p.Namespace
			p.Namespace = func(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Namespace, error) {
				live = true
				return read(ctx, name, options)
			}
			factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			p.Cached = factory.Core().V1().Namespaces().Lister()
			if err := factory.Core().V1().Namespaces().Informer().GetStore().Add(test.cached); err != nil {
				t.Fatal(err)
			}
			lifecycle := newTestLifecycle()
			if err := p.Admit(t.Context(), create(lifecycle, ""), nil); err != nil || len(lifecycle.Spec.Plan) != 1 {
				t.Errorf("the plan is %+v, %v", lifecycle.Spec.Plan, err)
			}
			if live != test.live {
				t.Errorf("read live: %t, want %t", live, test.live)
			}
		})
	}
}

// TestUnnamed: a lifecycle without the name of a namespace is invalid, and nothing is read for it.
func TestUnnamed(t *testing.T) {
	for name, meta := range map[string]metav1.ObjectMeta{
		"generated": {GenerateName: "x-"}, "none": {}, "a path": {Name: "a/b"}, "capitals": {Name: "A"},
	} {
		p, lifecycle := newPlugin(&source{}), newTestLifecycle()
		p.Namespace = func(context.Context, string, metav1.GetOptions) (*corev1.Namespace, error) {
			return nil, errors.New("resource name may not be empty")
		}
		lifecycle.ObjectMeta = meta
		err := p.Admit(context.Background(), create(lifecycle, ""), nil)
		if status := apierrors.APIStatus(nil); !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details.Causes[0].Field != "metadata.name" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSubresources: a POST to a subresource creates no lifecycle.
func TestSubresources(t *testing.T) {
	p, lifecycle := newPlugin(&source{lists: [][]v1alpha1.NamespaceInitializerConfiguration{list("a.example.com")}}), newTestLifecycle()
	if err := p.Admit(context.Background(), create(lifecycle, "finalize"), nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(context.Background(), create(lifecycle, "finalize"), nil); err != nil {
		t.Fatal(err)
	}
	if lifecycle.Spec.Plan != nil {
		t.Errorf("the plan was filled in: %v", lifecycle.Spec.Plan)
	}
}

func TestMissingDependencies(t *testing.T) {
	if err := NewNamespaceInitializers().ValidateInitialization(); err == nil {
		t.Error("no error for a plugin without its dependencies")
	}
	if err := newPlugin(&source{}).ValidateInitialization(); err != nil {
		t.Error(err)
	}
}

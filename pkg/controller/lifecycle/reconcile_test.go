/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

type namespaceOption func(*corev1.Namespace)

func namespace(options ...namespaceOption) *corev1.Namespace {
	n := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "new", ResourceVersion: "1"},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
	}
	for _, option := range options {
		option(n)
	}
	return n
}

func closed(n *corev1.Namespace) { n.Labels = map[string]string{v1alpha1.LabelInitializing: "true"} }

func deleting(n *corev1.Namespace) {
	now := metav1.Now()
	n.DeletionTimestamp = &now
}

// secured: nsinit's finalizer holds the namespace once it is deleted.
func secured(n *corev1.Namespace) { n.Finalizers = []string{v1alpha1.NamespaceFinalizer} }

// emptied: nsinit's finalizer holds the namespace, whose content is gone.
func emptied(n *corev1.Namespace) {
	secured(n)
	n.Spec.Finalizers = nil
	n.Status.Conditions = append(n.Status.Conditions, corev1.NamespaceCondition{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionFalse})
}

// kept: the policy keeps the content of the namespace once it is deleted.
func kept(n *corev1.Namespace) {
	n.Finalizers = []string{v1alpha1.NamespaceFinalizer, v1alpha1.ContentFinalizer}
}

// refused: kube-controller-manager could not delete the content. It does not count what it could not delete.
func refused(n *corev1.Namespace) {
	n.Status.Conditions = append(n.Status.Conditions, corev1.NamespaceCondition{Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionTrue})
}

func withFinalizers(finalizers ...corev1.FinalizerName) namespaceOption {
	return func(n *corev1.Namespace) { n.Spec.Finalizers = finalizers }
}

// ready is a namespace that nsinit has reported as open.
func ready(n *corev1.Namespace) {
	said := opened(aLifecycle())
	said.apply(n, metav1.Now().Time)
}

// opener is a namespace that a user opened by hand.
func opener(user string) namespaceOption {
	return func(n *corev1.Namespace) {
		n.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "tenant", v1alpha1.AnnotationOpenedBy: user}
	}
}

type lifecycleOption func(*v1alpha1.NamespaceLifecycle)

func aLifecycle(options ...lifecycleOption) *v1alpha1.NamespaceLifecycle {
	r := &v1alpha1.NamespaceLifecycle{
		ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "lifecycle", ResourceVersion: "1"},
		Spec: v1alpha1.NamespaceLifecycleSpec{
			NamespaceUID: "new",
			Finalizers:   []v1alpha1.FinalizerName{v1alpha1.FinalizerKubernetes},
		},
	}
	for _, option := range options {
		option(r)
	}
	r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionInitializing, Message: serverMessage})
	return r
}

// serverMessage is how the server describes the state of an initialization.
const serverMessage = "the sentence of the server"

func pending(names ...string) lifecycleOption {
	return func(r *v1alpha1.NamespaceLifecycle) {
		if r.Spec.Initializers == nil {
			r.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
		}
		for _, name := range names {
			r.Spec.Initializers.Pending = append(r.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name})
			r.Spec.Plan = append(r.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name}})
			r.Status.Initializers = append(r.Status.Initializers, v1alpha1.InitializerStatus{Name: name})
		}
	}
}

func failed(r *v1alpha1.NamespaceLifecycle) {
	r.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no quota left"}
	r.Spec.Initializers.FailedInitializer = r.Spec.Initializers.Pending[0].Name
}

func participant(r *v1alpha1.NamespaceLifecycle) {
	r.Spec.Plan = append(r.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "p.example.com", Finalizer: true}})
}

// holder is a participant that holds the content.
func holder(r *v1alpha1.NamespaceLifecycle) {
	participant(r)
	r.Spec.Plan[len(r.Spec.Plan)-1].Holds = new(v1alpha1.HoldContent)
}

// openedHand is a lifecycle that says so.
func openedHand(r *v1alpha1.NamespaceLifecycle) {
	r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionOpenedByHand, Status: metav1.ConditionTrue, Message: "alice did"})
}

func former(r *v1alpha1.NamespaceLifecycle) { r.Spec.NamespaceUID = "old" }

func leaving(r *v1alpha1.NamespaceLifecycle) {
	now := metav1.Now()
	r.DeletionTimestamp = &now
}

func held(by ...v1alpha1.FinalizerName) lifecycleOption {
	return func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Finalizers = by }
}

// TestNext lists every state, and the step that follows.
func TestNext(t *testing.T) {
	tests := map[string]struct {
		namespace *corev1.Namespace
		lifecycle *v1alpha1.NamespaceLifecycle
		want      action
	}{
		"neither exists": {nil, nil, nothing},

		"a new namespace":                       {namespace(closed), nil, createLifecycle},
		"a namespace from before":               {namespace(), nil, createLifecycle},
		"it waits":                              {namespace(closed), aLifecycle(pending("a.example.com")), nothing},
		"the built-in initializer has its turn": {namespace(closed), aLifecycle(pending(v1alpha1.InitializerLifecycle, "a.example.com")), secureNamespace},
		"the built-in initializer acts first, wherever it is": {namespace(closed), aLifecycle(pending("a.example.com", v1alpha1.InitializerLifecycle)), secureNamespace},
		"every initializer is done":                           {namespace(closed), aLifecycle(), openGate},
		"an empty list":                                       {namespace(closed), aLifecycle(pending()), openGate},
		"it is open":                                          {namespace(), aLifecycle(), nothing},
		"an initializer failed":                               {namespace(closed), aLifecycle(pending("a.example.com"), failed), failNamespace},
		"the built-in one is first after a failure":           {namespace(closed), aLifecycle(pending(v1alpha1.InitializerLifecycle), failed), failNamespace},
		"status says it is done, spec does not": {namespace(closed), aLifecycle(pending("a.example.com"), func(r *v1alpha1.NamespaceLifecycle) {
			r.Status.Phase = v1alpha1.LifecycleActive
		}), nothing},

		"it was opened by hand":                               {namespace(), aLifecycle(pending("a.example.com")), endInitialization},
		"it was opened by hand before it was secured":         {namespace(), aLifecycle(pending(v1alpha1.InitializerLifecycle, "a.example.com"), participant), endInitialization},
		"it was opened by hand after an initializer failed":   {namespace(), aLifecycle(pending("a.example.com"), failed), failNamespace},
		"a former lifecycle never opens what is open":         {namespace(), aLifecycle(former, pending("a.example.com")), deleteLifecycle},
		"its lifecycle is leaving, and it was opened by hand": {namespace(), aLifecycle(pending("a.example.com"), leaving, held("p.example.com")), nothing},
		"it was opened by hand, and is deleted":               {namespace(deleting), aLifecycle(pending("a.example.com")), deleteLifecycle},

		"it was ready, and is deleted":                             {namespace(ready, deleting), aLifecycle(), withdrawReady},
		"it was ready, and is deleted, without a lifecycle":        {namespace(ready, deleting), nil, withdrawReady},
		"it was ready, is deleted, and a former lifecycle is held": {namespace(ready, deleting), aLifecycle(former, leaving, held("p.example.com")), withdrawReady},
		"it was ready, and its finalizers were emptied":            {namespace(ready, deleting, withFinalizers()), nil, restoreFinalizer},
		"it is ready": {namespace(ready), aLifecycle(), nothing},

		"a lifecycle of a former namespace":                                      {namespace(closed), aLifecycle(former), deleteLifecycle},
		"a former lifecycle whose initializers are done never opens the new one": {namespace(closed), aLifecycle(former, leaving, held("p.example.com")), nothing},
		"a former lifecycle that is leaving":                                     {namespace(closed), aLifecycle(former, leaving), releaseLifecycle},
		"a former lifecycle without finalizers":                                  {namespace(closed), aLifecycle(former, leaving, held()), deleteLifecycle},
		"a lifecycle without namespace":                                          {nil, aLifecycle(), deleteLifecycle},
		"a leaving lifecycle without namespace":                                  {nil, aLifecycle(leaving), releaseLifecycle},
		"a leaving lifecycle that a participant holds":                           {nil, aLifecycle(leaving, held("p.example.com")), nothing},
		"a participant is left and so is kubernetes":                             {nil, aLifecycle(leaving, held("p.example.com", "kubernetes")), releaseLifecycle},

		"the namespace is deleted":                          {namespace(deleting), aLifecycle(), deleteLifecycle},
		"it is deleted while it initializes":                {namespace(closed, deleting), aLifecycle(pending("a.example.com")), deleteLifecycle},
		"it is deleted after a failure":                     {namespace(closed, deleting), aLifecycle(pending("a.example.com"), failed), deleteLifecycle},
		"its content is still there":                        {namespace(deleting), aLifecycle(leaving), nothing},
		"its content is gone":                               {namespace(deleting, emptied), aLifecycle(leaving), releaseLifecycle},
		"its finalizers were emptied, but not its content":  {namespace(deleting, secured, withFinalizers()), aLifecycle(leaving), restoreFinalizer},
		"the same, and the lifecycle has left":              {namespace(deleting, secured, withFinalizers()), nil, restoreFinalizer},
		"its content is gone, a participant is left":        {namespace(deleting, emptied), aLifecycle(leaving, held("p.example.com")), nothing},
		"the lifecycle has left":                            {namespace(deleting, emptied), nil, releaseNamespace},
		"the lifecycle has left, others hold it":            {namespace(deleting, withFinalizers("openshift.com/origin")), nil, nothing},
		"it has no finalizers, its finalizers were emptied": {namespace(deleting, withFinalizers()), nil, restoreFinalizer},
		"it is deleted without a lifecycle":                 {namespace(closed, deleting), nil, nothing},

		"the content is kept":                                        {namespace(kept), aLifecycle(holder, held("p.example.com", "kubernetes")), nothing},
		"the content is kept, and it is deleted":                     {namespace(deleting, kept), aLifecycle(holder, held("p.example.com", "kubernetes")), deleteLifecycle},
		"a participant holds the content":                            {namespace(deleting, kept), aLifecycle(holder, leaving, held("p.example.com", "kubernetes")), suspendEmptying},
		"a participant holds the content, another the namespace":     {namespace(deleting, kept, withFinalizers("kubernetes", "openshift.com/origin")), aLifecycle(holder, leaving, held("p.example.com")), nothing},
		"a participant holds the content, which is not deleted":      {namespace(deleting, kept, withFinalizers()), aLifecycle(holder, leaving, held("p.example.com", "kubernetes")), nothing},
		"the content was refused, and a participant holds it":        {namespace(deleting, emptied, kept), aLifecycle(holder, leaving, held("p.example.com", "kubernetes")), nothing},
		"no participant holds the content any more":                  {namespace(deleting, kept, withFinalizers()), aLifecycle(holder, leaving), releaseContent},
		"no participant held the content":                            {namespace(deleting, kept), aLifecycle(participant, leaving, held("p.example.com", "kubernetes")), releaseContent},
		"a participant holds the content, which nothing keeps":       {namespace(deleting, secured), aLifecycle(holder, leaving, held("p.example.com", "kubernetes")), nothing},
		"nothing keeps the content any more, and nothing deletes it": {namespace(deleting, secured, withFinalizers()), aLifecycle(holder, leaving, held("p.example.com", "kubernetes")), restoreFinalizer},
		"the content is kept, the lifecycle has left":                {namespace(deleting, kept, withFinalizers()), nil, releaseContent},
		"the content is kept, a former lifecycle is held":            {namespace(deleting, kept), aLifecycle(former, leaving, held("p.example.com")), releaseContent},
		"its content was refused":                                    {namespace(deleting, emptied, refused), aLifecycle(leaving), restoreFinalizer},
		"its content was refused, the lifecycle has left":            {namespace(deleting, emptied, refused), nil, restoreFinalizer},

		"it is deleted while it waits for a former lifecycle": {namespace(closed, deleting), aLifecycle(former, leaving, held("p.example.com")), nothing},
		"it is deleted while a former lifecycle is leaving":   {namespace(deleting, emptied), aLifecycle(former, leaving), releaseLifecycle},
		"its own lifecycle has left, a former one is held":    {namespace(deleting, emptied), aLifecycle(former, leaving, held("p.example.com")), releaseNamespace},
		"it has no finalizers, a former lifecycle is held":    {namespace(deleting, withFinalizers()), aLifecycle(former, leaving, held("p.example.com")), restoreFinalizer},
		"others' metadata finalizers hold it": {namespace(deleting, withFinalizers(), func(n *corev1.Namespace) {
			n.Finalizers = []string{"example.com/other"}
		}), nil, nothing},
		"a lifecycle held by others' metadata finalizers": {nil, aLifecycle(leaving, held(), func(r *v1alpha1.NamespaceLifecycle) {
			r.Finalizers = []string{"example.com/other"}
		}), nothing},

		"an administrator deleted the lifecycle of a live namespace": {namespace(closed), aLifecycle(leaving), releaseLifecycle},
		"a participant holds that lifecycle":                         {namespace(closed), aLifecycle(leaving, held("p.example.com")), nothing},
		"a lifecycle that is leaving opens nothing":                  {namespace(closed), aLifecycle(leaving, held("p.example.com")), nothing},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := next(state{namespace: test.namespace, lifecycle: test.lifecycle}); got != test.want {
				t.Errorf("next is %s, want %s", got, test.want)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	says := func(r report) namespaceOption {
		return func(n *corev1.Namespace) { r.apply(n, metav1.Now().Time) }
	}
	adopted := report{initializing: corev1.ConditionFalse, reason: v1alpha1.ReasonAdopted, message: "the namespace was already open when nsinit adopted it"}
	done := opened(aLifecycle())
	reportOn := func(reason, message string) *report {
		return &report{initializing: corev1.ConditionTrue, reason: reason, message: message}
	}
	byHand := func(message string) *report {
		return &report{initializing: corev1.ConditionFalse, reason: v1alpha1.ReasonOpenedByHand, message: message}
	}
	terminating := report{reason: v1alpha1.ReasonTerminating, message: "the namespace is being deleted"}
	waiting := report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonPending, message: "waiting"}
	failure := report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonFailed, message: "failed"}
	stalled := report{reason: v1alpha1.ReasonTerminating, message: "the namespace is being deleted", stalled: "p is slow"}
	stalledFailure := stalled
	stalledFailure.initializing = corev1.ConditionTrue
	stuck := func(r *v1alpha1.NamespaceLifecycle) {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCleanupTooLong, Message: "p is slow"})
	}
	finalized := func(r *v1alpha1.NamespaceLifecycle) { r.Finalizers = []string{"example.com/other"} }
	tests := map[string]struct {
		namespace *corev1.Namespace
		lifecycle *v1alpha1.NamespaceLifecycle
		want      *report
	}{
		"no lifecycle": {namespace(closed), nil, nil},
		"it waits":     {namespace(closed), aLifecycle(pending("a.example.com", "b.example.com")), reportOn(v1alpha1.ReasonPending, serverMessage)},
		"it failed": {namespace(closed), aLifecycle(pending("a.example.com"), failed),
			&report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonFailed, message: serverMessage, stalled: serverMessage}},
		"it waits for the former lifecycle": {namespace(closed), aLifecycle(former, leaving, held("p.example.com")),
			&report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonFormerIncarnation, message: `the former namespace of this name still has a NamespaceLifecycle, which waits for participants: "p.example.com"`}},
		"it waits for a former lifecycle that several hold": {namespace(closed), aLifecycle(former, leaving, held("p.example.com", "kubernetes", "q.example.com"), finalized),
			reportOn(v1alpha1.ReasonFormerIncarnation, `the former namespace of this name still has a NamespaceLifecycle, which waits for participants: "p.example.com", "q.example.com", "example.com/other"`)},
		"it is open, and there is a former lifecycle": {namespace(), aLifecycle(former, leaving, held("p.example.com")), nil},
		"its lifecycle was deleted": {namespace(closed), aLifecycle(leaving, held("p.example.com")),
			reportOn(v1alpha1.ReasonNoLifecycle, `the NamespaceLifecycle of the namespace was deleted, and is created again when these participants have released it: "p.example.com"`)},
		"it is open, and its lifecycle was deleted": {namespace(), aLifecycle(leaving, held("p.example.com")), nil},

		"it was open before":             {namespace(), aLifecycle(), &adopted},
		"it was open before and says so": {namespace(says(adopted)), aLifecycle(), &adopted},
		"it was opened":                  {namespace(says(done)), aLifecycle(), &done},
		"it was opened, and had a plan":  {namespace(), aLifecycle(participant), &done},
		"it was opened, and was stamped": {namespace(func(n *corev1.Namespace) { n.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: ""} }), aLifecycle(), &done},
		"it was opened by hand":          {namespace(opener("alice")), aLifecycle(participant, openedHand), byHand("alice did")},
		"it was opened by hand before it had a lifecycle": {namespace(opener("alice")), aLifecycle(),
			byHand(`user "alice" removed the label nsinit.dev/initializing before every initializer was done`)},
		"the annotation, and a plan that is done": {namespace(opener("nsinit")), aLifecycle(participant), &done},
		"a user opened it, and said adopted":      {namespace(says(adopted)), aLifecycle(participant), &done},
		"it is about to open":                     {namespace(closed), aLifecycle(), nil},

		"it is deleted":                      {namespace(deleting), aLifecycle(), nil},
		"it was ready, and is deleted":       {namespace(deleting, ready), aLifecycle(leaving), &terminating},
		"it was ready, and has no lifecycle": {namespace(deleting, ready), nil, &terminating},
		"it waited, and is deleted":          {namespace(deleting, closed, says(waiting)), aLifecycle(leaving), reportOn(v1alpha1.ReasonTerminating, "the namespace is being deleted")},
		"it failed, and is deleted":          {namespace(deleting, closed, says(failure)), aLifecycle(leaving), nil},
		"a user says that it failed and is ready": {namespace(deleting, ready, func(n *corev1.Namespace) {
			n.Status.Conditions[len(n.Status.Conditions)-1].Reason = v1alpha1.ReasonFailed
		}), aLifecycle(leaving), &terminating},
		"its finalizers were emptied":               {namespace(deleting, ready, withFinalizers()), nil, nil},
		"it is deleted, Kubernetes cleans up":       {namespace(deleting, secured), aLifecycle(leaving, held("p.example.com")), nil},
		"it is deleted, others hold it":             {namespace(deleting, withFinalizers("example.com/other")), aLifecycle(leaving, held("p.example.com")), nil},
		"it is deleted, a former lifecycle is held": {namespace(deleting, emptied), aLifecycle(former, leaving, held("p.example.com")), nil},
		"it is deleted, no participant is left":     {namespace(deleting, emptied), aLifecycle(leaving), nil},
		"it is deleted, a participant cleans up": {namespace(deleting, emptied), aLifecycle(leaving, held("p.example.com")),
			&report{reason: v1alpha1.ReasonTerminating, message: `the content of the namespace is deleted; waiting for participants to clean up: "p.example.com"`}},
		"it is deleted, a participant is stalled":            {namespace(deleting, secured), aLifecycle(leaving, held("p.example.com"), stuck), &stalled},
		"it failed and is deleted, a participant is stalled": {namespace(deleting, secured, says(failure)), aLifecycle(leaving, held("p.example.com"), stuck), &stalledFailure},
		"it is deleted, and a former participant is stalled": {namespace(deleting, secured), aLifecycle(former, leaving, held("p.example.com"), stuck), nil},
		"it waits for the former lifecycle, which is stalled": {namespace(closed), aLifecycle(former, leaving, held("p.example.com"), stuck),
			&report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonFormerIncarnation, stalled: "p is slow",
				message: `the former namespace of this name still has a NamespaceLifecycle, which waits for participants: "p.example.com"`}},
		"it is deleted, a participant holds the content": {namespace(deleting, kept, withFinalizers()), aLifecycle(holder, leaving, held("p.example.com", "q.example.com", "kubernetes")),
			&report{reason: v1alpha1.ReasonTerminating, message: `the namespace is being deleted, and its content is kept until these participants have cleaned up: "p.example.com"`}},
		"it is deleted, and the content is about to be released": {namespace(deleting, kept, withFinalizers()), aLifecycle(holder, leaving, held("q.example.com")), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := describe(state{namespace: test.namespace, lifecycle: test.lifecycle})
			switch {
			case (got == nil) != (test.want == nil):
				t.Errorf("got %+v, want %+v", got, test.want)
			case got != nil && *got != *test.want:
				t.Errorf("got %+v, want %+v", *got, *test.want)
			}
		})
	}
}

// TestApply: conditions say what a report says, once, and those of others are kept.
func TestApply(t *testing.T) {
	then, now := metav1.Unix(1767225600, 0), metav1.Unix(1767225660, 0)
	condition := func(kind corev1.NamespaceConditionType, status corev1.ConditionStatus, reason string, at metav1.Time) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{Type: kind, Status: status, Reason: reason, Message: "m", LastTransitionTime: at}
	}
	foreign := condition("Foreign", corev1.ConditionTrue, "R", then)
	ended := condition(v1alpha1.ConditionStalled, corev1.ConditionFalse, v1alpha1.ReasonTurnEnded, now)
	ended.Message = helper.TurnEnded
	tests := map[string]struct {
		before  []corev1.NamespaceCondition
		report  report
		want    []corev1.NamespaceCondition
		changed bool
	}{
		"nothing was said": {[]corev1.NamespaceCondition{foreign}, report{initializing: corev1.ConditionTrue, reason: "A", message: "m"},
			[]corev1.NamespaceCondition{foreign, condition("Initializing", "True", "A", now), condition("Ready", "False", "A", now)}, true},
		"the same was said": {[]corev1.NamespaceCondition{condition("Initializing", "True", "A", then), condition("Ready", "False", "A", then)}, report{initializing: corev1.ConditionTrue, reason: "A", message: "m"},
			[]corev1.NamespaceCondition{condition("Initializing", "True", "A", then), condition("Ready", "False", "A", then)}, false},
		"the reason is another": {[]corev1.NamespaceCondition{condition("Initializing", "True", "A", then), condition("Ready", "False", "A", then)}, report{initializing: corev1.ConditionTrue, reason: "B", message: "m"},
			[]corev1.NamespaceCondition{condition("Initializing", "True", "B", then), condition("Ready", "False", "B", then)}, true},
		"the status is another": {[]corev1.NamespaceCondition{condition("Initializing", "True", "A", then), condition("Ready", "False", "A", then)}, report{initializing: corev1.ConditionFalse, reason: "B", message: "m"},
			[]corev1.NamespaceCondition{condition("Initializing", "False", "B", now), condition("Ready", "True", "B", now)}, true},
		"another client changed one of them": {[]corev1.NamespaceCondition{condition("Initializing", "True", "A", then), condition("Ready", "True", "A", then)}, report{initializing: corev1.ConditionFalse, reason: "A", message: "m"},
			[]corev1.NamespaceCondition{condition("Initializing", "False", "A", now), condition("Ready", "True", "A", then)}, true},
		"only Ready is at stake": {[]corev1.NamespaceCondition{condition("Initializing", "True", "A", then), condition("Ready", "True", "A", then)}, report{reason: "B", message: "m"},
			[]corev1.NamespaceCondition{condition("Initializing", "True", "A", then), condition("Ready", "False", "B", now)}, true},
		"a turn is stalled": {nil, report{initializing: corev1.ConditionTrue, reason: "A", message: "m", stalled: "m"},
			[]corev1.NamespaceCondition{condition("Initializing", "True", "A", now), condition("Ready", "False", "A", now), condition("Stalled", "True", v1alpha1.ReasonTurnTooLong, now)}, true},
		"a participant is stalled": {nil, report{reason: v1alpha1.ReasonTerminating, message: "m", stalled: "m"},
			[]corev1.NamespaceCondition{condition("Ready", "False", v1alpha1.ReasonTerminating, now), condition("Stalled", "True", v1alpha1.ReasonCleanupTooLong, now)}, true},
		"a former participant is stalled": {nil, report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonFormerIncarnation, message: "m", stalled: "m"},
			[]corev1.NamespaceCondition{condition("Initializing", "True", v1alpha1.ReasonFormerIncarnation, now), condition("Ready", "False", v1alpha1.ReasonFormerIncarnation, now), condition("Stalled", "True", v1alpha1.ReasonCleanupTooLong, now)}, true},
		"the participant of a deleted lifecycle is stalled": {nil, report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonNoLifecycle, message: "m", stalled: "m"},
			[]corev1.NamespaceCondition{condition("Initializing", "True", v1alpha1.ReasonNoLifecycle, now), condition("Ready", "False", v1alpha1.ReasonNoLifecycle, now), condition("Stalled", "True", v1alpha1.ReasonCleanupTooLong, now)}, true},
		"the initialization failed": {[]corev1.NamespaceCondition{condition("Stalled", "True", v1alpha1.ReasonTurnTooLong, then)}, report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonFailed, message: "m", stalled: "m"},
			[]corev1.NamespaceCondition{condition("Stalled", "True", v1alpha1.ReasonFailed, then), condition("Initializing", "True", v1alpha1.ReasonFailed, now), condition("Ready", "False", v1alpha1.ReasonFailed, now)}, true},
		"it failed, and a participant cleans up": {[]corev1.NamespaceCondition{condition("Stalled", "True", v1alpha1.ReasonFailed, then)}, report{reason: "B", message: "m"},
			[]corev1.NamespaceCondition{condition("Stalled", "True", v1alpha1.ReasonFailed, then), condition("Ready", "False", "B", now)}, true},
		"it failed, and the next one succeeds": {[]corev1.NamespaceCondition{condition("Stalled", "True", v1alpha1.ReasonFailed, then)}, report{initializing: corev1.ConditionFalse, reason: "A", message: "m"},
			[]corev1.NamespaceCondition{ended, condition("Initializing", "False", "A", now), condition("Ready", "True", "A", now)}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := namespace()
			n.Status.Conditions = test.before
			if changed := test.report.apply(n, now.Time); changed != test.changed {
				t.Errorf("changed: %t, want %t", changed, test.changed)
			}
			if diff := cmp.Diff(test.want, n.Status.Conditions); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// DefaultPatience is how long something may take before it counts as stuck. The namespace
// controller tries again after a minute at the latest.
const DefaultPatience = time.Minute

// Clients are how the cluster is reached.
type Clients struct {
	Core     kubernetes.Interface
	Nsinit   versioned.Interface
	APIs     aggregator.Interface
	Metadata metadata.Interface
	// Discover returns the namespaced resources of every group, each in its preferred
	// version, as far as they could be discovered, and why the others could not.
	Discover func() ([]*metav1.APIResourceList, error)
}

// Diagnoser diagnoses namespaces.
type Diagnoser struct {
	Clients
	Clock clock.PassiveClock
	// Patience is how long something may take before it counts as stuck.
	Patience time.Duration
	// Progress, if it is not nil, is told how many of how many resources have been looked
	// at, one call at a time.
	Progress func(done, total int)
}

// examination is one diagnosis in the making.
type examination struct {
	Diagnoser
	*Diagnosis

	namespace *corev1.Namespace // nil if it is gone
	// broken are the group versions whose server does not answer.
	broken map[string]bool
	// nsinit says how nsinit's own API was found.
	nsinit presence
	// undeleted counts objects that could be deleted, and that nobody deletes.
	undeleted int
}

// Diagnose returns where a namespace stands. An error means that nobody can tell: there is no
// such namespace, nothing of one either, or it may not be read.
func (d Diagnoser) Diagnose(ctx context.Context, name string) (*Diagnosis, error) {
	e := &examination{Diagnoser: d, broken: map[string]bool{}, Diagnosis: &Diagnosis{
		TypeMeta:  metav1.TypeMeta{Kind: Kind, APIVersion: APIVersion},
		Namespace: name, Phase: Gone, Findings: []Finding{},
	}}
	namespace, err := d.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case utilapierrors.IsAbsent(err):
	case err != nil:
		return nil, err
	default:
		e.is(namespace)
	}
	e.examineAPIs(ctx)
	switch e.Phase {
	case Active:
		if e.examineOpened(ctx); len(e.Findings) == 0 {
			e.examineProtection(ctx, Healthy)
		}
	case Initializing:
		e.examineRecord(ctx)
		e.examineFailing()
	case Terminating:
		e.examineContent(ctx)
		e.examineRecord(ctx)
		e.examineFailing()
		e.examineFinalizers()
		e.examineController(ctx)
	case Gone:
		e.examineContent(ctx)
		e.examineRecord(ctx)
		if len(e.Findings) == 0 || e.worst() == Healthy {
			return nil, err
		}
	}
	slices.SortStableFunc(e.Findings, func(a, b Finding) int { return cmp.Compare(b.State.rank(), a.State.rank()) })
	e.State = e.worst()
	return e.Diagnosis, ctx.Err()
}

func (e *examination) is(namespace *corev1.Namespace) {
	e.namespace, e.UID, e.Conditions = namespace, namespace.UID, namespace.Status.Conditions
	e.Phase, e.Since = Active, &namespace.CreationTimestamp
	if helper.IsClosed(namespace) {
		e.Phase = Initializing
	}
	if namespace.DeletionTimestamp != nil {
		e.Phase, e.Since = Terminating, namespace.DeletionTimestamp
	}
}

func (e *examination) worst() State {
	worst := Healthy
	for _, finding := range e.Findings {
		if finding.State.rank() > worst.rank() {
			worst = finding.State
		}
	}
	return worst
}

func (e *examination) found(finding Finding) { e.Findings = append(e.Findings, finding) }

// has says whether one of some causes was found to need help.
func (e *examination) has(causes ...Cause) bool {
	return slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.State == Stuck && slices.Contains(causes, f.Cause) })
}

// notExamined notes what could not be looked at.
func (e *examination) notExamined(what string, err error) {
	e.NotExamined = append(e.NotExamined, fmt.Sprintf("%s: %v", what, err))
}

// since judges something by how long it has been so.
func (e *examination) since(began *metav1.Time) State {
	if began != nil && e.Clock.Since(began.Time) > e.Patience {
		return Stuck
	}
	return Waiting
}

// condition returns a condition of the namespace if it is True.
func (e *examination) condition(kind corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	for i := range e.Conditions {
		if e.Conditions[i].Type == kind && e.Conditions[i].Status == corev1.ConditionTrue {
			return &e.Conditions[i]
		}
	}
	return nil
}

// examineProtection says whether the namespace could be deleted, and how bad it is if not.
func (e *examination) examineProtection(ctx context.Context, state State) {
	err := e.Core.CoreV1().Namespaces().Delete(ctx, e.Namespace, metav1.DeleteOptions{
		DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &e.UID}})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return
	}
	refused := parseRefusal(err)
	if refused.kind == notAllowed {
		return // most users may not delete namespaces, and do not ask
	}
	e.found(Finding{Cause: DeletionProtected, State: state, Message: "a deletion of the namespace would be refused: " + refused.message,
		Remedies: []Remedy{{Description: "if it is to be deleted, do what the refusal asks for"}}})
}

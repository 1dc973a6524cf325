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
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// DefaultPatience is how long something may take before it counts as stuck. The namespace
// controller tries again after a minute at the latest.
const DefaultPatience = time.Minute

// Clients are the clients of the cluster. ObserveInstallation needs the first three.
type Clients struct {
	Core     kubernetes.Interface
	Nsinit   versioned.Interface
	APIs     aggregator.Interface
	Metadata metadata.Interface
	// Discover returns the resources of every group, each in its preferred version, as far as they could be discovered,
	// and why the others could not.
	Discover func() ([]*metav1.APIResourceList, error)
}

// NewClients returns clients that discover resources with core.
func NewClients(core kubernetes.Interface, nsinit versioned.Interface, apis aggregator.Interface, metadata metadata.Interface) Clients {
	return Clients{Core: core, Nsinit: nsinit, APIs: apis, Metadata: metadata, Discover: func() ([]*metav1.APIResourceList, error) {
		return discovery.ServerPreferredResources(core.Discovery())
	}}
}

// Namespace reads a namespace. A user who may not get it, such as its creator while it is being initialized, gets what the
// AccessibleNamespace shows. If that cannot be read, the error is why.
func (c Clients) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	found := c.readNamespace(ctx, name)
	if found.Object != nil {
		return found.Object, nil
	}
	return nil, found.Err
}

// readNamespace is Namespace that also returns why the user may not get the namespace.
func (c Clients) readNamespace(ctx context.Context, name string) Answer[*corev1.Namespace] {
	found := answer(c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}))
	if apierrors.IsForbidden(found.Err) {
		accessible, err := c.Nsinit.NsinitV1alpha1().AccessibleNamespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			found.Object = utilnamespaces.FromAccessible(accessible)
		case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			found.Err = fmt.Errorf("%w (%w)", err, found.Err)
		}
	}
	return found
}

// Diagnoser diagnoses namespaces.
type Diagnoser struct {
	Clients
	Clock clock.PassiveClock
	// Patience is how long something may take before it counts as stuck.
	Patience time.Duration
	// Progress, if it is not nil, gets how many of how many resources have been listed. Calls do
	// not overlap.
	Progress func(done, total int)
	// Diagnosed, if it is not nil, gets how many of how many namespaces DiagnoseAll has diagnosed.
	Diagnosed func(done, total int)

	// ifDeleted makes observations those of a namespace that has just been deleted.
	ifDeleted bool
}

// Diagnose returns the state of a namespace. The error is NotFound if neither the namespace nor content of it nor a
// NamespaceLifecycle of its name exists, whatever else cannot be read; another error means that the namespace cannot be read.
func (d Diagnoser) Diagnose(ctx context.Context, name string) (*Diagnosis, error) {
	diagnosis, _, err := d.diagnose(ctx, name)
	return diagnosis, err
}

// diagnose is Diagnose that also returns why findings may be missing.
func (d Diagnoser) diagnose(ctx context.Context, name string) (*Diagnosis, []error, error) {
	bounded, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	diagnosis, unread, err := d.newRound(bounded, name, everything).diagnose(bounded, name)
	return diagnosis, unread, cmp.Or(err, ctx.Err())
}

// diagnose diagnoses a namespace or, for clusterWide, what concerns all of them. It also returns why findings may be missing.
func (r *round) diagnose(ctx context.Context, name string) (*Diagnosis, []error, error) {
	if name == clusterWide {
		diagnosis, unread := r.diagnoseCluster(ctx)
		return diagnosis, unread, nil
	}
	o, err := r.observe(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	diagnosis := o.report()
	_, unread := o.unexamined()
	if o.phase() == Gone && (r.ifDeleted || diagnosis.State == Healthy || len(o.remaining()) == 0 && o.Lifecycle.Object == nil) {
		return nil, unread, o.Namespace.Err
	}
	return diagnosis, unread, nil
}

// DiagnoseDeletion returns what would block or delay a deletion of a namespace: Stuck findings block it until a user acts,
// and Waiting ones delay it. If the namespace is being deleted, the result is that of Diagnose. The error is NotFound if
// the namespace does not exist.
//
// The rules judge the observation as if the namespace had just been deleted. Dry-run deletions of its objects, and of the
// namespace itself, show what admission refuses. PodDisruptionBudgets do not matter: they limit evictions, and the
// namespace controller deletes pods.
func (d Diagnoser) DiagnoseDeletion(ctx context.Context, name string) (*Diagnosis, error) {
	d.ifDeleted = true
	return d.Diagnose(ctx, name)
}

// deleted returns the observation as it would be directly after a deletion of the namespace. Objects without finalizers
// would be removed, so they stay as they are.
func (o Observation) deleted() Observation {
	o.actual, o.hypothetical = o.phase(), true
	now := metav1.NewTime(o.Time)
	o.Namespace.Object = o.Namespace.Object.DeepCopy()
	o.Namespace.Object.DeletionTimestamp = &now
	if lifecycle := o.Lifecycle.Object; lifecycle != nil && lifecycle.DeletionTimestamp == nil {
		lifecycle = lifecycle.DeepCopy()
		lifecycle.DeletionTimestamp = &now
		o.Lifecycle.Object = lifecycle
	}
	for i := range o.Content {
		for _, object := range o.Content[i].Objects {
			if object.DeletionTimestamp == nil && len(object.Finalizers) > 0 {
				object.DeletionTimestamp = &now
			}
		}
	}
	return o
}

// longGracePeriods reports pods of a namespace that is not deleted yet which may take longer than a deletion usually does.
func longGracePeriods(o Observation) []Finding {
	if !o.hypothetical {
		return nil
	}
	var pods []string
	longest := time.Duration(0)
	for i := range o.Pods.Object {
		if pod := &o.Pods.Object[i]; pod.DeletionTimestamp == nil && pod.Spec.TerminationGracePeriodSeconds != nil {
			if period := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second; period > o.Patience {
				pods, longest = append(pods, "pods/"+pod.Name), max(longest, period)
			}
		}
	}
	if len(pods) == 0 {
		return nil
	}
	return []Finding{o.finding(GracePeriod, Waiting, nil, fmt.Sprintf("%s: may take up to %s to end", listed(pods), longest), words{"PODS": pods})}
}

// yet is the end of a sentence about what a controller has to remove.
func (o Observation) yet(subject string) string {
	if o.hypothetical {
		return subject + " would have to remove"
	}
	return subject + " has not removed yet"
}

// report returns the diagnosis of an observation.
func (o Observation) report() *Diagnosis {
	findings := judge(o, rules()...)
	notExamined, _ := o.unexamined()
	diagnosis := &Diagnosis{
		TypeMeta: metav1.TypeMeta{Kind: Kind, APIVersion: APIVersion}, Namespace: o.Name, Phase: o.phase(), Since: o.since(),
		IfDeleted: o.hypothetical, State: worst(findings), Findings: findings, NotExamined: notExamined,
	}
	if o.Namespace.Object != nil {
		diagnosis.UID = o.Namespace.Object.UID
	}
	if o.hypothetical {
		diagnosis.Phase, diagnosis.Since = o.actual, &o.Namespace.Object.CreationTimestamp
		return diagnosis
	}
	diagnosis.Remaining, diagnosis.Conditions = o.remaining(), o.conditions()
	for _, fix := range fixesOf(findings) {
		if !slices.Contains(diagnosis.Fixable, fix.Cause) {
			diagnosis.Fixable = append(diagnosis.Fixable, fix.Cause)
		}
	}
	return diagnosis
}

// rule returns the findings about one aspect of an observation.
type rule func(Observation) []Finding

// judge returns the findings of rules, the most urgent first. The order of the rules does not matter.
func judge(o Observation, rules ...rule) []Finding {
	findings := []Finding{}
	for _, rule := range rules {
		findings = append(findings, rule(o)...)
	}
	sortFindings(findings)
	return findings
}

// sortFindings sorts findings, the most urgent first.
func sortFindings(findings []Finding) {
	table := causes()
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.State.rank(), a.State.rank()), cmp.Compare(indexOf(table, a.Cause), indexOf(table, b.Cause)), strings.Compare(a.Message, b.Message))
	})
}

// worst returns the most urgent state of findings.
func worst(findings []Finding) State {
	state := Healthy
	for _, finding := range findings {
		state = state.worse(finding.State)
	}
	return state
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package helper reads facts from NamespaceLifecycles and their namespaces. Decisions depend on the spec, and on the start of turns,
// which only the server writes. The rest of the status is for people.
package helper

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/order"
)

// TurnEnded is the message of the condition Stalled once it is False.
const TurnEnded = "no initializer or participant is stalled any more"

// ValidateInitializerName returns the problems of the name of an initializer. The name must be
// fully qualified: a domain name of three or more parts, such as alwayspullimages.kubernetes.io,
// or a name prefixed with a domain, such as openshift.com/origin.
func ValidateInitializerName(name string) []string {
	if strings.Contains(name, "/") {
		return validation.IsQualifiedName(name)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return problems
	}
	if len(strings.Split(name, ".")) < 3 {
		return []string{"must be fully qualified: a domain name of three or more parts such as policy.example.com, or a name prefixed with a domain such as example.com/policy"}
	}
	return nil
}

// IsClosed returns whether the gate of a namespace is closed.
func IsClosed(namespace *corev1.Namespace) bool {
	_, closed := namespace.Labels[v1alpha1.LabelInitializing]
	return closed
}

// Creator returns the user for whom a namespace was created, which is the user who created it unless that user named another one. It is
// "" if the creator was not recorded.
func Creator(namespace metav1.Object) string {
	annotations := namespace.GetAnnotations()
	if name := annotations[v1alpha1.AnnotationOnBehalfOf]; name != "" && annotations[v1alpha1.AnnotationCreatedBy] != "" {
		return name
	}
	return annotations[v1alpha1.AnnotationCreatedBy]
}

// Pending returns the names of the initializers that have not acted, in the order of their turns.
func Pending(lifecycle *v1alpha1.NamespaceLifecycle) []string {
	if lifecycle.Spec.Initializers == nil {
		return nil
	}
	names := make([]string, 0, len(lifecycle.Spec.Initializers.Pending))
	for _, entry := range lifecycle.Spec.Initializers.Pending {
		names = append(names, entry.Name)
	}
	return names
}

// RemovePending removes an initializer from the ones that have not acted, if there are any.
func RemovePending(lifecycle *v1alpha1.NamespaceLifecycle, name string) {
	initializers := lifecycle.Spec.Initializers
	if initializers == nil {
		return
	}
	initializers.Pending = slices.DeleteFunc(initializers.Pending, func(p v1alpha1.NamespaceInitializer) bool { return p.Name == name })
}

// Acting returns the names of the initializers that may act: the current ones, unless the initialization has failed or
// the NamespaceLifecycle is being deleted. The server reports them in status.currentInitializers.
func Acting(lifecycle *v1alpha1.NamespaceLifecycle) []string {
	if lifecycle.DeletionTimestamp != nil || Failure(lifecycle) != nil {
		return nil
	}
	return CurrentInitializers(lifecycle)
}

// IsActing returns whether an initializer may act.
func IsActing(lifecycle *v1alpha1.NamespaceLifecycle, name string) bool {
	return slices.Contains(Acting(lifecycle), name)
}

// Stall returns the condition Stalled if it is True because a turn or a cleanup lasts too long, or nil.
func Stall(lifecycle *v1alpha1.NamespaceLifecycle) *metav1.Condition {
	condition := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionStalled)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason == v1alpha1.ReasonFailed {
		return nil
	}
	return condition
}

// IsStalled returns whether the turn of an initializer, or the cleanup of a participant, lasts longer than usual.
func IsStalled(lifecycle *v1alpha1.NamespaceLifecycle, name string) bool {
	entry := Entry(lifecycle, name)
	return entry != nil && entry.StalledTime != nil
}

// TurnStart returns when the turn of an initializer began, or nil.
func TurnStart(lifecycle *v1alpha1.NamespaceLifecycle, name string) *metav1.MicroTime {
	if entry := Entry(lifecycle, name); entry != nil {
		return entry.StartTime
	}
	return nil
}

// WaitsFor returns the names of the pending predecessors of an initializer, in the order of the plan.
func WaitsFor(lifecycle *v1alpha1.NamespaceLifecycle, name string) []string {
	pending := Pending(lifecycle)
	return slices.DeleteFunc(Predecessors(lifecycle, name), func(p string) bool { return !slices.Contains(pending, p) })
}

// PendingOfObject returns the names of the initializers that a pod, or the metadata of a Job, waits for, in their order.
func PendingOfObject(object metav1.Object) (names []string) {
	if pod, ok := object.(*corev1.Pod); ok {
		for _, gate := range pod.Spec.SchedulingGates {
			if name, found := strings.CutPrefix(gate.Name, v1alpha1.PendingPrefix); found {
				names = append(names, name)
			}
		}
		return names
	}
	position := func(name string) int {
		number, _ := strconv.Atoi(object.GetLabels()[v1alpha1.PendingPrefix+name])
		return number
	}
	for key := range object.GetLabels() {
		if name, found := strings.CutPrefix(key, v1alpha1.PendingPrefix); found {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(position(a), position(b)), cmp.Compare(a, b)) })
	return names
}

// Failure returns the result that ended the initialization, or nil.
func Failure(lifecycle *v1alpha1.NamespaceLifecycle) *metav1.Status {
	initializers := lifecycle.Spec.Initializers
	if initializers == nil || initializers.Result == nil || initializers.Result.Status != metav1.StatusFailure || len(initializers.Pending) == 0 {
		return nil
	}
	return initializers.Result
}

// CurrentInitializers returns the names of the initializers that have their turn, in the order of the plan. Whether the
// initialization has failed does not matter.
func CurrentInitializers(lifecycle *v1alpha1.NamespaceLifecycle) []string {
	return order.Current(planOrder(lifecycle), Pending(lifecycle))
}

// Predecessors returns the names of the initializers of the plan that must finish before one acts.
func Predecessors(lifecycle *v1alpha1.NamespaceLifecycle, name string) []string {
	return order.Predecessors(planOrder(lifecycle), name)
}

func planOrder(lifecycle *v1alpha1.NamespaceLifecycle) []order.Entry {
	entries := make([]order.Entry, 0, len(lifecycle.Spec.Plan))
	for i := range lifecycle.Spec.Plan {
		entries = append(entries, OrderOf(&lifecycle.Spec.Plan[i].RegisteredInitializer))
	}
	return entries
}

// OrderOf returns the place of an initializer in the order of a plan.
func OrderOf(initializer *v1alpha1.RegisteredInitializer) order.Entry {
	entry := order.Entry{Name: initializer.Name, First: initializer.Name == v1alpha1.InitializerLifecycle}
	if initializer.Ordering != nil {
		entry.Ordered, entry.After = true, initializer.Ordering.After
	}
	return entry
}

// FailedInitializer returns the name of the initializer that ended the initialization, or "".
func FailedInitializer(lifecycle *v1alpha1.NamespaceLifecycle) string {
	if Failure(lifecycle) == nil {
		return ""
	}
	return lifecycle.Spec.Initializers.FailedInitializer
}

// Planned returns the plan's entry of an initializer, or nil.
func Planned(lifecycle *v1alpha1.NamespaceLifecycle, name string) *v1alpha1.PlannedInitializer {
	i := slices.IndexFunc(lifecycle.Spec.Plan, func(p v1alpha1.PlannedInitializer) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &lifecycle.Spec.Plan[i]
}

// Entry returns the status of an initializer, or nil.
func Entry(lifecycle *v1alpha1.NamespaceLifecycle, name string) *v1alpha1.InitializerStatus {
	i := slices.IndexFunc(lifecycle.Status.Initializers, func(s v1alpha1.InitializerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &lifecycle.Status.Initializers[i]
}

// Participants returns the names of the participants that have not cleaned up.
func Participants(lifecycle *v1alpha1.NamespaceLifecycle) []string {
	var names []string
	for _, finalizer := range lifecycle.Spec.Finalizers {
		if finalizer != v1alpha1.FinalizerKubernetes {
			names = append(names, string(finalizer))
		}
	}
	return names
}

// ContentHolders returns the names of the participants that hold the content of the namespace and have not cleaned up.
func ContentHolders(lifecycle *v1alpha1.NamespaceLifecycle) []string {
	return slices.DeleteFunc(Participants(lifecycle), func(name string) bool {
		planned := Planned(lifecycle, name)
		return planned == nil || !HoldsContent(planned)
	})
}

// HoldsContent says whether a planned initializer holds the content of the namespace until it has cleaned up.
func HoldsContent(planned *v1alpha1.PlannedInitializer) bool {
	return planned.Finalizer && planned.Holds != nil && *planned.Holds == v1alpha1.HoldContent
}

// Message returns the sentence with which the server describes the state of the initialization.
func Message(lifecycle *v1alpha1.NamespaceLifecycle) string {
	if condition := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionInitializing); condition != nil {
		return condition.Message
	}
	return ""
}

// IsInPlans reports whether an initializer of a configuration is in plans: its activation is Always, or a program has
// reported that it serves it.
func IsInPlans(configuration *v1alpha1.NamespaceInitializerConfiguration, initializer *v1alpha1.RegisteredInitializer) bool {
	if initializer.Activation == nil || *initializer.Activation != v1alpha1.ActivationWhenServed {
		return true
	}
	status := RegistrationStatus(configuration, initializer.Name)
	return status != nil && status.ReportTime != nil
}

// RegistrationStatus returns the status of an initializer of a configuration, or nil.
func RegistrationStatus(configuration *v1alpha1.NamespaceInitializerConfiguration, name string) *v1alpha1.RegisteredInitializerStatus {
	return ReportOf(configuration.Status.Initializers, name)
}

// ReportOf returns the entry of status.initializers of a configuration with a name, or nil.
func ReportOf(entries []v1alpha1.RegisteredInitializerStatus, name string) *v1alpha1.RegisteredInitializerStatus {
	i := slices.IndexFunc(entries, func(s v1alpha1.RegisteredInitializerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &entries[i]
}

// Registration returns the configuration that registers an initializer, with its status there, whose ReportTime is nil if no program
// has reported that it serves the initializer. If several configurations do, or did when a namespace was planned, the one with the last
// report counts. The status is nil if none does.
func Registration(configurations []v1alpha1.NamespaceInitializerConfiguration, name string) (configuration string, last *v1alpha1.RegisteredInitializerStatus) {
	for i := range configurations {
		c := &configurations[i]
		registers := slices.ContainsFunc(c.Initializers, func(initializer v1alpha1.RegisteredInitializer) bool { return initializer.Name == name })
		if status := later(last, registers, c.Status.Initializers, name); status != last {
			configuration, last = c.Name, status
		}
	}
	return configuration, last
}

// ObjectRegistration is Registration for initializers of pods and Jobs.
func ObjectRegistration(configurations []v1alpha1.InitializerConfiguration, name string) (configuration string, last *v1alpha1.RegisteredInitializerStatus) {
	for i := range configurations {
		c := &configurations[i]
		registers := slices.ContainsFunc(c.Initializers, func(initializer v1alpha1.Initializer) bool { return initializer.Name == name })
		if status := later(last, registers, c.Status.Initializers, name); status != last {
			configuration, last = c.Name, status
		}
	}
	return configuration, last
}

// later returns the status of an initializer in a configuration that registers it if last is nil or has an earlier report. Otherwise, it
// returns last.
func later(last *v1alpha1.RegisteredInitializerStatus, registers bool, entries []v1alpha1.RegisteredInitializerStatus, name string) *v1alpha1.RegisteredInitializerStatus {
	if !registers {
		return last
	}
	status := ReportOf(entries, name)
	if status == nil {
		status = &v1alpha1.RegisteredInitializerStatus{Name: name}
	}
	if last == nil || status.ReportTime != nil && (last.ReportTime == nil || last.ReportTime.Before(status.ReportTime)) {
		return status
	}
	return last
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// ReportedObject is an object of a kind that registers initializers.
type ReportedObject interface {
	Object
	nsinit.Reported
}

// Reports returns the endpoint status of a kind that registers initializers. A program reports here that it serves an initializer,
// and nsinit-controller-manager writes everything else. An entry that the client does not send is kept, so
// a JSON merge patch with one entry, which replaces the list, does not remove the reports of others. statusOf returns the status.
func Reports[T ReportedObject](checker *authorization.Checker, clock clock.PassiveClock, statusOf func(T) any) Endpoint[T] {
	return Endpoint[T]{
		Owns: []string{"status"},
		Entries: func(c T) (entries, registered []string) {
			for _, entry := range *c.Reports() {
				entries = append(entries, entry.Name)
			}
			return entries, c.InitializerNames()
		},
		Prepare: func(ctx context.Context, updated, old T) {
			mergeReports(updated, old, metav1.NewMicroTime(clock.Now()), UserOf(ctx))
		},
		Authorize: authorizeReports(checker, statusOf),
	}
}

// ReportOf returns the entry of status.initializers with a name, or nil.
func ReportOf(object nsinit.Reported, name string) *v1alpha1.RegisteredInitializerStatus {
	return helper.ReportOf(*object.Reports(), name)
}

// mergeReports sets the entries of the registered initializers, in the order of their registration. An
// entry whose reportTime the client changed is a report. It sets the time of the server, the reporter
// and the condition Served, and changes nothing else in the entry.
func mergeReports(updated, old ReportedObject, now metav1.MicroTime, user string) {
	var entries []v1alpha1.RegisteredInitializerStatus
	for _, name := range updated.InitializerNames() {
		sent, stored := ReportOf(updated, name), ReportOf(old, name)
		entry := v1alpha1.RegisteredInitializerStatus{Name: name}
		if stored != nil {
			entry = *stored.DeepCopy()
		}
		switch {
		case sent == nil:
		case sent.ReportTime != nil && !sent.ReportTime.Equal(entry.ReportTime):
			entry.ReportTime, entry.Reporter = &now, user
			meta.SetStatusCondition(&entry.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionServed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReported,
				Message: "a program reports that it serves the initializer", LastTransitionTime: metav1.NewTime(now.Time),
				ObservedGeneration: updated.GetGeneration(),
			})
		case sent.Conditions != nil:
			entry.Conditions = sent.Conditions
		}
		if entry.ReportTime != nil || len(entry.Conditions) > 0 {
			entries = append(entries, entry)
		}
	}
	*updated.Reports() = entries
}

// DropUnregistered drops the entries of initializers that are no longer registered. An initializer
// that is registered again later starts anew.
func DropUnregistered(updated nsinit.Reported) {
	entries := updated.Reports()
	*entries = slices.DeleteFunc(slices.Clone(*entries), func(entry v1alpha1.RegisteredInitializerStatus) bool {
		return !slices.Contains(updated.InitializerNames(), entry.Name)
	})
}

// Reporters returns the part of the reporters, which only the server writes.
func Reporters[T ReportedObject]() Part[T] {
	return Part[T]{Name: "status.initializers.*.reporter", Copy: func(to, from T) {
		for i := range *to.Reports() {
			entry := &(*to.Reports())[i]
			entry.Reporter = ""
			if stored := ReportOf(from, entry.Name); stored != nil {
				entry.Reporter = stored.Reporter
			}
		}
	}}
}

// authorizeReports returns the authorization of the endpoint status: a user reports for the initializers
// that it may act as, and only users with the verb open write the other fields.
func authorizeReports[T ReportedObject](checker *authorization.Checker, statusOf func(T) any) func(ctx context.Context, updated, old T) error {
	return func(ctx context.Context, updated, old T) error {
		others := updated.DeepCopyObject().(T)
		entries := others.Reports()
		for i := range *entries {
			entry, stored := &(*entries)[i], ReportOf(old, (*entries)[i].Name)
			if stored == nil {
				stored = &v1alpha1.RegisteredInitializerStatus{Name: entry.Name}
			}
			if entry.ReportTime.Equal(stored.ReportTime) {
				continue
			}
			if err := checker.MayReport(ctx, entry.Name); err != nil {
				return fmt.Errorf("status.initializers: cannot report that %q is served: %w", entry.Name, err)
			}
			*entry = *stored
		}
		*entries = slices.DeleteFunc(*entries, func(entry v1alpha1.RegisteredInitializerStatus) bool {
			return entry.ReportTime == nil && len(entry.Conditions) == 0
		})
		if !equality.Semantic.DeepEqual(statusOf(others), statusOf(old)) {
			if err := checker.MayOpen(ctx, ""); err != nil {
				return fmt.Errorf("status: only reportTime of the own entry of status.initializers can be changed: %w", err)
			}
		}
		return nil
	}
}

// Served returns how many initializers are served, of how many.
func Served(object nsinit.Reported) string {
	count, names := 0, object.InitializerNames()
	for _, name := range names {
		if entry := ReportOf(object, name); entry != nil && meta.IsStatusConditionTrue(entry.Conditions, v1alpha1.ConditionServed) {
			count++
		}
	}
	return fmt.Sprintf("%d/%d", count, len(names))
}

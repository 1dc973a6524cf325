/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// status returns the endpoint status. A program reports here that it serves an initializer, and
// nsinit-controller-manager writes everything else. An entry that the client does not send is kept, so
// a JSON merge patch with one entry, which replaces the list, does not remove the reports of others.
func status(checker *authorization.Checker, clock clock.PassiveClock) generic.Endpoint[configuration] {
	return generic.Endpoint[configuration]{
		Owns: []string{"status"},
		Entries: func(c configuration) (entries, registered []string) {
			for _, entry := range c.Status.Initializers {
				entries = append(entries, entry.Name)
			}
			for _, initializer := range c.Initializers {
				registered = append(registered, initializer.Name)
			}
			return entries, registered
		},
		Prepare: func(ctx context.Context, updated, old configuration) {
			mergeEntries(updated, old, metav1.NewMicroTime(clock.Now()), generic.UserOf(ctx))
		},
		Authorize: authorizeStatus(checker),
	}
}

// mergeEntries sets the entries of the registered initializers, in the order of their registration. An
// entry whose reportTime the client changed is a report. It sets the time of the server, the reporter
// and the condition Served, and changes nothing else in the entry.
func mergeEntries(updated, old configuration, now metav1.MicroTime, user string) {
	var entries []v1alpha1.RegisteredInitializerStatus
	for _, initializer := range updated.Initializers {
		sent, stored := updated.RegistrationStatus(initializer.Name), old.RegistrationStatus(initializer.Name)
		entry := v1alpha1.RegisteredInitializerStatus{Name: initializer.Name}
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
				ObservedGeneration: updated.Generation,
			})
		case sent.Conditions != nil:
			entry.Conditions = sent.Conditions
		}
		if entry.ReportTime != nil || len(entry.Conditions) > 0 {
			entries = append(entries, entry)
		}
	}
	updated.Status.Initializers = entries
}

// dropUnregistered drops the entries of initializers that are no longer registered. An initializer
// that is registered again later starts anew.
func dropUnregistered(updated configuration) {
	updated.Status.Initializers = slices.DeleteFunc(slices.Clone(updated.Status.Initializers), func(entry v1alpha1.RegisteredInitializerStatus) bool {
		return !slices.ContainsFunc(updated.Initializers, func(i v1alpha1.RegisteredInitializer) bool { return i.Name == entry.Name })
	})
}

// copyReporters copies the reporter of each entry of one configuration to that of the same name.
func copyReporters(to, from configuration) {
	for i := range to.Status.Initializers {
		entry := &to.Status.Initializers[i]
		entry.Reporter = ""
		if stored := from.RegistrationStatus(entry.Name); stored != nil {
			entry.Reporter = stored.Reporter
		}
	}
}

// authorizeStatus returns the authorization of the endpoint status: a user reports for the initializers
// that it may act as, and only users with the verb open write the other fields.
func authorizeStatus(checker *authorization.Checker) func(ctx context.Context, updated, old configuration) error {
	return func(ctx context.Context, updated, old configuration) error {
		others := updated.DeepCopy().Status
		for i := range others.Initializers {
			entry, stored := &others.Initializers[i], old.RegistrationStatus(others.Initializers[i].Name)
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
		others.Initializers = slices.DeleteFunc(others.Initializers, func(entry v1alpha1.RegisteredInitializerStatus) bool {
			return entry.ReportTime == nil && len(entry.Conditions) == 0
		})
		if !equality.Semantic.DeepEqual(others, old.Status) {
			if err := checker.MayOpen(ctx, ""); err != nil {
				return fmt.Errorf("status: only reportTime of the own entry of status.initializers can be changed: %w", err)
			}
		}
		return nil
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/helper"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

func newTable(clock clock.PassiveClock) *generic.Table[*nsinit.NamespaceLifecycle] {
	return &generic.Table[*nsinit.NamespaceLifecycle]{
		Clock: clock,
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the namespace."},
			{Name: "Phase", Type: "string", Description: "Initializing, Active or Terminating, or Failed where an initializer failed."},
			{Name: "Waiting For", Type: "string", Description: "The initializer whose turn it is, or the participant that has to clean up, and the number of those after it."},
			{Name: "Since", Type: "string", Description: "How long its turn has lasted."},
			{Name: "Age", Type: "string", Description: "How long ago the NamespaceLifecycle was created."},
			{Name: "Message", Type: "string", Priority: 1, Description: "What it last reported."},
			{Name: "Namespace UID", Type: "string", Priority: 1, Description: "The UID of the namespace."},
		},
		Cells: func(record *nsinit.NamespaceLifecycle, now time.Time) []any {
			waiting, since, message := waitingFor(record, now)
			return []any{record.Name, phase(record), waiting, since,
				generic.Since(record.CreationTimestamp.Time, now), message, string(record.Spec.NamespaceUID)}
		},
	}
}

func phase(record *nsinit.NamespaceLifecycle) string {
	if record.DeletionTimestamp == nil && helper.Failure(record) != nil {
		return "Failed"
	}
	return string(record.Status.Phase)
}

// waitingFor returns the initializer or participant that has to act, since when, and what it last reported.
func waitingFor(record *nsinit.NamespaceLifecycle, now time.Time) (who, since, message string) {
	if record.DeletionTimestamp != nil {
		var participants []string
		for _, finalizer := range record.Spec.Finalizers {
			participants = append(participants, string(finalizer))
		}
		return orNone(first(participants)), generic.Since(record.DeletionTimestamp.Time, now), "<none>"
	}
	var pending []string
	for _, entry := range helper.Pending(record) {
		pending = append(pending, entry.Name)
	}
	if len(pending) == 0 {
		return "<none>", "<none>", "<none>"
	}
	since = "<unknown>"
	if entry := helper.Entry(record, pending[0]); entry != nil {
		if entry.StartTime != nil {
			since = generic.Since(entry.StartTime.Time, now)
		}
		message = printable.Line(entry.Message)
	}
	return first(pending), since, orNone(message)
}

// first shortens a list to its head and the number of the others.
func first(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return fmt.Sprintf("%s (+%d)", names[0], len(names)-1)
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/helper"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

func newTable() *generic.Table[*nsinit.NamespaceLifecycle] {
	return &generic.Table[*nsinit.NamespaceLifecycle]{
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the namespace."},
			{Name: "Phase", Type: "string", Description: "Initializing, Active or Terminating, or Failed where an initializer failed."},
			{Name: "Waiting For", Type: "string", Description: "The initializer whose turn it is, or the participant that has to clean up, and the number of those after it."},
			{Name: "Since", Type: "string", Description: "How long its turn has lasted."},
			{Name: "Age", Type: "string", Description: "How long ago the NamespaceLifecycle was created."},
			{Name: "Message", Type: "string", Priority: 1, Description: "What it last reported."},
			{Name: "Namespace UID", Type: "string", Priority: 1, Description: "The UID of the namespace."},
		},
		Cells: func(lifecycle *nsinit.NamespaceLifecycle, age string) []any {
			waiting, since, message := waitingFor(lifecycle)
			return []any{lifecycle.Name, phase(lifecycle), waiting, since,
				age, message, string(lifecycle.Spec.NamespaceUID)}
		},
	}
}

func phase(lifecycle *nsinit.NamespaceLifecycle) string {
	if lifecycle.DeletionTimestamp == nil && helper.Failure(lifecycle) != nil {
		return "Failed"
	}
	return string(lifecycle.Status.Phase)
}

// waitingFor returns the initializer or participant that has to act, since when, and what it last reported.
func waitingFor(lifecycle *nsinit.NamespaceLifecycle) (who, since, message string) {
	if lifecycle.DeletionTimestamp != nil {
		var participants []string
		for _, finalizer := range lifecycle.Spec.Finalizers {
			participants = append(participants, string(finalizer))
		}
		return cmp.Or(first(participants), "<none>"), table.ConvertToHumanReadableDateType(*lifecycle.DeletionTimestamp), "<none>"
	}
	pending := helper.Pending(lifecycle)
	if len(pending) == 0 {
		return "<none>", "<none>", "<none>"
	}
	since = "<unknown>"
	if entry := helper.Entry(lifecycle, pending[0]); entry != nil {
		if entry.StartTime != nil {
			since = table.ConvertToHumanReadableDateType(metav1.Time(*entry.StartTime))
		}
		message = printable.Line(entry.Message)
	}
	return first(pending), since, cmp.Or(message, "<none>")
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

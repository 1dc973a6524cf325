/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

func newTable() *generic.Table[*nsinit.NamespaceLifecycle] {
	return &generic.Table[*nsinit.NamespaceLifecycle]{
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the namespace."},
			{Name: "Phase", Type: "string", Description: "Initializing, Active or Terminating, or Failed where an initializer failed."},
			{Name: "Waiting For", Type: "string", Description: "The initializers that have their turn, or the participants that have to clean up, and the number of the others."},
			{Name: "Since", Type: "string", Description: "How long the oldest turn, or the deletion, has lasted."},
			{Name: "Age", Type: "string", Description: "How long ago the NamespaceLifecycle was created."},
			{Name: "Message", Type: "string", Priority: 1, Description: "What they last reported."},
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
	if lifecycle.DeletionTimestamp == nil && lifecycle.Failure() != nil {
		return "Failed"
	}
	return string(lifecycle.Status.Phase)
}

// waitingFor returns the initializers or the participants that have to act, since when, and what they last reported.
func waitingFor(lifecycle *nsinit.NamespaceLifecycle) (who, since, message string) {
	if lifecycle.DeletionTimestamp != nil {
		participants, finalizers := lifecycle.Participants(), []string{}
		for _, finalizer := range lifecycle.Spec.Finalizers {
			finalizers = append(finalizers, string(finalizer))
		}
		_, message = reported(lifecycle, participants)
		return cmp.Or(abbreviate(finalizers, max(1, min(maxShown, len(participants)))), "<none>"),
			table.ConvertToHumanReadableDateType(*lifecycle.DeletionTimestamp), cmp.Or(message, "<none>")
	}
	pending, acting := lifecycle.Pending(), lifecycle.CurrentInitializers()
	if len(pending) == 0 {
		return "<none>", "<none>", "<none>"
	}
	if failed := lifecycle.FailedInitializer(); failed != "" {
		acting = []string{failed}
	}
	since, message = reported(lifecycle, acting)
	waiting := slices.DeleteFunc(pending, func(name string) bool { return slices.Contains(acting, name) })
	return abbreviate(slices.Concat(acting, waiting), min(maxShown, len(acting))), since, cmp.Or(message, "<none>")
}

// reported returns how long the oldest turn of some initializers has lasted, and what they last reported.
func reported(lifecycle *nsinit.NamespaceLifecycle, names []string) (since, message string) {
	var start *metav1.MicroTime
	var messages []string
	for _, name := range names {
		entry := lifecycle.Entry(name)
		if entry == nil {
			continue
		}
		if entry.StartTime != nil && (start == nil || entry.StartTime.Before(start)) {
			start = entry.StartTime
		}
		switch line := printable.Line(lastReport(lifecycle, entry, len(names) > 1)); {
		case line == "":
		case len(names) == 1:
			messages = append(messages, line)
		default:
			messages = append(messages, name+": "+line)
		}
	}
	since = "<unknown>"
	if start != nil {
		since = table.ConvertToHumanReadableDateType(metav1.Time(*start))
	}
	return since, strings.Join(messages, "; ")
}

// maxShown is how many initializers or participants the column WAITING FOR names.
const maxShown = 3

// abbreviate shortens a list to its first names and the number of the others.
func abbreviate(names []string, shown int) string {
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s (+%d)", strings.Join(names[:shown], ", "), len(names)-shown)
}

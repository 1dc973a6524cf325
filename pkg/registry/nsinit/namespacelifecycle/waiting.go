/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const (
	// maxNamed is how many of several initializers a message names.
	maxNamed = 5
	// maxReport is the length, in bytes, at which the reports of several initializers are cut.
	maxReport = 200
)

// waitingMessage names the current initializers, the start of the oldest turn, their deadlines and what they
// last reported. If the namespace is being deleted, it names the participants, which are all asked when the deletion begins.
func waitingMessage(lifecycle *nsinit.NamespaceLifecycle) string {
	current, kind := lifecycle.Status.CurrentInitializers, "initializer"
	var since *metav1.MicroTime
	for _, name := range current {
		if entry := lifecycle.Entry(name); entry != nil && (since == nil || entry.StartTime.Before(since)) {
			since = entry.StartTime
		}
	}
	if lifecycle.DeletionTimestamp != nil {
		current, kind, since = lifecycle.Participants(), "participant", &metav1.MicroTime{Time: lifecycle.DeletionTimestamp.Time}
	}
	started := position(lifecycle)
	if since != nil {
		started += " since " + since.UTC().Format(time.RFC3339)
	}
	if len(current) == 1 {
		return fmt.Sprintf("waiting for %s %q%s%s", kind, current[0], started, details(lifecycle, current[0], false))
	}
	var names []string
	var reports strings.Builder
	for _, name := range current[:min(maxNamed, len(current))] {
		names = append(names, strconv.Quote(name))
		if more := details(lifecycle, name, true); more != "" {
			fmt.Fprintf(&reports, "; %q%s", name, more)
		}
	}
	if others := len(current) - len(names); others > 0 {
		names[len(names)-1] += fmt.Sprintf(" and %d more", others)
	}
	return fmt.Sprintf("waiting for %ss %s%s%s", kind, strings.Join(names, ", "), started, reports.String())
}

// position returns which of the planned initializers are current, such as " (3 of 7)": two are done. The built-in
// initializer is not counted.
func position(lifecycle *nsinit.NamespaceLifecycle) string {
	if lifecycle.DeletionTimestamp != nil || slices.Contains(lifecycle.Pending(), v1alpha1.InitializerLifecycle) {
		return ""
	}
	total := len(lifecycle.Spec.Plan)
	if lifecycle.Planned(v1alpha1.InitializerLifecycle) != nil {
		total--
	}
	return fmt.Sprintf(" (%d of %d)", total-len(lifecycle.Pending())+1, total)
}

// details returns the deadline of a current initializer, and what it last reported. several says that it is one of several.
func details(lifecycle *nsinit.NamespaceLifecycle, name string, several bool) string {
	planned, entry := lifecycle.Planned(name), lifecycle.Entry(name)
	if entry == nil {
		return ""
	}
	text := ""
	if entry.Deadline != nil && planned != nil && planned.FailurePolicy != nil && lifecycle.DeletionTimestamp == nil {
		then := "it is skipped"
		if *planned.FailurePolicy == v1alpha1.Fail {
			then = "the initialization fails and the namespace is deleted"
		}
		text = " until " + entry.Deadline.UTC().Format(time.RFC3339) + ", when " + then
	}
	if report := lastReport(lifecycle, entry, several); report != "" {
		text += ": " + report
	}
	return text
}

// lastReport returns what an initializer last reported and, while the namespace is being deleted, who wrote it. If there are several
// reports, both are cut at maxReport bytes and quoted, so that no report looks like two.
func lastReport(lifecycle *nsinit.NamespaceLifecycle, entry *v1alpha1.InitializerStatus, several bool) string {
	report, actor := entry.Message, printable.Line(entry.LastActor)
	if report == "" {
		return ""
	}
	if several {
		report, actor = quote(report), quote(actor)
	}
	if lifecycle.DeletionTimestamp == nil || entry.LastActor == "" {
		return report
	}
	return report + " (" + actor + ")"
}

func quote(text string) string {
	return strconv.Quote(printable.Shorten(printable.Line(text), maxReport))
}

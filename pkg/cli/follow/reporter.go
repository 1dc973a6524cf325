/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package follow

import (
	"fmt"
	"io"
	"time"

	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/cli/progress"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// Reporter tells what happens to a namespace: a line for each initializer that is done, and in
// between who is waited for.
type Reporter struct {
	out   io.Writer
	line  *progress.Line
	clock clock.PassiveClock
	// told are the initializers whose end was told.
	told map[string]bool
	// message is what the namespace said last, where its record cannot be read.
	message string
}

// NewReporter returns a reporter that writes what stays to out, and what passes to errOut.
func NewReporter(out, errOut io.Writer, clock clock.PassiveClock) *Reporter {
	return &Reporter{out: out, line: progress.New(errOut, clock), clock: clock, told: map[string]bool{}}
}

// Seen tells what was seen.
func (r *Reporter) Seen(sight Sight) {
	if sight.Record == nil {
		r.seenConditions(sight)
		return
	}
	for _, status := range sight.Record.Status.Initializers {
		if status.Name != v1alpha1.InitializerLifecycle && status.EndTime != nil && !r.told[status.Name] {
			r.told[status.Name] = true
			r.line.End()
			_, _ = fmt.Fprintf(r.out, "initializer.nsinit.dev/%s %s\n", status.Name, ended(status))
		}
	}
	for _, status := range sight.Record.Status.Initializers {
		if status.State == v1alpha1.InitializerRunning && status.StartTime != nil {
			r.line.Show("%s (%s)", printable.Line(helper.Message(sight.Record)), r.clock.Since(status.StartTime.Time).Round(time.Second))
		}
	}
}

// seenConditions tells what the namespace itself says, which is all that its tenants may see.
func (r *Reporter) seenConditions(sight Sight) {
	message := sight.Message()
	if message == "" || sight.Open() {
		return
	}
	if message != r.message {
		r.message = message
		r.line.End()
		_, _ = fmt.Fprintln(r.out, message)
	}
	r.line.Show("waiting, %s since the namespace was created", r.clock.Since(sight.Namespace.CreationTimestamp.Time).Round(time.Second))
}

// End clears what passes.
func (r *Reporter) End() { r.line.End() }

// ended tells how an initializer came to its end.
func ended(status v1alpha1.InitializerStatus) string {
	what := "done"
	switch status.State {
	case v1alpha1.InitializerSkipped:
		what = "skipped"
	case v1alpha1.InitializerFailed:
		what = "failed"
	}
	if status.StartTime != nil {
		what += " after " + status.EndTime.Sub(status.StartTime.Time).Round(10*time.Millisecond).String()
	}
	return what + said(status.Message)
}

func said(message string) string {
	if message == "" {
		return ""
	}
	return ": " + printable.Line(message)
}

// SeenLeaving tells what was seen of a namespace that is to go.
func (r *Reporter) SeenLeaving(sight Sight) {
	if sight.Namespace.DeletionTimestamp == nil {
		r.line.Show("waiting for somebody to delete the namespace")
		return
	}
	r.line.Show("the namespace was deleted %s ago, and waits for %v", r.clock.Since(sight.Namespace.DeletionTimestamp.Time).Round(time.Second),
		finalizers(sight))
}

// finalizers returns who a namespace waits for, nsinit's participants by their names.
func finalizers(sight Sight) []string {
	var names []string
	for _, finalizer := range sight.Namespace.Spec.Finalizers {
		names = append(names, string(finalizer))
	}
	for _, finalizer := range sight.Namespace.Finalizers {
		if finalizer == v1alpha1.NamespaceFinalizer && sight.Record != nil {
			names = append(names, helper.Participants(sight.Record)...)
			continue
		}
		names = append(names, finalizer)
	}
	return names
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package follow

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/cli/progress"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// reporter reports a line for each initializer that is done, and meanwhile what the namespace waits for.
type reporter struct {
	out   io.Writer
	line  *progress.Line
	clock clock.PassiveClock
	// reported are the initializers whose end was reported.
	reported sets.Set[string]
	// message is what the namespace reported last, where its NamespaceLifecycle cannot be read.
	message string
}

func newReporter(out, errOut io.Writer, clock clock.PassiveClock) *reporter {
	return &reporter{out: out, line: progress.New(errOut, clock), clock: clock, reported: sets.New[string]()}
}

// opening reports a namespace that is to open.
func (r *reporter) opening(seen sight) {
	if seen.lifecycle == nil {
		r.conditions(seen)
		return
	}
	for _, status := range seen.lifecycle.Status.Initializers {
		if status.Name != v1alpha1.InitializerLifecycle && status.EndTime != nil && !r.reported.Has(status.Name) {
			r.reported.Insert(status.Name)
			r.line.End()
			_, _ = fmt.Fprintf(r.out, "initializer.nsinit.dev/%s %s\n", status.Name, ended(status))
		}
	}
	for _, status := range seen.lifecycle.Status.Initializers {
		if status.State == v1alpha1.InitializerRunning && status.StartTime != nil {
			r.line.Show("%s (%s)", printable.Line(helper.Message(seen.lifecycle)), r.clock.Since(status.StartTime.Time).Round(time.Second))
		}
	}
}

// conditions reports what the namespace itself shows, which is all that tenants see.
func (r *reporter) conditions(seen sight) {
	message := seen.message()
	if message == "" || !helper.IsClosed(seen.namespace) {
		return
	}
	if message != r.message {
		r.message = message
		r.line.End()
		_, _ = fmt.Fprintln(r.out, message)
	}
	r.line.Show("waiting, %s since the namespace was created", r.clock.Since(seen.namespace.CreationTimestamp.Time).Round(time.Second))
}

// ended describes the end of an initializer's turn.
func ended(status v1alpha1.InitializerStatus) string {
	what := strings.ToLower(string(status.State))
	if status.StartTime != nil {
		what += " after " + status.EndTime.Sub(status.StartTime.Time).Round(10*time.Millisecond).String()
	}
	if status.Message != "" {
		what += ": " + printable.Line(status.Message)
	}
	return what
}

// leaving reports a namespace that is to be deleted.
func (r *reporter) leaving(seen sight) {
	if seen.namespace.DeletionTimestamp == nil {
		r.line.Show("waiting for the deletion of the namespace")
		return
	}
	r.line.Show("the namespace was deleted %s ago, and waits for %v", r.clock.Since(seen.namespace.DeletionTimestamp.Time).Round(time.Second), finalizers(seen))
}

// finalizers returns what a namespace waits for, nsinit's participants by their names.
func finalizers(seen sight) []string {
	var names []string
	for _, finalizer := range seen.namespace.Spec.Finalizers {
		names = append(names, string(finalizer))
	}
	for _, finalizer := range seen.namespace.Finalizers {
		if finalizer == v1alpha1.NamespaceFinalizer && seen.lifecycle != nil {
			names = append(names, helper.Participants(seen.lifecycle)...)
			continue
		}
		names = append(names, finalizer)
	}
	return names
}

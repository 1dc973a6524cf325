/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package wait

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// opening reports a namespace until it is open.
func (f *Follower) opening(seen sight) {
	if seen.lifecycle == nil {
		f.conditions(seen)
		return
	}
	for _, status := range seen.lifecycle.Status.Initializers {
		if status.Name != v1alpha1.InitializerLifecycle && status.EndTime != nil && !f.reported.Has(status.Name) {
			f.reported.Insert(status.Name)
			f.line.End()
			_, _ = fmt.Fprintf(f.out, "initializer.nsinit.dev/%s %s\n", status.Name, ended(status))
		}
	}
	// The message names every initializer that has its turn. The time is that of the oldest turn.
	var oldest *metav1.MicroTime
	for _, status := range seen.lifecycle.Status.Initializers {
		if status.State == v1alpha1.InitializerRunning && status.StartTime != nil && (oldest == nil || status.StartTime.Before(oldest)) {
			oldest = status.StartTime
		}
	}
	if condition := seen.initializing(); condition != nil && condition.Reason == v1alpha1.ReasonObjectsMissing {
		f.line.Show("%s", seen.message())
	} else if oldest != nil {
		f.line.Show("%s (%s)", printable.Line(helper.Message(seen.lifecycle)), f.clients.Clock.Since(oldest.Time).Round(time.Second))
	}
}

// conditions reports the conditions of the namespace, for tenants.
func (f *Follower) conditions(seen sight) {
	message := seen.message()
	if message == "" || !helper.IsClosed(seen.namespace) {
		return
	}
	if message != f.message {
		f.message = message
		f.line.End()
		_, _ = fmt.Fprintln(f.out, message)
	}
	f.line.Show("waiting, %s since the namespace was created", f.clients.Clock.Since(seen.namespace.CreationTimestamp.Time).Round(time.Second))
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

// terminating reports a namespace until it is deleted.
func (f *Follower) terminating(seen sight) {
	if seen.namespace.DeletionTimestamp == nil {
		f.line.Show("waiting for the deletion of the namespace")
		return
	}
	f.line.Show("the namespace was deleted %s ago, and waits for %v", f.clients.Clock.Since(seen.namespace.DeletionTimestamp.Time).Round(time.Second), finalizers(seen))
}

// finalizers returns what a namespace waits for, with the names of nsinit's participants.
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

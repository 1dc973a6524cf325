/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package wait

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const (
	// firstInterval and lastInterval are the first and the longest time between two reads of a namespace. It is not
	// watched: tenants may get a namespace, and often neither list nor watch.
	firstInterval = 100 * time.Millisecond
	lastInterval  = time.Second
	// knownAfter is how long after the creation or the opening of a namespace the API servers may not know it, or its RoleBindings.
	knownAfter = 2 * time.Second
)

// follower follows one namespace. It reports a line for each initializer that is done, and meanwhile what the namespace
// waits for.
type follower struct {
	clients *cmdutil.Clients
	out     io.Writer
	line    *cmdutil.Line
	// reported are the initializers whose end was reported.
	reported sets.Set[string]
	// message is what the namespace reported last, where its NamespaceLifecycle cannot be read.
	message string
	// blind is set if the NamespaceLifecycle cannot be read: the conditions of the namespace are used instead.
	blind bool
}

// newFollower returns a follower that writes results to out, and progress to errOut.
func newFollower(clients *cmdutil.Clients, out, errOut io.Writer) *follower {
	return &follower{clients: clients, out: out, line: cmdutil.NewLine(errOut, clients.Clock), reported: sets.New[string]()}
}

// sight is one read of a namespace.
type sight struct {
	namespace *corev1.Namespace
	// lifecycle is nil if it does not exist or cannot be read.
	lifecycle *v1alpha1.NamespaceLifecycle
}

// message returns what the namespace reports about its initialization, or, until it does, its NamespaceLifecycle, or "".
func (s sight) message() string {
	if condition := s.initializing(); condition != nil {
		return printable.Line(condition.Message)
	}
	if s.lifecycle != nil {
		return printable.Line(helper.Message(s.lifecycle))
	}
	return ""
}

// initializing returns the condition Initializing if it is True, or nil.
func (s sight) initializing() *corev1.NamespaceCondition {
	return utilnamespaces.TrueCondition(s.namespace.Status.Conditions, v1alpha1.ConditionInitializing)
}

// failed returns why the namespace will not open, or nil.
func (s sight) failed() error {
	if condition := s.initializing(); condition != nil && condition.Reason == v1alpha1.ReasonFailed {
		return fmt.Errorf("the initialization of namespace %q failed: %s", s.namespace.Name, s.message())
	}
	if s.namespace.DeletionTimestamp != nil {
		return fmt.Errorf("namespace %q is being deleted", s.namespace.Name)
	}
	return nil
}

// untilOpen waits until a namespace is open, and returns it. It returns an error for a namespace that fails, is deleted,
// or has another UID than the one that is given, if one is.
func (f *follower) untilOpen(ctx context.Context, name string, uid types.UID) (*corev1.Namespace, error) {
	var last sight
	because := func() string {
		if last.namespace == nil || last.message() == "" {
			return ""
		}
		return ": " + last.message()
	}
	known := f.clients.Clock.Now()
	err := f.until(ctx, func() (bool, error) {
		seen, err := f.read(ctx, name)
		switch {
		case apierrors.IsNotFound(err) && uid == "":
			return false, cmdutil.NoNamespace(name)
		case apierrors.IsNotFound(err):
			return false, fmt.Errorf("namespace %q was deleted before it was open%s", name, because())
		case apierrors.IsForbidden(err) && uid != "" && f.clients.Clock.Since(known) < knownAfter:
			return false, nil
		case apierrors.IsForbidden(err) && last.namespace != nil: // its creator sees it only while it is closed
			return false, fmt.Errorf("namespace %q opened or was deleted, and you may not get it: %w; try to write into it, or ask an administrator for the permission to get it", name, err)
		case err != nil:
			return false, err
		case uid != "" && seen.namespace.UID != uid:
			return false, fmt.Errorf("namespace %q was deleted before it was open, and another one has this name%s", name, because())
		}
		uid, last, known = seen.namespace.UID, seen, f.clients.Clock.Now()
		f.opening(seen)
		return !helper.IsClosed(seen.namespace), seen.failed()
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("namespace %q is not open yet%s; see: kubectl nsinit why %s", name, because(), name)
	}
	return last.namespace, err
}

// untilGone waits until a namespace does not exist, or has another UID, and returns the last state of it.
func (f *follower) untilGone(ctx context.Context, name string) (*corev1.Namespace, error) {
	last := sight{namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	err := f.until(ctx, func() (bool, error) {
		seen, err := f.read(ctx, name)
		if apierrors.IsForbidden(err) && last.namespace.UID != "" {
			f.terminating(last)
			return f.isFree(ctx, name, err)
		}
		if err != nil {
			return true, utilapierrors.IgnoreAbsent(err)
		}
		if last.namespace.UID != "" && seen.namespace.UID != last.namespace.UID {
			return true, nil
		}
		last = seen
		f.terminating(seen)
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("namespace %q still exists; see: kubectl nsinit why %s", name, name)
	}
	return last.namespace, err
}

// isFree reports whether a dry run could create a namespace of a name. A user whose permission to get the namespace comes from one of its
// RoleBindings loses the permission before the namespace is removed. From then on, no AccessibleNamespace shows whether it exists.
func (f *follower) isFree(ctx context.Context, name string, forbidden error) (bool, error) {
	_, err := f.clients.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case err != nil && !passing(err):
		return false, fmt.Errorf("you may not get namespace %q any more: %w; whether it still exists is not known, because you cannot create it either: %w", name, forbidden, err)
	}
	return err == nil, err
}

// until calls done until it is true, or returns an error that a retry does not fix.
func (f *follower) until(ctx context.Context, done func() (bool, error)) error {
	defer f.line.End()
	for interval := firstInterval; ; interval = min(interval*5/4, lastInterval) {
		ok, err := done()
		switch {
		case cmdutil.Ended(ctx) != nil:
			return cmdutil.Ended(ctx)
		case err != nil && !passing(err):
			return err
		case ok && err == nil:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.clients.Clock.After(interval):
		}
	}
}

// passing reports whether a retry may succeed.
func passing(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}

// read reads the namespace and, if the user has the permission, its NamespaceLifecycle.
func (f *follower) read(ctx context.Context, name string) (sight, error) {
	namespace, err := f.clients.Namespace(ctx, name)
	if err != nil || f.blind {
		return sight{namespace: namespace}, err
	}
	seen := sight{namespace: namespace}
	lifecycle, err := f.clients.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil && lifecycle.Spec.NamespaceUID == namespace.UID:
		seen.lifecycle = lifecycle
	case err != nil && ctx.Err() != nil: // the time ended between the two reads
		return sight{}, ctx.Err()
	case apierrors.IsForbidden(err):
		f.blind = true
	}
	return seen, nil
}

// opening reports a namespace until it is open.
func (f *follower) opening(seen sight) {
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
		f.line.Show("%s (%s)", printable.Line(helper.Message(seen.lifecycle)), f.clients.ServerClock.Since(oldest.Time).Round(time.Second))
	}
}

// conditions reports the conditions of the namespace, for tenants.
func (f *follower) conditions(seen sight) {
	message := seen.message()
	if message == "" || !helper.IsClosed(seen.namespace) {
		return
	}
	if message != f.message {
		f.message = message
		f.line.End()
		_, _ = fmt.Fprintln(f.out, message)
	}
	f.line.Show("waiting, %s since the namespace was created", f.clients.ServerClock.Since(seen.namespace.CreationTimestamp.Time).Round(time.Second))
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
func (f *follower) terminating(seen sight) {
	if seen.namespace.DeletionTimestamp == nil {
		f.line.Show("waiting for the deletion of the namespace")
		return
	}
	f.line.Show("the namespace was deleted %s ago, and waits for %v", f.clients.ServerClock.Since(seen.namespace.DeletionTimestamp.Time).Round(time.Second), finalizers(seen))
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

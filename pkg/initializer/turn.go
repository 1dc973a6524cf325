/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// errOver means that a namespace needs nothing from this initializer now.
var errOver = errors.New("it is not this initializer's turn")

// take calls the function that a namespace waits for, if any. A turn that is over is not an error.
func (r *Runner) take(ctx context.Context, name string) error {
	c, err := r.due(ctx, name)
	if err != nil {
		return ignoreOver(err)
	}
	if r.options.DryRun && r.rehearsedBefore(c.lifecycle.UID) {
		return nil
	}
	turnCtx, end := context.WithCancel(ctx)
	defer end()
	if entry := c.entry(); c.operation == initialize && entry != nil && entry.Deadline != nil {
		var cancel context.CancelFunc
		turnCtx, cancel = context.WithDeadline(turnCtx, entry.Deadline.Time)
		defer cancel()
	}
	defer r.begin(name, turn{uid: c.namespace.UID, operation: c.operation, end: end})()

	// gofail: var initializerBeforeCall struct{}
	ended := r.metrics.began(c.operation, r.options.Clock.Now)
	err = r.call(turnCtx, c)
	// gofail: var initializerAfterCall struct{}
	result, err := r.conclude(ctx, turnCtx, c, err)
	ended(result)
	return ignoreOver(err)
}

// conclude writes the result of a call, and returns the value of the label result.
func (r *Runner) conclude(ctx, turnCtx context.Context, c *call, err error) (string, error) {
	logger := klog.FromContext(ctx).WithValues("operation", c.operation, "uid", c.namespace.UID)
	var permanent *failure
	final := errors.As(err, &permanent) && c.operation == initialize
	switch {
	case r.options.DryRun:
		logger.Info("Dry run: called the function, and changed nothing", "err", err)
		return resultOver, nil
	case err == nil:
		if err := r.remove(ctx, c); err != nil {
			return resultError, err
		}
		logger.Info("Done with the namespace")
		return resultDone, nil
	case final:
		logger.Error(err, "The initialization of the namespace failed")
		return resultFailed, r.fail(ctx, c, permanent)
	case turnCtx.Err() != nil && !errors.Is(turnCtx.Err(), context.DeadlineExceeded):
		return resultOver, nil // the error is a consequence of the end of the turn
	}
	if updateErr := ignoreOver(r.updateMessage(ctx, c.lifecycle, err.Error())); updateErr != nil {
		logger.Error(updateErr, "Cannot write the message to the NamespaceLifecycle")
	}
	reason := map[operation]string{initialize: "InitializerError", finalize: "FinalizerError"}[c.operation]
	r.options.Events.Eventf(c.namespace, corev1.EventTypeWarning, reason, "Initializer %q: %s", r.options.Name, shorten(err.Error()))
	return resultError, err
}

// due returns the call that a namespace needs now. It reads the spec from the server, never the status or a cache.
func (r *Runner) due(ctx context.Context, name string) (*call, error) {
	lifecycle, err := r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, notFoundIsOver(fmt.Errorf("cannot read the NamespaceLifecycle: %w", err))
	}
	c := &call{runner: r, lifecycle: lifecycle}
	switch {
	case r.mayInitialize(lifecycle):
		c.operation = initialize
	case r.mayFinalize(lifecycle):
		c.operation = finalize
	default:
		return nil, errOver
	}
	// gofail: var initializerBetweenReads struct{}
	c.namespace, err = r.options.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case utilapierrors.IsAbsent(err) && c.operation == finalize:
		c.namespace = gone(lifecycle)
	case err != nil:
		return nil, notFoundIsOver(fmt.Errorf("cannot read the namespace: %w", err))
	case c.namespace.UID != lifecycle.Spec.NamespaceUID && c.operation == finalize:
		c.namespace = gone(lifecycle)
	case c.namespace.UID != lifecycle.Spec.NamespaceUID || c.operation == initialize && c.namespace.DeletionTimestamp != nil:
		return nil, errOver
	}
	return c, nil
}

// gone returns what is known of a namespace that a client removed from storage by force.
func gone(lifecycle *v1alpha1.NamespaceLifecycle) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: lifecycle.Name, UID: lifecycle.Spec.NamespaceUID, DeletionTimestamp: lifecycle.DeletionTimestamp},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
}

// mayInitialize reports whether this initializer has its turn. Others may have theirs at the same time.
func (r *Runner) mayInitialize(lifecycle *v1alpha1.NamespaceLifecycle) bool {
	return helper.IsActing(lifecycle, r.options.Name)
}

// mayFinalize reports whether the deletion of a namespace waits for this participant.
func (r *Runner) mayFinalize(lifecycle *v1alpha1.NamespaceLifecycle) bool {
	return r.options.Finalize != nil && lifecycle.DeletionTimestamp != nil && r.takesPart(lifecycle)
}

// call calls the author's function. A panic is an error.
func (r *Runner) call(ctx context.Context, c *call) (err error) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(nil, "The initializer panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the initializer panicked: %v", p)
		}
	}()
	function := r.options.Initialize
	if c.operation == finalize {
		function = r.options.Finalize
	}
	return function(context.WithValue(ctx, callKey{}, c), c.namespace.DeepCopy())
}

// remove removes this initializer from the lifecycle.
func (r *Runner) remove(ctx context.Context, c *call) error {
	return r.write(ctx, c, func(lifecycle *v1alpha1.NamespaceLifecycle) {
		if c.operation == initialize {
			helper.RemovePending(lifecycle, r.options.Name)
			return
		}
		lifecycle.Spec.Finalizers = slices.DeleteFunc(lifecycle.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == v1alpha1.FinalizerName(r.options.Name) })
	})
}

// fail makes the initialization fail.
func (r *Runner) fail(ctx context.Context, c *call, reason error) error {
	return r.write(ctx, c, func(lifecycle *v1alpha1.NamespaceLifecycle) {
		lifecycle.Spec.Initializers.FailedInitializer = r.options.Name
		lifecycle.Spec.Initializers.Result = &metav1.Status{
			Status:  metav1.StatusFailure,
			Reason:  metav1.StatusReasonInternalError,
			Message: shorten(reason.Error()),
		}
	})
}

// write updates the subresource of the operation. After a conflict, such as with an initializer that finishes at the same
// time, it reads the lifecycle again, and continues only if it is the same incarnation and still this initializer's turn.
func (r *Runner) write(ctx context.Context, c *call, change func(*v1alpha1.NamespaceLifecycle)) error {
	client := r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	update, ours := client.Initialize, r.mayInitialize
	if c.operation == finalize {
		update, ours = client.Finalize, r.mayFinalize
	}
	lifecycle := c.lifecycle.DeepCopy()
	return retry.RetryOnConflict(conflictBackoff(), func() error {
		if lifecycle == nil {
			current, err := client.Get(ctx, c.lifecycle.Name, metav1.GetOptions{})
			if err != nil {
				return notFoundIsOver(fmt.Errorf("cannot read the NamespaceLifecycle: %w", err))
			}
			if current.UID != c.lifecycle.UID || !ours(current) {
				return errOver
			}
			lifecycle = current
		}
		change(lifecycle)
		// gofail: var initializerBeforeWrite struct{}
		_, err := update(ctx, lifecycle.Name, lifecycle, metav1.UpdateOptions{})
		// gofail: var initializerAfterWrite struct{}
		lifecycle = nil
		return notFoundIsOver(err)
	})
}

// conflictBackoff bounds the retries of a write to about five seconds. Of several initializers that finish at the same time,
// each conflicts with the faster ones, more often than retry.DefaultBackoff allows.
func conflictBackoff() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.5, Jitter: 1, Steps: 14}
}

// updateMessage writes a message to this initializer's entry in the status. The UID prevents a write to another
// incarnation.
func (r *Runner) updateMessage(ctx context.Context, lifecycle *v1alpha1.NamespaceLifecycle, message string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": lifecycle.UID},
		"status": map[string]any{
			"initializers": []any{map[string]any{"name": r.options.Name, "message": shorten(message)}},
		},
	})
	if err != nil {
		return err
	}
	// gofail: var initializerBeforeMessage struct{}
	_, err = r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Patch(ctx, lifecycle.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return notFoundIsOver(err)
}

// begin adds a turn, and returns the function that removes it.
func (r *Runner) begin(name string, t turn) (finish func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns[name] = t
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.turns, name)
	}
}

// rehearsedBefore reports whether a dry run was made for a lifecycle, and remembers that it was.
func (r *Runner) rehearsedBefore(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.rehearsed[uid]
	r.rehearsed[uid] = true
	return before
}

// shorten cuts a message to the length that the server accepts, between two characters.
func shorten(message string) string {
	message = strings.ToValidUTF8(message, "?")
	if len(message) <= validation.MaxMessageLength {
		return message
	}
	const mark = "..."
	cut := validation.MaxMessageLength - len(mark)
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + mark
}

// notFoundIsOver adds errOver to the error for an object that does not exist.
func notFoundIsOver(err error) error {
	if utilapierrors.IsAbsent(err) {
		return errors.Join(errOver, err)
	}
	return err
}

func ignoreOver(err error) error {
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

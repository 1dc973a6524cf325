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
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// errOver says that a namespace needs nothing from this initializer now.
var errOver = errors.New("it is not this initializer's turn")

// take takes the turn for a namespace, if it is ours. A turn that is over is no error.
func (r *Runner) take(ctx context.Context, name string) error {
	c, err := r.due(ctx, name)
	if err != nil {
		return ignoreOver(err)
	}
	if r.options.DryRun && r.rehearsedBefore(c.record.UID) {
		return nil
	}
	turnCtx, end := context.WithCancel(ctx)
	defer end()
	if deadline := c.deadline(); deadline != nil {
		var cancel context.CancelFunc
		turnCtx, cancel = context.WithDeadline(turnCtx, deadline.Time)
		defer cancel()
	}
	r.begin(name, turn{uid: c.namespace.UID, operation: c.operation, end: end})
	defer r.finish(name)

	// gofail: var initializerBeforeCall struct{}
	ended := r.metrics.began(c.operation, r.options.Clock.Now)
	err = r.call(turnCtx, c)
	// gofail: var initializerAfterCall struct{}
	result, err := r.conclude(ctx, turnCtx, c, err)
	ended(result)
	return ignoreOver(err)
}

// conclude does what follows from the end of a call, and says what came of it.
func (r *Runner) conclude(ctx, turnCtx context.Context, c *call, err error) (string, error) {
	logger := klog.FromContext(ctx).WithValues("operation", c.operation, "uid", c.namespace.UID)
	var permanent *failure
	final := errors.As(err, &permanent) && c.operation == initialize
	switch {
	case r.options.DryRun:
		logger.Info("Dry run: the function was called, and nothing was changed", "err", err)
		return resultOver, nil
	case err == nil:
		if err := r.remove(ctx, c); err != nil {
			return resultError, err
		}
		logger.Info("Done with the namespace")
		return resultDone, nil
	case final:
		logger.Error(err, "The initialization of the namespace has failed for good")
		return resultFailed, r.fail(ctx, c, permanent)
	case turnCtx.Err() != nil && !errors.Is(turnCtx.Err(), context.DeadlineExceeded):
		return resultOver, nil // what the function says of the end is of no interest
	}
	if sayErr := r.say(ctx, c.record, err.Error()); sayErr != nil && !errors.Is(sayErr, errOver) {
		logger.Error(sayErr, "Cannot write the message into the record")
	}
	r.options.Events.Eventf(c.namespace, corev1.EventTypeWarning, c.eventReason(), "Initializer %q: %s", r.options.Name, shorten(err.Error()))
	return resultError, err
}

// due returns what a namespace needs of this initializer as things are now. The spec says
// so, never the status and never a cache.
func (r *Runner) due(ctx context.Context, name string) (*call, error) {
	record, err := r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, notFoundIsOver(fmt.Errorf("cannot read the record: %w", err))
	}
	c := &call{runner: r, record: record}
	switch {
	case r.mayInitialize(record):
		c.operation = initialize
	case r.mayFinalize(record):
		c.operation = finalize
	default:
		return nil, errOver
	}
	// gofail: var initializerBetweenReads struct{}
	c.namespace, err = r.options.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case utilapierrors.IsAbsent(err) && c.operation == finalize:
		c.namespace = gone(record)
	case err != nil:
		return nil, notFoundIsOver(fmt.Errorf("cannot read the namespace: %w", err))
	case c.namespace.UID != record.Spec.NamespaceUID && c.operation == finalize:
		c.namespace = gone(record)
	case c.namespace.UID != record.Spec.NamespaceUID || c.operation == initialize && c.namespace.DeletionTimestamp != nil:
		return nil, errOver
	}
	return c, nil
}

// gone is what is known of a namespace that somebody removed by force.
func gone(record *v1alpha1.NamespaceLifecycle) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: record.Name, UID: record.Spec.NamespaceUID, DeletionTimestamp: record.DeletionTimestamp},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
}

// mayInitialize says whether it is this initializer's turn.
func (r *Runner) mayInitialize(record *v1alpha1.NamespaceLifecycle) bool {
	return record.DeletionTimestamp == nil && helper.Failure(record) == nil && helper.Current(record) == r.options.Name
}

// mayFinalize says whether the end of a namespace waits for this participant.
func (r *Runner) mayFinalize(record *v1alpha1.NamespaceLifecycle) bool {
	return r.options.Finalize != nil && record.DeletionTimestamp != nil && r.takesPart(record)
}

// deadline is when the turn ends at the latest, or nil.
func (c *call) deadline() *metav1.MicroTime {
	if c.operation != initialize {
		return nil
	}
	if entry := helper.Entry(c.record, c.runner.options.Name); entry != nil {
		return entry.Deadline
	}
	return nil
}

func (c *call) eventReason() string {
	if c.operation == finalize {
		return "FinalizerError"
	}
	return "InitializerError"
}

// call calls the author's function. A panic is an error like any other.
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

// remove removes this initializer from the record, by the subresource of the operation.
func (r *Runner) remove(ctx context.Context, c *call) error {
	if c.operation == initialize {
		return r.write(ctx, c, func(record *v1alpha1.NamespaceLifecycle) {
			record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
		})
	}
	return r.write(ctx, c, func(record *v1alpha1.NamespaceLifecycle) {
		record.Spec.Finalizers = slices.DeleteFunc(record.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == v1alpha1.FinalizerName(r.options.Name) })
	})
}

// fail ends the initialization without success.
func (r *Runner) fail(ctx context.Context, c *call, reason error) error {
	return r.write(ctx, c, func(record *v1alpha1.NamespaceLifecycle) {
		record.Spec.Initializers.Result = &metav1.Status{
			Status:  metav1.StatusFailure,
			Reason:  metav1.StatusReasonInternalError,
			Message: shorten(reason.Error()),
		}
	})
}

// write writes through the subresource of the operation. Each try after a conflict reads the
// record again and acts on the same incarnation only, while it is still this initializer's
// turn.
func (r *Runner) write(ctx context.Context, c *call, change func(*v1alpha1.NamespaceLifecycle)) error {
	client := r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	update, ours := client.Initialize, r.mayInitialize
	if c.operation == finalize {
		update, ours = client.Finalize, r.mayFinalize
	}
	record := c.record.DeepCopy()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if record == nil {
			current, err := client.Get(ctx, c.record.Name, metav1.GetOptions{})
			if err != nil {
				return notFoundIsOver(fmt.Errorf("cannot read the record: %w", err))
			}
			if current.UID != c.record.UID || !ours(current) {
				return errOver
			}
			record = current
		}
		change(record)
		// gofail: var initializerBeforeWrite struct{}
		_, err := update(ctx, record.Name, record, metav1.UpdateOptions{})
		// gofail: var initializerAfterWrite struct{}
		record = nil
		return notFoundIsOver(err)
	})
}

// say writes a message into this initializer's entry of the record's status. The UID keeps
// it from another incarnation.
func (r *Runner) say(ctx context.Context, record *v1alpha1.NamespaceLifecycle, message string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": record.UID},
		"status": map[string]any{
			"initializers": []any{map[string]any{"name": r.options.Name, "message": shorten(message)}},
		},
	})
	if err != nil {
		return err
	}
	// gofail: var initializerBeforeMessage struct{}
	_, err = r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Patch(ctx, record.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return notFoundIsOver(err)
}

func (r *Runner) begin(name string, t turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns[name] = t
}

func (r *Runner) finish(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.turns, name)
}

// rehearsedBefore says whether a dry run was made for a record, and notes that it was.
func (r *Runner) rehearsedBefore(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.rehearsed[uid]
	r.rehearsed[uid] = true
	return before
}

// shorten cuts a message to what the server takes, between two characters.
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

// notFoundIsOver makes of an object that is gone a turn that is over.
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

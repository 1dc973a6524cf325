/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const (
	// eventInitializerError: the function Initialize of the initializer returned an error. The
	// SDK calls the function again.
	eventInitializerError = "InitializerError"
	// eventFinalizerError: the function Finalize of the participant returned an error. The SDK
	// calls the function again.
	eventFinalizerError = "FinalizerError"
)

// shownPeriod is how long the watch may show a turn that has ended before the server is asked. If the server says that the turn goes on, an
// older snapshot of its storage was restored.
const shownPeriod = 30 * time.Second

// errOver means that a namespace needs nothing from this initializer now.
var errOver = errors.New("it is not this initializer's turn")

// take calls the function that a namespace waits for, if any. A turn that is over is not an error.
func (r *Runner) take(ctx context.Context, name string) error {
	c, err := r.due(ctx, name)
	if err != nil {
		return ignoreOver(err)
	}
	return r.perform(ctx, name, c)
}

// perform calls a function, and writes the result. The watch shows the end of the turn later, so the turn counts as ended until then, from
// the start of the call on: if the watch shows the end during the call, it does not show it again. After an error, the turn goes on.
func (r *Runner) perform(ctx context.Context, key string, c *call) error {
	turnCtx, end := context.WithCancel(ctx)
	defer end()
	c.end = end
	r.mu.Lock()
	r.turns[key] = c
	r.ended[c.turn()] = r.options.Clock.Now()
	r.mu.Unlock()

	// gofail: var initializerBeforeCall struct{}
	ended := r.metrics.began(c.operation, r.options.Clock.Now)
	err := r.call(turnCtx, c)
	// gofail: var initializerAfterCall struct{}
	result, err := r.conclude(ctx, turnCtx, c, err)
	ended(result)

	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.turns, key)
	if _, shown := r.ended[c.turn()]; err != nil {
		delete(r.ended, c.turn())
	} else if shown && c.lifecycle != nil && !r.options.DryRun {
		r.ended[c.turn()] = r.options.Clock.Now()
		r.queue.AddAfter(key, shownPeriod)
	}
	return ignoreOver(err)
}

// conclude writes the result of a call, and returns the value of the label result. Without an error, the function is not called again.
func (r *Runner) conclude(ctx, turnCtx context.Context, c *call, err error) (string, error) {
	logger := klog.FromContext(ctx).WithValues("operation", c.operation, "uid", c.object.GetUID())
	var permanent *failure
	final := errors.As(err, &permanent) && c.operation == initialize
	switch {
	case r.options.DryRun:
		logger.Info("Dry run: called the function, and changed nothing", "err", err)
		return resultOver, nil
	case err == nil:
		// gofail: var initializerBeforeWrite struct{}
		err := r.remove(ctx, c)
		// gofail: var initializerAfterWrite struct{}
		switch {
		case errors.Is(err, errOver):
			return resultOver, err
		case err != nil:
			return resultError, err
		}
		logger.Info("Done with the object")
		return resultDone, nil
	case final:
		logger.Error(err, "The initialization of the object failed")
		return resultFailed, r.fail(ctx, c, permanent)
	case turnCtx.Err() != nil:
		return resultOver, errOver // the error is a consequence of the end of the turn
	}
	if c.lifecycle != nil {
		if updateErr := ignoreOver(r.updateMessage(ctx, c.lifecycle, err.Error())); updateErr != nil {
			logger.Error(updateErr, "Cannot write the message to the NamespaceLifecycle")
		}
	}
	r.warn(c, err)
	return resultError, err
}

// warn records the error of a call as an event of the object.
func (r *Runner) warn(c *call, err error) {
	reason := map[operation]string{initialize: eventInitializerError, finalize: eventFinalizerError}[c.operation]
	r.options.Events.Eventf(c.object, corev1.EventTypeWarning, reason, "Initializer %q: %s", r.options.Name, shorten(err.Error()))
}

// due returns the call that a namespace needs now. The watch may be behind, and its objects are enough: the predecessors of
// an initializer that has its turn stay done, and a deletion is final. So an old version can only show a turn that is over,
// which a call learns from its context, or a former namespace of the name, which the namespace shows, because it is read
// live. What the namespace shows is not older than the end of the previous turn.
func (r *Runner) due(ctx context.Context, name string) (*call, error) {
	c := r.watched(name)
	if c == nil {
		return nil, errOver
	}
	if !r.endedAt(c.turn()).IsZero() {
		if _, err := r.current(ctx, c); err != nil {
			r.queue.AddAfter(name, shownPeriod)
			return nil, err
		}
	}
	// gofail: var initializerBetweenReads struct{}
	namespace, err := r.options.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case utilapierrors.IsAbsent(err) && c.operation == finalize:
		namespace = gone(c.lifecycle)
	case err != nil:
		return nil, notFoundIsOver(fmt.Errorf("cannot read the namespace: %w", err))
	case namespace.UID != c.lifecycle.Spec.NamespaceUID && c.operation == finalize:
		namespace = gone(c.lifecycle)
	case namespace.UID != c.lifecycle.Spec.NamespaceUID,
		c.operation == initialize && (namespace.DeletionTimestamp != nil || !helper.IsClosed(namespace)):
		return nil, errOver
	}
	c.object = namespace
	return c, nil
}

// watched returns the call that a namespace needs as the watches show it, or nil. A deletion precedes a turn. The call has no
// object yet.
func (r *Runner) watched(name string) *call {
	for _, o := range []operation{finalize, initialize} {
		if r.watches[o] == nil {
			continue
		}
		object, _, _ := r.watches[o].GetStore().GetByKey(name) // a cache has no error
		lifecycle, ok := object.(*v1alpha1.NamespaceLifecycle)
		if !ok || !r.may(o, lifecycle) {
			continue
		}
		if at := r.endedAt(ended{lifecycle.UID, o}); at.IsZero() || !r.options.DryRun && r.options.Clock.Since(at) >= shownPeriod {
			return &call{runner: r, lifecycle: lifecycle, operation: o}
		}
	}
	return nil
}

// gone returns what is known of a namespace that a client removed from storage by force.
func gone(lifecycle *v1alpha1.NamespaceLifecycle) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: lifecycle.Name, UID: lifecycle.Spec.NamespaceUID, DeletionTimestamp: lifecycle.DeletionTimestamp},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
}

// may reports whether this initializer has its turn, in which others may have theirs, or whether the deletion of a namespace
// waits for this participant.
func (r *Runner) may(o operation, lifecycle *v1alpha1.NamespaceLifecycle) bool {
	if o == initialize {
		return helper.IsActing(lifecycle, r.options.Name)
	}
	return lifecycle.DeletionTimestamp != nil && r.takesPart(lifecycle)
}

// call calls the author's function. A panic is an error.
func (r *Runner) call(ctx context.Context, c *call) (err error) {
	defer recovered(ctx, &err)
	ctx = context.WithValue(ctx, callKey{}, c)
	switch namespace, ok := c.object.(*corev1.Namespace); {
	case !ok:
		return r.options.InitializeObject(ctx, c.object.DeepCopyObject().(Object))
	case c.operation == finalize:
		return r.options.Finalize(ctx, namespace.DeepCopy())
	default:
		return r.options.Initialize(ctx, namespace.DeepCopy())
	}
}

// recovered turns a panic into an error.
func recovered(ctx context.Context, err *error) {
	if p := recover(); p != nil {
		klog.FromContext(ctx).Error(nil, "The initializer panicked", "panic", p, "stack", string(debug.Stack()))
		*err = fmt.Errorf("the initializer panicked: %v", p)
	}
}

// remove removes this initializer from the lifecycle, pod or Job. A patch of the pending initializers needs no resourceVersion, so
// those that finish at the same time do not conflict.
func (r *Runner) remove(ctx context.Context, c *call) error {
	if c.lifecycle == nil {
		return r.removeFromObject(ctx, c.object)
	}
	if c.operation == finalize {
		return r.write(ctx, c, func(lifecycle *v1alpha1.NamespaceLifecycle) {
			lifecycle.Spec.Finalizers = slices.DeleteFunc(lifecycle.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == v1alpha1.FinalizerName(r.options.Name) })
		})
	}
	updated, err := r.patch(ctx, c.lifecycle, "initialize", map[string]any{"spec": map[string]any{"initializers": map[string]any{
		"pending": []any{map[string]any{"$patch": "delete", "name": r.options.Name}},
	}}})
	switch {
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		_, over := r.current(ctx, c)
		return cmp.Or(over, err)
	case err == nil && slices.Contains(updated.Spec.Skipped, r.options.Name):
		return errOver
	}
	return err
}

// fail makes the initialization fail. A pod or Job waits until a deadline, or until a user acts.
func (r *Runner) fail(ctx context.Context, c *call, reason error) error {
	if c.lifecycle == nil {
		r.warn(c, reason)
		return nil
	}
	return r.write(ctx, c, func(lifecycle *v1alpha1.NamespaceLifecycle) {
		lifecycle.Spec.Initializers.FailedInitializer = r.options.Name
		lifecycle.Spec.Initializers.Result = &metav1.Status{
			Status:  metav1.StatusFailure,
			Reason:  metav1.StatusReasonInternalError,
			Message: shorten(reason.Error()),
		}
	})
}

// write updates the subresource of the operation. After a conflict, it reads the lifecycle again.
func (r *Runner) write(ctx context.Context, c *call, change func(*v1alpha1.NamespaceLifecycle)) error {
	client := r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	update := client.Initialize
	if c.operation == finalize {
		update = client.Finalize
	}
	lifecycle := c.lifecycle.DeepCopy()
	return retry.RetryOnConflict(conflictBackoff(), func() (err error) {
		if lifecycle == nil {
			if lifecycle, err = r.current(ctx, c); err != nil {
				return err
			}
		}
		change(lifecycle)
		_, err = update(ctx, lifecycle.Name, lifecycle, metav1.UpdateOptions{})
		lifecycle = nil
		return notFoundIsOver(err)
	})
}

// current reads the lifecycle. It returns errOver if it is another incarnation, or if the turn is over.
func (r *Runner) current(ctx context.Context, c *call) (*v1alpha1.NamespaceLifecycle, error) {
	lifecycle, err := r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, c.lifecycle.Name, metav1.GetOptions{})
	if err != nil {
		return nil, notFoundIsOver(fmt.Errorf("cannot read the NamespaceLifecycle: %w", err))
	}
	if lifecycle.UID != c.lifecycle.UID || !r.may(c.operation, lifecycle) {
		return nil, errOver
	}
	return lifecycle, nil
}

// conflictBackoff bounds the retries of a write to about five seconds. Of several initializers that finish at the same time,
// each conflicts with the faster ones, more often than retry.DefaultBackoff allows.
func conflictBackoff() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.5, Jitter: 1, Steps: 14}
}

// updateMessage writes a message to this initializer's entry in the status.
func (r *Runner) updateMessage(ctx context.Context, lifecycle *v1alpha1.NamespaceLifecycle, message string) error {
	// gofail: var initializerBeforeMessage struct{}
	_, err := r.patch(ctx, lifecycle, "status", map[string]any{"status": map[string]any{
		"initializers": []any{map[string]any{"name": r.options.Name, "message": shorten(message)}},
	}})
	return err
}

// patch patches a subresource of a lifecycle with a strategic merge patch. For another incarnation, it is a conflict.
func (r *Runner) patch(ctx context.Context, lifecycle *v1alpha1.NamespaceLifecycle, subresource string, patch map[string]any) (*v1alpha1.NamespaceLifecycle, error) {
	patch["metadata"] = map[string]any{"uid": lifecycle.UID}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	updated, err := r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Patch(ctx, lifecycle.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, subresource)
	return updated, notFoundIsOver(err)
}

// endedAt returns when this process ended a turn that the watch still shows, or zero.
func (r *Runner) endedAt(turn ended) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended[turn]
}

// shorten cuts a message to the length that the server accepts.
func shorten(message string) string {
	return printable.Shorten(printable.Lines(message), v1alpha1.MaxMessageLength)
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

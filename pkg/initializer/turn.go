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
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/util/absent"
)

// errNotOurTurn says that a namespace needs nothing from this initializer now.
var errNotOurTurn = errors.New("it is not this initializer's turn")

// take takes the turn for a namespace, if it is ours. A turn that is over is no error.
func (r *Runner) take(ctx context.Context, name string) error {
	record, namespace, err := r.read(ctx, name)
	if err != nil {
		return ignoreOver(err)
	}
	turnCtx, end := context.WithCancel(ctx)
	defer end()
	r.begin(name, turn{uid: namespace.UID, end: end})
	defer r.finish(name)

	err = r.call(turnCtx, namespace)
	var permanent *failure
	switch {
	case err == nil:
		err = r.remove(ctx, record)
		if err == nil {
			klog.FromContext(ctx).Info("Initialized the namespace", "uid", namespace.UID)
		}
		return ignoreOver(err)
	case errors.As(err, &permanent):
		klog.FromContext(ctx).Error(err, "The initialization of the namespace has failed for good", "uid", namespace.UID)
		return ignoreOver(r.fail(ctx, record, permanent))
	case turnCtx.Err() != nil:
		return nil // the turn is over, and what the function says of that is of no interest
	}
	if sayErr := r.say(ctx, record, err.Error()); sayErr != nil && !errors.Is(sayErr, errNotOurTurn) {
		klog.FromContext(ctx).Error(sayErr, "Cannot write the message into the record")
	}
	return err
}

// read returns the record and the namespace as they are now, if it is this initializer's
// turn. The spec says so, never the status and never a cache.
func (r *Runner) read(ctx context.Context, name string) (*v1alpha1.NamespaceLifecycle, *corev1.Namespace, error) {
	record, err := r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, notFoundIsOver(fmt.Errorf("cannot read the record: %w", err))
	}
	if !r.ours(record) {
		return nil, nil, errNotOurTurn
	}
	namespace, err := r.options.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, notFoundIsOver(fmt.Errorf("cannot read the namespace: %w", err))
	}
	if namespace.UID != record.Spec.NamespaceUID || namespace.DeletionTimestamp != nil {
		return nil, nil, errNotOurTurn
	}
	return record, namespace, nil
}

// ours says whether it is this initializer's turn.
func (r *Runner) ours(record *v1alpha1.NamespaceLifecycle) bool {
	initializers := record.Spec.Initializers
	return record.DeletionTimestamp == nil && initializers != nil && initializers.Result == nil &&
		len(initializers.Pending) > 0 && initializers.Pending[0].Name == r.options.Name
}

// call calls the author's function. A panic is an error like any other.
func (r *Runner) call(ctx context.Context, namespace *corev1.Namespace) (err error) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(nil, "The initializer panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the initializer panicked: %v", p)
		}
	}()
	return r.options.Initialize(context.WithValue(ctx, runnerKey{}, &progress{runner: r, namespace: namespace}), namespace.DeepCopy())
}

// remove removes this initializer from the front of the list.
func (r *Runner) remove(ctx context.Context, read *v1alpha1.NamespaceLifecycle) error {
	return r.initialize(ctx, read, func(record *v1alpha1.NamespaceLifecycle) {
		record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
	})
}

// fail ends the initialization without success.
func (r *Runner) fail(ctx context.Context, read *v1alpha1.NamespaceLifecycle, reason error) error {
	return r.initialize(ctx, read, func(record *v1alpha1.NamespaceLifecycle) {
		record.Spec.Initializers.Result = &metav1.Status{
			Status:  metav1.StatusFailure,
			Reason:  metav1.StatusReasonInternalError,
			Message: shorten(reason.Error()),
		}
	})
}

// initialize writes through the initialize subresource. Each try reads the record again
// and acts on the same incarnation only, while it is still this initializer's turn.
func (r *Runner) initialize(ctx context.Context, read *v1alpha1.NamespaceLifecycle, change func(*v1alpha1.NamespaceLifecycle)) error {
	client := r.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	record := read.DeepCopy()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if record == nil {
			current, err := client.Get(ctx, read.Name, metav1.GetOptions{})
			if err != nil {
				return notFoundIsOver(fmt.Errorf("cannot read the record: %w", err))
			}
			if current.UID != read.UID || !r.ours(current) {
				return errNotOurTurn
			}
			record = current
		}
		change(record)
		_, err := client.Initialize(ctx, record.Name, record, metav1.UpdateOptions{})
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

type runnerKey struct{}

type progress struct {
	runner    *Runner
	namespace *corev1.Namespace
}

// Progress reports how far the initializer is, in words for people, without losing its
// turn. It takes the context that the initializer's function was called with.
func Progress(ctx context.Context, message string) error {
	p, ok := ctx.Value(runnerKey{}).(*progress)
	if !ok {
		return errors.New("the context does not come from a call of an initializer")
	}
	record, err := p.runner.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, p.namespace.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if record.Spec.NamespaceUID != p.namespace.UID {
		return errNotOurTurn
	}
	return p.runner.say(ctx, record, message)
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
	if absent.Is(err) {
		return errors.Join(errNotOurTurn, err)
	}
	return err
}

func ignoreOver(err error) error {
	if errors.Is(err, errNotOurTurn) {
		return nil
	}
	return err
}

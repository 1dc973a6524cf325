/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package follow waits until a namespace is open, or gone, and tells what happens meanwhile.
package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

const (
	// firstInterval and lastInterval are how often a namespace is looked at, at first and
	// later on. Tenants may get a namespace, and often neither list nor watch.
	firstInterval = 100 * time.Millisecond
	lastInterval  = time.Second
)

// Follower follows namespaces.
type Follower struct {
	Core   kubernetes.Interface
	Nsinit versioned.Interface
	Clock  clock.Clock
	// Seen is told what was seen, whenever it was looked at.
	Seen func(Sight)

	// blind says that records cannot be read: the conditions of the namespace have to do.
	blind bool
}

// Sight is what was seen of a namespace.
type Sight struct {
	Namespace *corev1.Namespace
	// Record is nsinit's, or nil if there is none, or whoever asks may not read it.
	Record *v1alpha1.NamespaceLifecycle
}

// Message is what the namespace itself says of its initialization, or "".
func (s Sight) Message() string {
	if condition := s.condition(v1alpha1.ConditionInitializing); condition != nil {
		return printable.Line(condition.Message)
	}
	return ""
}

// condition returns a condition that is True, or nil.
func (s Sight) condition(kind corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	return utilnamespaces.TrueCondition(s.Namespace.Status.Conditions, kind)
}

// Open says whether tenants may write into the namespace.
func (s Sight) Open() bool { return !helper.IsClosed(s.Namespace) }

// failed says why the namespace will never open, or nil.
func (s Sight) failed() error {
	if condition := s.condition(v1alpha1.ConditionInitializing); condition != nil && condition.Reason == v1alpha1.ReasonFailed {
		return fmt.Errorf("the initialization of namespace %q failed: %s", s.Namespace.Name, printable.Line(condition.Message))
	}
	if s.Namespace.DeletionTimestamp != nil {
		return fmt.Errorf("namespace %q is being deleted", s.Namespace.Name)
	}
	return nil
}

// UntilOpen waits until a namespace is open. One that fails, is deleted, or is another one
// than the one with the UID that is given, if one is, never will be, which is an error.
func (f *Follower) UntilOpen(ctx context.Context, name string, uid types.UID) (*corev1.Namespace, error) {
	var last Sight
	namespace, err := f.until(ctx, func() (bool, error) {
		sight, err := f.look(ctx, name)
		switch {
		case apierrors.IsNotFound(err) && uid == "":
			return false, err
		case apierrors.IsNotFound(err):
			return false, fmt.Errorf("namespace %q was deleted before it was open%s", name, because(last))
		case err != nil:
			return false, err
		case uid != "" && sight.Namespace.UID != uid:
			return false, fmt.Errorf("namespace %q was deleted before it was open, and there is another one of this name%s", name, because(last))
		}
		uid, last = sight.Namespace.UID, sight
		f.Seen(sight)
		if err := sight.failed(); err != nil {
			return false, err
		}
		return sight.Open(), nil
	}, &last)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("namespace %q is not open yet%s; see: kubectl nsinit why %s", name, because(last), name)
	}
	return namespace, err
}

// UntilGone waits until a namespace does not exist any more, or is another one.
func (f *Follower) UntilGone(ctx context.Context, name string) error {
	var last Sight
	var uid types.UID
	_, err := f.until(ctx, func() (bool, error) {
		sight, err := f.look(ctx, name)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if uid != "" && sight.Namespace.UID != uid {
			return true, nil
		}
		uid, last = sight.Namespace.UID, sight
		f.Seen(sight)
		return false, nil
	}, &last)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("namespace %q is still there; see: kubectl nsinit why %s", name, name)
	}
	return err
}

func because(last Sight) string {
	if last.Namespace == nil || last.Message() == "" {
		return ""
	}
	return ": " + last.Message()
}

// until looks again and again. Errors that a server mends by itself are tried again.
func (f *Follower) until(ctx context.Context, done func() (bool, error), last *Sight) (*corev1.Namespace, error) {
	for interval := firstInterval; ; interval = min(interval*5/4, lastInterval) {
		ok, err := done()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && !passing(err):
			return nil, err
		case ok:
			return last.Namespace, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.Clock.After(interval):
		}
	}
}

// passing says whether a server may answer otherwise in a moment.
func passing(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}

// look reads the namespace, and its record if it may be read.
func (f *Follower) look(ctx context.Context, name string) (Sight, error) {
	namespace, err := f.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Sight{}, err
	}
	sight := Sight{Namespace: namespace}
	if f.blind {
		return sight, nil
	}
	record, err := f.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil && record.Spec.NamespaceUID == namespace.UID:
		sight.Record = record
	case apierrors.IsForbidden(err):
		f.blind = true
	}
	return sight, nil
}

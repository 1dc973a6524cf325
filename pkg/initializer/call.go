/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

type callKey struct{}

// call is what the context of a call of an author's function knows.
type call struct {
	runner    *Runner
	record    *v1alpha1.NamespaceLifecycle
	namespace *corev1.Namespace
	operation operation
}

// errNoCall is for contexts that do not come from a Runner.
var errNoCall = errors.New("the context does not come from a call of an initializer")

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// Progress reports how far the initializer is, in words for people, without losing its
// turn. It takes the context that the initializer's function was called with.
func Progress(ctx context.Context, message string) error {
	c := callOf(ctx)
	if c == nil {
		return errNoCall
	}
	if c.runner.options.DryRun {
		return nil
	}
	record, err := c.runner.options.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, c.namespace.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if record.Spec.NamespaceUID != c.namespace.UID {
		return errOver
	}
	return c.runner.say(ctx, record, message)
}

// IdempotencyKey returns a key that is the same for each call of the function for the same
// namespace, and another one for each other namespace, also of the same name, and for the
// initializer's other function: "UID of the namespace/name of the initializer/initialize" or
// ".../finalize". It is "" for a context that does not come from a call.
func IdempotencyKey(ctx context.Context) string {
	c := callOf(ctx)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s/%s", c.namespace.UID, c.runner.options.Name, c.operation)
}

// NeverInitialized says, in a call of Finalize, that the initializer never had its turn for
// this namespace, so that it made nothing that could be left.
func NeverInitialized(ctx context.Context) bool {
	c := callOf(ctx)
	if c == nil {
		return false
	}
	entry := helper.Entry(c.record, c.runner.options.Name)
	return entry != nil && entry.StartTime == nil
}

// IsDryRun says that the call is to change nothing.
func IsDryRun(ctx context.Context) bool {
	c := callOf(ctx)
	return c != nil && c.runner.options.DryRun
}

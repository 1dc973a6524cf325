/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"errors"
	"fmt"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

type callKey struct{}

// call is a call of an author's function in one turn. Its context has it as a value.
type call struct {
	runner *Runner
	// lifecycle is that of a namespace. It is nil for a pod or Job.
	lifecycle *v1alpha1.NamespaceLifecycle
	// object is the namespace, pod or Job.
	object    Object
	operation operation
	end       context.CancelFunc
}

// entry returns the initializer's entry in the status, or nil.
func (c *call) entry() *v1alpha1.InitializerStatus {
	if c.lifecycle == nil {
		return nil
	}
	return helper.Entry(c.lifecycle, c.runner.options.Name)
}

// turn identifies the turn.
func (c *call) turn() ended {
	if c.lifecycle == nil {
		return ended{c.object.GetUID(), c.operation}
	}
	return ended{c.lifecycle.UID, c.operation}
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// Progress writes a message about the progress to the NamespaceLifecycle; the initializer keeps its turn. ctx is the
// context of the call.
func Progress(ctx context.Context, message string) error {
	c := callOf(ctx)
	if c == nil || c.lifecycle == nil {
		return errors.New("the context does not come from a call of an initializer")
	}
	if c.runner.options.DryRun {
		return nil
	}
	return c.runner.updateMessage(ctx, c.lifecycle, message)
}

// IdempotencyKey returns a key that is the same for each call of the function for the same namespace:
// "UID of the namespace/name of the initializer/initialize" or ".../finalize". It is different for another namespace of
// the same name, and "" for a context that does not come from a call. In a call of InitializeObject, the UID is that of the object.
func IdempotencyKey(ctx context.Context) string {
	c := callOf(ctx)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s/%s", c.object.GetUID(), c.runner.options.Name, c.operation)
}

// NeverInitialized reports, in a call of Finalize, that the initializer never had its turn for this namespace, and so
// has nothing to clean up.
func NeverInitialized(ctx context.Context) bool {
	c := callOf(ctx)
	return c != nil && c.entry() != nil && c.entry().StartTime == nil
}

// IsDryRun reports that the call must change nothing.
func IsDryRun(ctx context.Context) bool {
	c := callOf(ctx)
	return c != nil && c.runner.options.DryRun
}

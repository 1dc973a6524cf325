/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package workers handles the keys of a queue, several at a time.
package workers

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Run calls handle for each key of the queue, at most count at a time, until the context
// ends. It shuts the queue down and returns when every call has. A key whose call returned
// an error is tried again, after the delay that the queue's rate limiter gives, or that an error
// with a method RetryAfter names. The error
// is logged, unless it is a conflict, which is the ordinary course of optimistic writes, or
// the context has ended.
func Run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], count int, handle func(ctx context.Context, key string) error) {
	var group sync.WaitGroup
	for range count {
		group.Go(func() {
			for next(ctx, queue, handle) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	group.Wait()
}

// next handles one key, and returns false when the queue is shut down.
func next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], handle func(context.Context, string) error) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() != nil {
		return true // what is left in the queue is for whoever runs next
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "name", key)
	err := handle(klog.NewContext(ctx, logger), key)
	switch {
	case err == nil:
		queue.Forget(key)
		return true
	case ctx.Err() != nil:
		return true
	case apierrors.IsConflict(err):
		logger.V(4).Info("Somebody else wrote at the same time, trying again", "err", err)
	default:
		logger.Error(err, "Failed, trying again", "tries", queue.NumRequeues(key)+1)
	}
	if later, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		queue.AddAfter(key, later.RetryAfter())
		return true
	}
	queue.AddRateLimited(key)
	return true
}

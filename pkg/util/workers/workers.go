/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package workers has queues of names, and handles these names concurrently.
package workers

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// Run calls handle for each key of the queue, at most count at a time, until the context ends. It shuts
// the queue down, and returns when every call has returned. After an error, the key is re-queued with
// the delay of the queue's rate limiter, or that of the error's method RetryAfter. The error is logged,
// unless the context has ended. A conflict is logged only with -v=4.
func Run(ctx context.Context, queue Queue, count int, handle func(ctx context.Context, key string) error) {
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

// next handles one key. It returns false when the queue is shut down.
func next(ctx context.Context, queue Queue, handle func(context.Context, string) error) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() != nil {
		return true // drain the queue
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
		logger.V(4).Info("The object changed since it was read, retrying", "err", err)
	default:
		logger.Error(err, "Failed, retrying", "tries", queue.NumRequeues(key)+1)
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

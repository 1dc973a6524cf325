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
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
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

// Queue is a queue of names, which Run handles.
type Queue = workqueue.TypedRateLimitingInterface[string]

// NewQueue returns a queue whose delay after an error grows from minDelay to maxDelay. Its metrics have the name.
func NewQueue(name string, clock clock.WithTicker, minDelay, maxDelay time.Duration) Queue {
	return NewFairQueue(name, clock, minDelay, maxDelay, nil)
}

// NewFairQueue returns a queue that passes on one name of each group in turn, so that the namespaces of one user do not delay those of
// others. groupOf returns the group of a name when the name is added, such as the creator of a namespace. It must not use the queue.
// Without it, all names are one group.
func NewFairQueue(name string, clock clock.WithTicker, minDelay, maxDelay time.Duration, groupOf func(name string) string) Queue {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: name, Clock: clock, Queue: &groups{of: groupOf, names: map[string][]string{}}})
	return workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minDelay, maxDelay),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: name, Clock: clock,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: name, Clock: clock, Queue: queue})})
}

// groups implements workqueue.Queue.
type groups struct {
	of func(name string) string
	// names are those of each group that has any, and turns the groups in the order of their turns.
	names map[string][]string
	turns []string
	count int
}

func (g *groups) Touch(string) {}

func (g *groups) Len() int { return g.count }

func (g *groups) Push(name string) {
	group := ""
	if g.of != nil {
		group = g.of(name)
	}
	if len(g.names[group]) == 0 {
		g.turns = append(g.turns, group)
	}
	g.names[group] = append(g.names[group], name)
	g.count++
}

func (g *groups) Pop() string {
	group := g.turns[0]
	g.turns = g.turns[1:]
	name, rest := g.names[group][0], g.names[group][1:]
	if len(rest) > 0 {
		g.names[group], g.turns = rest, append(g.turns, group)
	} else {
		delete(g.names, group)
	}
	g.count--
	return name
}

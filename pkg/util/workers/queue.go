/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package workers

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

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

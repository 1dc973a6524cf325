/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package fair has a work queue in which the namespaces of one user do not delay those of others.
package fair

import (
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// NewQueue returns a rate-limited queue of names. It passes on one name of each group in turn. groupOf returns the group of a name
// when the name is added, such as the creator of a namespace. It must not use the queue.
func NewQueue(name string, clock clock.WithTicker, limiter workqueue.TypedRateLimiter[string], groupOf func(name string) string) workqueue.TypedRateLimitingInterface[string] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: name, Clock: clock, Queue: &groups{of: groupOf, names: map[string][]string{}}})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: name, Clock: clock,
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
	group := g.of(name)
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

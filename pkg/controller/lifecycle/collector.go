/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
)

// Collector measures namespaces and lifecycles when metrics are collected.
type Collector struct {
	metrics.BaseStableCollector
	namespaces corelisters.NamespaceLister
	lifecycles listers.NamespaceLifecycleLister
	clock      clock.PassiveClock

	pending, byPhase, turns, oldest, participants *metrics.Desc
}

// NewCollector returns a collector of what the listers return.
func NewCollector(namespaces corelisters.NamespaceLister, lifecycles listers.NamespaceLifecycleLister, clock clock.PassiveClock) *Collector {
	desc := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(metrics.BuildFQName(metricsNamespace, metricsSubsystem, name), help, labels, nil, metrics.ALPHA, "")
	}
	return &Collector{
		namespaces: namespaces, lifecycles: lifecycles, clock: clock,
		pending:      desc("pending_namespaces", "Number of closed namespaces, as the leader sees them."),
		byPhase:      metrics.NewDesc(metrics.BuildFQName(metricsNamespace, "", "lifecycles"), "Number of NamespaceLifecycles in each phase, as the leader sees them.", []string{"phase"}, nil, metrics.ALPHA, ""),
		turns:        desc("turns", "Number of namespaces in which an initializer has its turn. Several initializers can have their turn in the same namespace.", "initializer"),
		oldest:       desc("oldest_turn_seconds", "How long the longest current turn of an initializer has lasted, in seconds.", "initializer"),
		participants: desc("participant_age_seconds", "How long the oldest deleted namespace has waited for a participant, in seconds.", "participant"),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *Collector) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{c.pending, c.byPhase, c.turns, c.oldest, c.participants} {
		descriptions <- desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *Collector) CollectWithStability(collected chan<- metrics.Metric) {
	gauge := func(desc *metrics.Desc, value float64, labels ...string) {
		collected <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, labels...)
	}
	namespaces, _ := c.namespaces.List(labels.Everything()) // a cache has no error
	pending := 0
	for _, namespace := range namespaces {
		if helper.IsClosed(namespace) {
			pending++
		}
	}
	gauge(c.pending, float64(pending))

	lifecycles, _ := c.lifecycles.List(labels.Everything())
	now := c.clock.Now()
	// A phase without lifecycles is exported as 0.
	phases := map[v1alpha1.LifecyclePhase]int{v1alpha1.LifecycleInitializing: 0, v1alpha1.LifecycleActive: 0, v1alpha1.LifecycleTerminating: 0}
	turns, oldest, participants := map[string]int{}, map[string]time.Duration{}, map[string]time.Duration{}
	for _, lifecycle := range lifecycles {
		phases[lifecycle.Status.Phase]++
		for _, name := range helper.Acting(lifecycle) {
			turns[name]++
			if began := helper.TurnStart(lifecycle, name); began != nil {
				oldest[name] = max(oldest[name], now.Sub(began.Time))
			}
		}
		if lifecycle.DeletionTimestamp != nil {
			for _, name := range helper.Participants(lifecycle) {
				participants[name] = max(participants[name], now.Sub(lifecycle.DeletionTimestamp.Time))
			}
		}
	}
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		gauge(c.byPhase, float64(phases[phase]), string(phase))
	}
	for _, name := range slices.Sorted(maps.Keys(turns)) {
		gauge(c.turns, float64(turns[name]), name)
		gauge(c.oldest, oldest[name].Seconds(), name)
	}
	for _, name := range slices.Sorted(maps.Keys(participants)) {
		gauge(c.participants, participants[name].Seconds(), name)
	}
}

// ended returns the status entries that ended between two versions of a lifecycle.
func ended(oldLifecycle, newLifecycle *v1alpha1.NamespaceLifecycle) []v1alpha1.InitializerStatus {
	var entries []v1alpha1.InitializerStatus
	for _, entry := range newLifecycle.Status.Initializers {
		running := slices.ContainsFunc(oldLifecycle.Status.Initializers, func(e v1alpha1.InitializerStatus) bool { return e.Name == entry.Name && e.EndTime == nil })
		if running && entry.StartTime != nil && entry.EndTime != nil && oldLifecycle.UID == newLifecycle.UID {
			entries = append(entries, entry)
		}
	}
	return entries
}

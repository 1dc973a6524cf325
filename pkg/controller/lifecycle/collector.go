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
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/pkg/generated/listers/nsinit/v1alpha1"
)

// Collector measures the records when it is asked for metrics.
type Collector struct {
	metrics.BaseStableCollector
	records listers.NamespaceLifecycleLister
	clock   clock.PassiveClock

	byPhase, turns, oldest *metrics.Desc
}

// NewCollector returns a collector of the records that a lister knows.
func NewCollector(records listers.NamespaceLifecycleLister, clock clock.PassiveClock) *Collector {
	desc := func(name, help, label string) *metrics.Desc {
		return metrics.NewDesc(metrics.BuildFQName(metricsNamespace, metricsSubsystem, name), help, []string{label}, nil, metrics.ALPHA, "")
	}
	return &Collector{
		records: records, clock: clock,
		byPhase: desc("records", "Number of records by phase, as the instance that leads sees them.", "phase"),
		turns:   desc("turns", "Number of namespaces that wait for an initializer whose turn it is.", "initializer"),
		oldest:  desc("oldest_turn_seconds", "How long the longest of these turns has lasted, in seconds.", "initializer"),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *Collector) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{c.byPhase, c.turns, c.oldest} {
		descriptions <- desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *Collector) CollectWithStability(collected chan<- metrics.Metric) {
	records, err := c.records.List(labels.Everything())
	if err != nil {
		return // it reads from memory
	}
	now := c.clock.Now()
	// Each phase is there, so that its absence is no gap.
	phases := map[v1alpha1.LifecyclePhase]int{v1alpha1.LifecycleInitializing: 0, v1alpha1.LifecycleActive: 0, v1alpha1.LifecycleTerminating: 0}
	turns, oldest := map[string]int{}, map[string]time.Duration{}
	for _, record := range records {
		phases[record.Status.Phase]++
		if name := record.Status.CurrentInitializer; name != "" {
			turns[name]++
			oldest[name] = max(oldest[name], turnAge(record, now))
		}
	}
	gauge := func(desc *metrics.Desc, value float64, label string) {
		collected <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, label)
	}
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		gauge(c.byPhase, float64(phases[phase]), string(phase))
	}
	for _, name := range slices.Sorted(maps.Keys(turns)) {
		gauge(c.turns, float64(turns[name]), name)
		gauge(c.oldest, oldest[name].Seconds(), name)
	}
}

// turnAge returns how long the current turn has lasted.
func turnAge(record *v1alpha1.NamespaceLifecycle, now time.Time) time.Duration {
	if record.Spec.Initializers == nil || record.Spec.Initializers.TurnStartTime == nil {
		return 0
	}
	return max(0, now.Sub(record.Spec.Initializers.TurnStartTime.Time))
}

// ended returns the entries of the status that ended between two versions of a record.
func ended(before, after *v1alpha1.NamespaceLifecycle) []v1alpha1.InitializerStatus {
	var entries []v1alpha1.InitializerStatus
	for _, entry := range after.Status.Initializers {
		running := slices.ContainsFunc(before.Status.Initializers, func(e v1alpha1.InitializerStatus) bool { return e.Name == entry.Name && e.EndTime == nil })
		if running && entry.StartTime != nil && entry.EndTime != nil && before.UID == after.UID {
			entries = append(entries, entry)
		}
	}
	return entries
}

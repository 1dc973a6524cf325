/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

import "k8s.io/component-base/metrics"

// Gauge is a gauge without labels that is measured when metrics are collected. Unlike a
// metrics.GaugeFunc, it can be registered without a panic.
type Gauge struct {
	metrics.BaseStableCollector
	desc    *metrics.Desc
	measure func() float64
}

// NewGauge returns a gauge that is not registered yet. Underscores join the parts of its name.
func NewGauge(namespace, subsystem, name, help string, measure func() float64) *Gauge {
	return &Gauge{desc: metrics.NewDesc(metrics.BuildFQName(namespace, subsystem, name), help, nil, nil, metrics.ALPHA, ""), measure: measure}
}

// DescribeWithStability implements metrics.StableCollector.
func (g *Gauge) DescribeWithStability(descriptions chan<- *metrics.Desc) { descriptions <- g.desc }

// CollectWithStability implements metrics.StableCollector.
func (g *Gauge) CollectWithStability(collected chan<- metrics.Metric) {
	collected <- metrics.NewLazyConstMetric(g.desc, metrics.GaugeValue, g.measure())
}

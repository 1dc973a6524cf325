/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configuration

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
)

// Collector measures configurations when metrics are collected.
type Collector struct {
	metrics.BaseStableCollector
	configurations listers.NamespaceInitializerConfigurationLister
	served         *metrics.Desc
}

// NewCollector returns a collector of what the lister returns.
func NewCollector(configurations listers.NamespaceInitializerConfigurationLister) *Collector {
	return &Collector{configurations: configurations, served: metrics.NewDesc(metrics.BuildFQName("nsinit", "initializer", "served"),
		"1 while a program reports that it serves the initializer, and 0 after the reports have ended. The metric is absent before the first report.",
		[]string{"configuration", "initializer"}, nil, metrics.ALPHA, "")}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *Collector) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	descriptions <- c.served
}

// CollectWithStability implements metrics.StableCollector.
func (c *Collector) CollectWithStability(collected chan<- metrics.Metric) {
	configurations, _ := c.configurations.List(labels.Everything()) // a cache has no error
	for _, configuration := range configurations {
		for _, initializer := range configuration.Initializers {
			entry := helper.RegistrationStatus(configuration, initializer.Name)
			if entry == nil {
				continue
			}
			if condition := meta.FindStatusCondition(entry.Conditions, v1alpha1.ConditionServed); condition != nil && condition.Status != metav1.ConditionUnknown {
				value := 0.0
				if condition.Status == metav1.ConditionTrue {
					value = 1
				}
				collected <- metrics.NewLazyConstMetric(c.served, metrics.GaugeValue, value, configuration.Name, initializer.Name)
			}
		}
	}
}

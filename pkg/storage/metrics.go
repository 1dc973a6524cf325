/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

import (
	"errors"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
)

// Register registers the metrics of a Monitor with the given function of a registry.
func (m *Monitor) Register(register func(prometheus.Collector) error) error {
	gauge := func(name, help string, measure func() float64) error {
		return register(metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Namespace: "nsinit", Subsystem: "storage", Name: name, Help: help, StabilityLevel: metrics.ALPHA,
		}, measure))
	}
	var errs []error
	for _, size := range []struct {
		name, help string
		measure    func(Usage) int64
	}{
		{"size_bytes", "Size of the etcd database, in bytes. If etcd has several members, this is the size on the fullest member. The value is NaN while the size is unknown.", func(u Usage) int64 { return u.Size }},
		{"in_use_bytes", "Size of the data in the etcd database, including old revisions, in bytes. The value is NaN while the size is unknown.", func(u Usage) int64 { return u.InUse }},
		{"quota_bytes", "Quota of the etcd database, in bytes. etcd refuses writes when the database reaches this size. The value is NaN while the quota is unknown.", func(u Usage) int64 { return u.Quota }},
	} {
		errs = append(errs, gauge(size.name, size.help, func() float64 {
			usage, known := m.Usage()
			if !known || usage.Quota == 0 && size.name == "quota_bytes" {
				return math.NaN()
			}
			return float64(size.measure(usage))
		}))
	}
	return errors.Join(append(errs, gauge("full",
		"1 while nsinit-apiserver cannot create objects, because the storage is full or the embedded etcd does not run, and 0 otherwise.", func() float64 {
			if m.Problem() != nil {
				return 1
			}
			return 0
		}))...)
}

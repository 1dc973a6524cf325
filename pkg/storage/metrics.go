/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

import (
	"errors"
	"math"

	"k8s.io/component-base/metrics"
)

// Register registers the metrics of a Monitor with the given function of a registry.
func (m *Monitor) Register(register func(metrics.StableCollector) error) error {
	const namespace, subsystem = "nsinit", "storage"
	var errs []error
	for _, gauge := range []struct {
		name, help string
		measure    func(Usage) int64
	}{
		{"size_bytes", "Size of the etcd database of the fullest member, in bytes. NaN while it is not known.", func(u Usage) int64 { return u.Size }},
		{"in_use_bytes", "Used size of the etcd database, in bytes, with old revisions. NaN while it is not known.", func(u Usage) int64 { return u.InUse }},
		{"quota_bytes", "Size of the etcd database at which etcd refuses writes, in bytes. NaN while it is not known.", func(u Usage) int64 { return u.Quota }},
	} {
		errs = append(errs, register(NewGauge(namespace, subsystem, gauge.name, gauge.help, func() float64 {
			usage, known := m.Usage()
			if !known || usage.Quota == 0 && gauge.name == "quota_bytes" {
				return math.NaN()
			}
			return float64(gauge.measure(usage))
		})))
	}
	return errors.Join(append(errs, register(NewGauge(namespace, subsystem, "full",
		"1 while no object can be created because the storage is full, or because the embedded etcd is not running; 0 otherwise.", func() float64 {
			if m.Problem() != nil {
				return 1
			}
			return 0
		})))...)
}

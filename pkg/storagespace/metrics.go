/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storagespace

import (
	"errors"
	"math"

	"k8s.io/component-base/metrics"

	"github.com/nsinit/nsinit/pkg/util/measured"
)

// Register registers the metrics of a Monitor with a registry, whose function is given.
func (m *Monitor) Register(register func(metrics.StableCollector) error) error {
	const namespace, subsystem = "nsinit", "storage"
	var errs []error
	for _, gauge := range []struct {
		name, help string
		measure    func(Usage) int64
	}{
		{"size_bytes", "Size of etcd's database, in bytes, of the fullest member. NaN while it is not known.", func(u Usage) int64 { return u.Size }},
		{"in_use_bytes", "What of etcd's database is in use, in bytes, old revisions included. NaN while it is not known.", func(u Usage) int64 { return u.InUse }},
		{"quota_bytes", "Size of the database from which etcd refuses writes, in bytes. NaN while it is not known.", func(u Usage) int64 { return u.Quota }},
	} {
		errs = append(errs, register(measured.NewGauge(namespace, subsystem, gauge.name, gauge.help, func() float64 {
			usage, known := m.Usage()
			if !known || usage.Quota == 0 && gauge.name == "quota_bytes" {
				return math.NaN()
			}
			return float64(gauge.measure(usage))
		})))
	}
	return errors.Join(append(errs, register(measured.NewGauge(namespace, subsystem, "full",
		"1 while nothing can be created because the storage is full, or because the embedded etcd does not run; 0 otherwise.", func() float64 {
			if m.Problem() != nil {
				return 1
			}
			return 0
		})))...)
}

//go:build failpoints

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package timing

import (
	"time"

	"k8s.io/utils/clock"
)

// SystemClock returns the clock of this machine, shifted by the failpoint clockOffset.
func SystemClock() clock.WithTicker { return skewed{} }

// skewed is a clock with a wrong time. Its timers are correct.
type skewed struct{ clock.RealClock }

// Now implements clock.PassiveClock.
func (skewed) Now() time.Time { return time.Now().Add(offset()) }

// Since implements clock.PassiveClock.
func (c skewed) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// offset returns the value of the failpoint, such as "-90s".
func offset() time.Duration {
	// gofail: var clockOffset string
	// if duration, err := time.ParseDuration(clockOffset); err == nil { return duration }
	return 0
}

//go:build failpoints

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package systemclock

import (
	"time"

	"k8s.io/utils/clock"
)

// New returns the clock of this machine, which the failpoint clockOffset sets forward or back.
func New() clock.WithTicker { return skewed{} }

// skewed is a clock that shows another time. Its timers take as long as those of any clock.
type skewed struct{ clock.RealClock }

// Now implements clock.PassiveClock.
func (skewed) Now() time.Time { return time.Now().Add(offset()) }

// Since implements clock.PassiveClock.
func (c skewed) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// offset returns what the failpoint says, such as "-90s".
func offset() time.Duration {
	// gofail: var clockOffset string
	// if duration, err := time.ParseDuration(clockOffset); err == nil { return duration }
	return 0
}

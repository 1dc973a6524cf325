//go:build !failpoints

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package systemclock

import "k8s.io/utils/clock"

// New returns the clock of this machine.
func New() clock.WithTicker { return clock.RealClock{} }

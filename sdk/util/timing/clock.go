//go:build !failpoints

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package timing

import "k8s.io/utils/clock"

// SystemClock returns the clock of this machine.
func SystemClock() clock.WithTicker { return clock.RealClock{} }

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package clockdrift says how far the clocks of two machines may be apart. Whoever compares
// its own clock with a time that another machine wrote waits that much longer.
package clockdrift

import "time"

// Max is how far two clocks may be apart.
const Max = 10 * time.Second

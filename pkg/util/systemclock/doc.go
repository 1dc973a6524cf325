/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package systemclock provides the clock of nsinit's programs, so that the programs that
// hack/build-failpoints.sh builds can have wrong clocks.
package systemclock

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package systemclock provides the clock of nsinit's programs. They take it here, and pass it to
// what needs the time, so that the programs that hack/build-failpoints.sh builds can have clocks
// that are wrong.
package systemclock

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package history records what happened to a control plane: every request of every client,
// with its beginning and its end, and every change of both etcds, in their own order.
//
// A Recorder collects while the control plane runs. The History that it returns is plain
// data: it is written as JSON lines, and package check judges it, immediately or years later.
package history

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package fault is the table of what a campaign does to a control plane. Each fault is injected,
// held for a while, and healed. What it needs of the topology is in the table, so that a smaller
// topology runs the faults that it can.
package fault

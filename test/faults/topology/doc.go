/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package topology makes the control planes that a campaign runs on usable for its faults.
package topology

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package topology makes the control planes of package cluster usable for the faults of a campaign.
package topology

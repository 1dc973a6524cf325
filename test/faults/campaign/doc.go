/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package campaign injects every fault many times, in rounds. Each round has a traffic and a history
// of its own, ends with every fault healed, and is judged by every check. What was reached is
// stored after each round, so that a campaign that was interrupted goes on where it was.
package campaign

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package campaign injects every fault many times, in rounds. Each round has separate traffic and a separate
// history, ends with every fault healed, and runs every check. The state is stored after each round, so an
// interrupted campaign resumes.
package campaign

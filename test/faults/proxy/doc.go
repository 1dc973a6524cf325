/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package proxy passes TCP connections between programs on and disturbs them: a Link delays,
// drops or cuts what goes through it, until it is healed.
//
// A link works on streams, not on packets. A dropped link holds bytes back and delivers them when it
// is healed, as TCP does after a partition. A peer that connects through a link to a program that does
// not listen is accepted and then reset, where it would have been refused.
package proxy

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package freeze reports in the condition Frozen of each namespace, and in events, that an administrator froze or unfroze it.
// The policies in artifacts/policies/freeze.yaml refuse the writes, whether this controller runs or not.
package freeze

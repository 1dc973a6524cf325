/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package seeded tests the tests: it holds bugs, as patches against the source, each with the
// scenario of the campaign that triggers it and the check that must find it. README.md beside it
// has the table.
package seeded

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package driftcontroller corrects drift in open namespaces: an object that is to follow its manifest is repaired
// when somebody changes or deletes it and when the population changes, what is no longer in a
// population is removed, and the status of each population reports what was applied and whether the population could be
// applied to a new namespace.
package driftcontroller

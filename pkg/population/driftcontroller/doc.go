/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package driftcontroller corrects drift in open namespaces. It repairs an object whose DriftPolicy is Repair when a client
// changes or deletes it and when the population or the labels of the namespace change, and deletes objects without a
// manifest. A repair does not wait while a changed population is applied to other namespaces. The status of each population
// reports what was applied, and whether the population could be applied to a new namespace.
package driftcontroller

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package controller applies populations to open namespaces. It repairs an object whose DriftPolicy is Repair when a client
// changes or deletes it and when the population or the labels of the namespace change, and deletes objects without a
// manifest. It rolls populations with scope All out to namespaces that exist. A repair does not wait while a changed population
// is applied to other namespaces. The status of each population reports what was applied, the progress of its rollout, and whether the
// population could be applied to a new namespace.
package controller

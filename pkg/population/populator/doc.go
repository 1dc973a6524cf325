/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package populator applies NamespacePopulations to namespaces: all manifests before the namespaces are opened, and
// afterwards those whose drift is repaired. It adds each object to the inventory of the namespace, its
// PopulatedNamespace, before it applies the object, so that a crash at any step loses no object.
package populator

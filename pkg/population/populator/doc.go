/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package populator puts what NamespacePopulations hold into namespaces: all of it before they
// are opened, and afterwards what is to follow its manifest. What is in a namespace is written
// into its PopulatedNamespace before it is applied, so that nothing is forgotten, however this
// process ends.
package populator

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package population makes objects of NamespacePopulations: it compiles them, renders the
// manifests for a namespace, and applies what comes of it by server-side apply.
package population

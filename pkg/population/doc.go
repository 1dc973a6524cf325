/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package population compiles NamespacePopulations, renders their manifests for a namespace, and applies the objects with
// server-side apply.
package population

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package population applies manifests with parameters to namespaces. Strings in a
// manifest may hold CEL expressions, which see the namespace and its creator; what they
// yield is data. Objects are applied server-side, under a field manager of the
// initializer's name.
package population

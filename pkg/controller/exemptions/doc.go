/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package exemptions reads the list of exemptions from a ConfigMap. The admission policies read the same ConfigMap. While it
// does not exist, the controller must not change any namespace.
//
// The controller ignores namespaces that are exempt by name. It does not know the creator of a namespace that was not stamped.
// A namespace that is exempt by its creator is therefore like one that is older than nsinit: it is open, and gets a
// NamespaceLifecycle without initializers and the condition Ready.
package exemptions

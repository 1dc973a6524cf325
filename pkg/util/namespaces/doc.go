/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namespaces has what apimachinery lacks for namespaces: it sets their conditions, which are of a type of
// their own, and lists what is in a namespace.
package namespaces

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package exemptions reads the list of namespaces that nsinit leaves alone. It is kept in
// a ConfigMap, which the admission policies read, too, so there is one list. While it is
// missing, nobody knows which namespaces are exempt, and nothing may be done to any.
package exemptions

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package exemptions reads the list of exempt namespaces from a ConfigMap. The admission policies read
// the same ConfigMap. While it does not exist, the controller must not change any namespace.
package exemptions

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namereuse maintains the list of names for which no namespace can be created yet. These are the names
// of terminating namespaces, and of namespaces that were removed a short time ago. The list is a ConfigMap, the
// parameter of the policy nsinit-strict-name-reuse. Without the ConfigMap the controller does nothing.
package namereuse

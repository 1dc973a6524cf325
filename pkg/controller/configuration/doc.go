/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package configuration holds the controller that counts the namespaces that wait for each
// configuration. It releases a deleted configuration when no namespace waits for it, or can wait for
// it later.
package configuration

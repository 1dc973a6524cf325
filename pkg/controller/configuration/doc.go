/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package configuration holds the controller that counts, for each configuration, the
// namespaces that wait for it, and lets a deleted configuration leave once there are
// none and none can come any more.
package configuration

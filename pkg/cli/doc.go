/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package cli is the kubectl plugin kubectl-nsinit. Each command is a package, in kubectl's shape: Options with Complete,
// Validate and Run. A new command is one file, and one entry in NewCommand.
package cli

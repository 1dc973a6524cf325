/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package cli is the kubectl plugin kubectl-nsinit. A package below has one command, or a few of one kind, in kubectl's shape:
// options with Validate and Run. A new command is one file, and one entry in NewCommand.
package cli

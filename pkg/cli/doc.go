/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package cli is the kubectl plugin kubectl-nsinit: a command in a package each. It follows
// kubectl's conventions for flags, output and exit codes.
package cli

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package exit lets a command end with an exit code that is an answer, not an error.
package exit

import "fmt"

// Code is an exit code. Whoever gets it as an error has nothing to print.
type Code int

// Error implements error.
func (c Code) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

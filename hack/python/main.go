/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command python is Python with its standard library, so that tests do not depend on that of the machine. On its first run,
// it extracts the files to the temporary folder.
package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/kluctl/go-embed-python/python"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run replaces this process by Python.
func run() error {
	embedded, err := python.NewEmbeddedPython("nsinit")
	if err != nil {
		return fmt.Errorf("cannot extract Python: %w", err)
	}
	command, err := embedded.PythonCmd(os.Args[1:]...)
	if err != nil {
		return err
	}
	return syscall.Exec(command.Path, command.Args, command.Environ()) //nolint:gosec // the file was extracted above
}

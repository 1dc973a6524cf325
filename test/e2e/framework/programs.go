/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// FreePort returns a port of the loopback interface that nobody listens on.
func FreePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

// Dev runs a command of the dev program for the control plane, such as start, stop or kill of one
// program, and returns its output.
func (c *Cluster) Dev(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(c.Root, "_output", "bin", "dev"), append([]string{"--dir", c.Dir}, command...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// Arguments returns the arguments with which a program of the control plane runs.
func (c *Cluster) Arguments(t *testing.T, program string) []string {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(c.Dir, program+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]
}

// Build builds a program of a module of this repository, where run finds it.
func (c *Cluster) Build(t *testing.T, module, program, pkg string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(c.Root, "_output", "bin", program), pkg)
	command.Dir = filepath.Join(c.Root, module)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// Run runs a program until the test ends.
func (c *Cluster) Run(t *testing.T, program string, args ...string) *os.Process {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), program+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(filepath.Join(c.Root, "_output", "bin", program), args...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s (%s):\n%s", program, strconv.Itoa(command.Process.Pid), said[max(0, len(said)-8000):])
		}
		_ = log.Close()
	})
	return command.Process
}

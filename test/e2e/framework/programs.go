/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
)

// Dev runs a command of hack/dev for the control plane, such as start, stop or kill of a program. It returns the output.
func (c *Cluster) Dev(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(BinDir(), "dev"), append([]string{"--dir", c.Dir}, command...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// KillController waits until nsinit-controller-manager leads, kills it, and starts another one, which leads immediately.
func (c *Cluster) KillController(t *testing.T) {
	t.Helper()
	const program = "nsinit-controller-manager"
	Eventually(t, program+" leads", func(ctx context.Context) error {
		lease, err := c.Core.CoordinationV1().Leases("nsinit-system").Get(ctx, program, metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
			err = errors.New("the Lease has no holder")
		}
		return err
	})
	c.Dev(t, "kill", program)
	c.DeleteLease(t, program)
	c.Dev(t, "start", program)
}

// DeleteLease deletes the Lease of a killed program, so that the next leader does not wait until it expires.
func (c *Cluster) DeleteLease(t *testing.T, program string) {
	t.Helper()
	if err := c.Core.CoordinationV1().Leases("nsinit-system").Delete(context.Background(), program, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

var builds sync.Map //nolint:gochecknoglobals // each program is built once in a process

// Build builds a program from a package of a module of this project. Run finds it. The tests that run meanwhile have
// priority.
func (c *Cluster) Build(t *testing.T, module, program, pkg string) {
	t.Helper()
	build, _ := builds.LoadOrStore(program, sync.OnceValue(func() error {
		command := exec.Command("nice", "-n", "19", "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(BinDir(), program), pkg)
		command.Dir = filepath.Join(c.Root, module)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}))
	if err := build.(func() error)(); err != nil {
		t.Fatalf("cannot build %s: %v", program, err)
	}
}

// Run runs a program until the test ends. If the test fails, it prints the end of the program's log.
func (c *Cluster) Run(t *testing.T, program string, args ...string) *os.Process {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), program+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(programPath(program), args...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s (%d):\n%s", program, command.Process.Pid, said[max(0, len(said)-8000):])
		}
		_ = log.Close()
	})
	return command.Process
}

// programPath returns the path of a program. Those of Kubernetes have the version of the control plane.
func programPath(program string) string {
	older := filepath.Join(BinDir(), os.Getenv("NSINIT_DEV_KUBERNETES"), program)
	if _, err := os.Stat(older); err == nil {
		return older
	}
	return filepath.Join(BinDir(), program)
}

// Arguments returns the arguments of a running program of the control plane.
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

// FreePort returns a port of the loopback interface that is not in use. Connections do not get it while a program restarts.
func FreePort(t *testing.T) string {
	t.Helper()
	const name = "port"
	ports, err := controlplane.FreePorts([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(ports[name])
}

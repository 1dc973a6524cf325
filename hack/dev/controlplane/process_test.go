/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestForeignPid: a process of another program, which got the pid of ours, is not killed.
func TestForeignPid(t *testing.T) {
	dir := t.TempDir()
	p := &Process{Name: "sleeper", Program: "/bin/sleep", Args: []string{"600"}, StateDir: dir}
	if err := os.WriteFile(filepath.Join(dir, "sleeper.pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid := p.Pid(); pid != 0 {
		t.Errorf("the pid %d of this test counts as that of the program", pid)
	}
	if err := p.Stop(context.Background(), time.Minute); err != nil {
		t.Error(err)
	}
}

func TestStartStop(t *testing.T) {
	dir := t.TempDir()
	p := script(t, dir, endless)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	pid := p.Pid()
	if pid == 0 {
		t.Fatal("it does not run")
	}
	if err := p.Start(); err != nil || p.Pid() != pid {
		t.Errorf("a second start: %v, pid %d, it was %d", err, p.Pid(), pid)
	}
	if err := p.Stop(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if p.Pid() != 0 {
		t.Error("it still runs")
	}
}

// TestSiblingDirectory: the processes of another state directory are not ours, also if its
// path has the same prefix.
func TestSiblingDirectory(t *testing.T) {
	for arg, ours := range map[string]bool{
		"--data-dir=/state/dev/etcd":   true,
		"/state/dev/config":            true,
		"--data-dir=/state/dev2/etcd":  false,
		"--data-dir=/x/state/dev/etcd": false,
		"--data-dir=/state/dev":        false,
		"--v=2":                        false,
	} {
		if got := (&Process{StateDir: "/state/dev"}).inStateDir(arg); got != ours {
			t.Errorf("%s: %t, want %t", arg, got, ours)
		}
	}
	base := t.TempDir()
	start := func(name string) *Process {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return script(t, dir, endless)
	}
	mine, other := start("dev"), start("dev2")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine.pidFile(), []byte(strconv.Itoa(other.Pid())), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := mine.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if other.Pid() == 0 {
		t.Error("the process of another state directory was killed")
	}
}

// TestCurrent: a process that runs with former arguments is not current.
func TestCurrent(t *testing.T) {
	dir := t.TempDir()
	p := script(t, dir, endless)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if !p.Current() {
		t.Error("a process that was just started is not current")
	}
	changed := *p
	changed.Args = append(slices.Clone(p.Args), "more")
	if changed.Pid() == 0 || changed.Current() {
		t.Errorf("with other arguments: pid %d, current %t", changed.Pid(), changed.Current())
	}
}

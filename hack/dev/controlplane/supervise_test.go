/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// endless is a script that only a signal ends.
const endless = "while :; do /bin/sleep 1; done"

// startBound is the command by which this program starts a bound process, and waits until its
// standard input is closed.
const startBound = "start-bound"

// TestMain is also the dev program, which the tests start as a supervisor.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == SuperviseCommand:
		err = Supervise(os.Args[2:])
	case len(os.Args) > 2 && os.Args[1] == startBound:
		p := &Process{Name: "sh", Program: "/bin/sh", Args: os.Args[3:], StateDir: os.Args[2], Dev: os.Args[0], Bound: true}
		if err = p.Start(); err == nil {
			_, err = io.Copy(io.Discard, os.Stdin)
		}
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func devProgram(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// script returns a process that runs a shell script, and is killed when the test ends. The
// state directory is part of its command line, as for every program of a control plane.
func script(t *testing.T, dir, text string) *Process {
	t.Helper()
	p := &Process{Name: "sh", Program: "/bin/sh", Args: []string{"-c", text, filepath.Join(dir, "config")}, StateDir: dir, Dev: devProgram(t)}
	t.Cleanup(func() {
		if err := p.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := poll(t.Context(), 30*time.Second, 5*time.Millisecond, func() error {
		if !holds() {
			return fmt.Errorf("not yet: %s", what)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// nothingLeft checks that a process was stopped and left only its log.
func nothingLeft(t *testing.T, p *Process) {
	t.Helper()
	if p.Pid() != 0 || p.Supervised() || p.SupervisorKilled() {
		t.Errorf("pid %d, supervised %t, supervisor killed %t", p.Pid(), p.Supervised(), p.SupervisorKilled())
	}
	files, err := filepath.Glob(p.file(".*"))
	if err != nil || len(files) != 1 || files[0] != p.LogFile() {
		t.Errorf("files %q are left: %v", files, err)
	}
}

// TestRestart: a program that exits or is killed by another program is restarted, but not after Stop or Kill.
func TestRestart(t *testing.T) {
	for name, end := range map[string]func(p *Process) error{
		"stop": func(p *Process) error { return p.Stop(t.Context(), time.Minute) },
		"kill": func(p *Process) error { return p.Kill(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := script(t, dir, "[ -e "+dir+"/stay ] || { : >"+dir+"/stay; exit 3; }; "+endless)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it runs after it has exited", func() bool { return p.Pid() != 0 && len(p.Restarts()) == 1 })
			first := p.Pid()
			if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it runs after it was killed", func() bool { pid := p.Pid(); return pid != 0 && pid != first })
			text := strings.Join(p.Restarts(), "\n")
			for _, want := range []string{"sh exited (exit status 3)", "(restart 1)", "sh exited (signal: killed)", "(restart 2)"} {
				if !strings.Contains(text, want) || !strings.Contains(p.LogTail(10), want) {
					t.Errorf("no %q in\n%s\nand the log\n%s", want, text, p.LogTail(10))
				}
			}
			last := p.Pid()
			if err := end(p); err != nil {
				t.Fatal(err)
			}
			nothingLeft(t, p)
			if p.isOurs(last) {
				t.Error("it still runs")
			}
			if err := p.Start(); err != nil || p.Pid() == 0 || len(p.Restarts()) != 0 {
				t.Errorf("started again: %v, pid %d, restarts %q", err, p.Pid(), p.Restarts())
			}
		})
	}
}

// TestStopWhileRestartIsPending: nothing is left of a program that waits for its restart.
func TestStopWhileRestartIsPending(t *testing.T) {
	dir := t.TempDir()
	p := script(t, dir, "echo run >>"+dir+"/runs; exit 1")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it waits for its restart", func() bool { return len(p.Restarts()) == 3 && p.Pid() == 0 })
	if err := p.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, p)
	if runs, err := os.ReadFile(filepath.Join(dir, "runs")); err != nil || strings.Count(string(runs), "run") != 3 {
		t.Errorf("it ran %q: %v", runs, err)
	}
}

// TestKillStopped: Stop ends a program that is stopped by SIGSTOP.
func TestKillStopped(t *testing.T) {
	p := script(t, t.TempDir(), endless)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, p)
}

// TestSupervisorKilled: a program does not outlive its supervisor, and can be started again.
func TestSupervisorKilled(t *testing.T) {
	p := script(t, t.TempDir(), endless)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	pid := p.Pid()
	if err := syscall.Kill(p.supervisorPid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both have ended", func() bool { return !p.Supervised() && !p.isOurs(pid) })
	if p.Pid() != 0 || !p.SupervisorKilled() {
		t.Errorf("pid %d, supervisor killed %t", p.Pid(), p.SupervisorKilled())
	}
	if err := p.Start(); err != nil || p.Pid() == 0 {
		t.Errorf("started again: %v, pid %d", err, p.Pid())
	}
	if err := p.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, p)
}

// TestConcurrentStarts: a program that several commands start runs once.
func TestConcurrentStarts(t *testing.T) {
	dir := t.TempDir()
	p := script(t, dir, "echo run >>"+dir+"/runs; "+endless)
	runs := func() string {
		data, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return string(data)
	}
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			if err := p.Start(); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	eventually(t, "it runs", func() bool { return runs() != "" })
	if err := p.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if runs() != "run\n" {
		t.Errorf("it ran %q", runs())
	}
	nothingLeft(t, p)
}

// TestBound: a bound process is killed when the program that started it ends.
func TestBound(t *testing.T) {
	p := script(t, t.TempDir(), endless)
	starter := exec.Command(p.Dev, append([]string{startBound, p.StateDir}, p.Args...)...)
	stdin, err := starter.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return p.Pid() != 0 })
	pid := p.Pid()
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := starter.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func() bool { return !p.isOurs(pid) && !p.Supervised() })
}

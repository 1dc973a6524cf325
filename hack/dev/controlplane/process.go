/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Process is a program that runs in the background under a supervisor, which restarts it.
type Process struct {
	Name    string
	Program string
	Args    []string
	// Env is added to the environment of the dev program.
	Env []string
	// Bound means that the process is killed when the program that started it ends.
	Bound bool
	// StateDir holds NAME.pid, NAME.log and the files of the supervisor.
	StateDir string
	// Dev is the path of the dev program, which runs the supervisor.
	Dev string
}

func (p *Process) file(extension string) string { return filepath.Join(p.StateDir, p.Name+extension) }

func (p *Process) pidFile() string { return p.file(".pid") }

// LogFile is where the output of the process goes.
func (p *Process) LogFile() string { return p.file(".log") }

// Pid returns the pid of the running process, or 0.
func (p *Process) Pid() int { return readPid(p.pidFile(), p.isOurs) }

// readPid returns the pid in a file, or 0 if that process does not run or the pid belongs to another program
// now.
func readPid(file string, isOurs func(pid int) bool) int {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || !isOurs(pid) {
		return 0
	}
	return pid
}

// writePid replaces a pid file atomically.
func writePid(file string, pid int) error {
	if err := os.WriteFile(file+".new", []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// commandLine returns the command line of a running process, or nil. A zombie does not run.
func commandLine(pid int) []string {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return nil
	}
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return nil
	}
	// The state follows the command name in parentheses.
	if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "Z") {
		return nil
	}
	return strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
}

// isOurs reports whether a process is this program, with arguments in this state directory.
func (p *Process) isOurs(pid int) bool {
	fields := commandLine(pid)
	return len(fields) > 0 && fields[0] == p.Program && slices.ContainsFunc(fields[1:], p.inStateDir)
}

// inStateDir reports whether an argument, PATH or --flag=PATH, is a path in the state directory. Another state
// directory may have the same prefix.
func (p *Process) inStateDir(arg string) bool {
	if _, value, isFlag := strings.Cut(arg, "="); isFlag {
		arg = value
	}
	return strings.HasPrefix(arg, p.StateDir+string(filepath.Separator))
}

// Current reports whether the process runs under a supervisor with the current program and arguments.
func (p *Process) Current() bool {
	pid := p.Pid()
	if pid == 0 || !p.Supervised() {
		return false
	}
	program, err := os.Stat(p.Program)
	if err != nil {
		return false
	}
	running, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil || !os.SameFile(program, running) {
		return false
	}
	return slices.Equal(commandLine(pid), append([]string{p.Program}, p.Args...))
}

// Signal sends a signal to the process, if it runs.
func (p *Process) Signal(signal syscall.Signal) error {
	pid := p.Pid()
	if pid == 0 {
		return fmt.Errorf("%s does not run", p.Name)
	}
	return p.signal(pid, p.isOurs, signal)
}

// signal sends a signal to a process, and to no other process that got its pid meanwhile: the handle is
// taken before the process is identified.
func (p *Process) signal(pid int, isOurs func(pid int) bool, signal syscall.Signal) error {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if !isOurs(pid) {
		return nil
	}
	if err := handle.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot send %s to %s (pid %d): %w", signal, p.Name, pid, err)
	}
	return nil
}

// LogTail returns the last lines of the log, for error messages.
func (p *Process) LogTail(lines int) string {
	data, err := os.ReadFile(p.LogFile())
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// final is an error that no retry can fix.
type final struct{ error }

func (e final) Unwrap() error { return e.error }

// poll calls a check until it returns nil or a final error, and returns its last error at the limit.
func poll(ctx context.Context, limit, interval time.Duration, check func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, limit, true, func(context.Context) (bool, error) {
		last = check()
		if errors.As(last, new(final)) {
			return false, last
		}
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("after %s: %w", limit, last)
	}
	return err
}

// tryLock locks a file. It returns nil if another process holds the lock.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		return file, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, file.Close()
	default:
		return nil, fmt.Errorf("cannot lock %s: %w", path, errors.Join(err, file.Close()))
	}
}

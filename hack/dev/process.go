/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a program that runs in the background, known by its pid file.
type Process struct {
	Name    string
	Program string
	Args    []string
	// StateDir holds NAME.pid and NAME.log.
	StateDir string
}

func (p *Process) pidFile() string { return filepath.Join(p.StateDir, p.Name+".pid") }

// LogFile is where the output of the process goes.
func (p *Process) LogFile() string { return filepath.Join(p.StateDir, p.Name+".log") }

// Pid returns the pid of the running process, or 0. A pid that the system gave to another
// program since is not ours: it must be this program, with arguments in this state directory.
func (p *Process) Pid() int {
	data, err := os.ReadFile(p.pidFile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || !p.isOurs(pid) {
		return 0
	}
	return pid
}

func (p *Process) isOurs(pid int) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	commandLine, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return false
	}
	fields := strings.Split(strings.TrimRight(string(commandLine), "\x00"), "\x00")
	if fields[0] != p.Program || !slices.ContainsFunc(fields[1:], p.inStateDir) {
		return false
	}
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return false
	}
	// The state follows the command name in parentheses. A zombie has ended.
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// inStateDir says whether an argument, PATH or --flag=PATH, is a path in the state directory.
// The state directories of others may begin with the same letters.
func (p *Process) inStateDir(arg string) bool {
	if _, value, isFlag := strings.Cut(arg, "="); isFlag {
		arg = value
	}
	return strings.HasPrefix(arg, p.StateDir+string(filepath.Separator))
}

// Current says whether the running process was started with the program and arguments
// that it would be started with now.
func (p *Process) Current() bool {
	pid := p.Pid()
	if pid == 0 {
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
	commandLine, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	want := strings.Join(append([]string{p.Program}, p.Args...), "\x00") + "\x00"
	return err == nil && string(commandLine) == want
}

// Start starts the process in a session of its own, so that it outlives this command.
// A running one is left alone.
func (p *Process) Start() error {
	if p.Pid() != 0 {
		return nil
	}
	log, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(p.Program, p.Args...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", p.Name, err)
	}
	pid := command.Process.Pid
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }() // no zombie while this command lives
	if err := os.WriteFile(p.pidFile(), []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
		return err
	}
	// The kernel shows the new command line a moment after the program has begun.
	return poll(context.Background(), 10*time.Second, time.Millisecond, func() error {
		select {
		case <-ended:
			return nil // who waits for it to be ready says why
		default:
		}
		if !p.isOurs(pid) {
			return fmt.Errorf("%s (pid %d) does not show its command line", p.Name, pid)
		}
		return nil
	})
}

// signal sends a signal to the process, and to no other that got its pid meanwhile: the
// handle is taken first, and the process looked at then.
func (p *Process) signal(pid int, signal syscall.Signal) error {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if !p.isOurs(pid) {
		return nil
	}
	if err := handle.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot send %s to %s (pid %d): %w", signal, p.Name, pid, err)
	}
	return nil
}

// Stop asks the process to end, and kills it if it does not within the grace period.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	pid := p.Pid()
	if pid == 0 {
		return p.forget()
	}
	if err := p.signal(pid, syscall.SIGTERM); err != nil {
		return err
	}
	if p.waitGone(ctx, pid, grace) {
		return p.forget()
	}
	return p.Kill(ctx)
}

// Kill ends the process at once, as kill -9 does.
func (p *Process) Kill(ctx context.Context) error {
	pid := p.Pid()
	if pid == 0 {
		return p.forget()
	}
	if err := p.signal(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if !p.waitGone(ctx, pid, 30*time.Second) {
		return fmt.Errorf("%s (pid %d) did not end after SIGKILL", p.Name, pid)
	}
	return p.forget()
}

func (p *Process) waitGone(ctx context.Context, pid int, limit time.Duration) bool {
	return poll(ctx, limit, 20*time.Millisecond, func() error {
		if p.isOurs(pid) {
			return errors.New("still there")
		}
		return nil
	}) == nil
}

func (p *Process) forget() error {
	if err := os.Remove(p.pidFile()); err != nil && !os.IsNotExist(err) {
		return err
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

// final is an error that waiting does not mend.
type final struct{ error }

func (e final) Unwrap() error { return e.error }

// poll calls a check until it returns nil, and returns its last error at the limit, or a
// final one at once.
func poll(ctx context.Context, limit, interval time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil || errors.As(err, new(final)) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", limit, err)
		case <-ticker.C:
		}
	}
}

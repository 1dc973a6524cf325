/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A program that exits is restarted after firstDelay, then after twice as long each time, up
// to lastDelay. The delay starts again when the program has run for stableAfter.
const (
	firstDelay  = 250 * time.Millisecond
	lastDelay   = 10 * time.Second
	stableAfter = time.Minute

	SuperviseCommand = "supervise"
)

// supervisorFile holds the pid of the supervisor. Stop and Kill remove it: a file without its
// process means that something else killed the supervisor.
func (p *Process) supervisorFile() string { return p.file(".supervisor.pid") }

// supervisorArgs are the arguments of the dev program that supervise this process.
func (p *Process) supervisorArgs() []string {
	return append([]string{SuperviseCommand, p.file(""), p.Program}, p.Args...)
}

// isSupervisor reports whether a process supervises this one, also if it runs another build of dev.
func (p *Process) isSupervisor(pid int) bool {
	fields := commandLine(pid)
	return len(fields) > 2 && fields[1] == SuperviseCommand && fields[2] == p.file("")
}

func (p *Process) supervisorPid() int { return readPid(p.supervisorFile(), p.isSupervisor) }

// Supervised reports whether the supervisor runs.
func (p *Process) Supervised() bool { return p.supervisorPid() != 0 }

// Active reports whether the process runs or will be restarted.
func (p *Process) Active() bool { return p.Supervised() || p.Pid() != 0 }

// SupervisorKilled reports whether the supervisor, and with it the process, was killed by another program than
// Stop and Kill.
func (p *Process) SupervisorKilled() bool { return exists(p.supervisorFile()) && !p.Supervised() }

// Restarts returns a line for each restart since the process was started.
func (p *Process) Restarts() []string {
	data, err := os.ReadFile(p.file(".restarts"))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// Start starts the process under a supervisor, which has a separate session so that it outlives
// this command. A supervised process is left alone. Start returns when the process
// runs, or has exited and will be restarted.
func (p *Process) Start() error {
	if p.Pid() != 0 {
		return nil
	}
	if _, err := os.Stat(p.Program); err != nil {
		return fmt.Errorf("cannot start %s: %w", p.Name, err)
	}
	decided := func() bool { return true }
	if !p.Supervised() {
		var err error
		if decided, err = p.startSupervisor(); err != nil {
			return err
		}
	}
	return poll(context.Background(), 2*lastDelay, 2*time.Millisecond, func() error {
		if decided() && (p.Pid() != 0 || p.Supervised() && len(p.Restarts()) > 0) {
			return nil
		}
		return fmt.Errorf("%s does not run; last lines of %s:\n%s", p.Name, p.LogFile(), p.LogTail(5))
	})
}

// startSupervisor starts a supervisor. The returned function reports whether it has become the supervisor of the
// process, or has ended because there is another one. Until then, a Stop could miss it.
func (p *Process) startSupervisor() (decided func() bool, err error) {
	log, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(p.Dev, p.supervisorArgs()...)
	command.Env = append(os.Environ(), p.Env...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if p.Bound {
		if _, err := command.StdinPipe(); err != nil {
			return nil, err
		}
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the supervisor of %s: %w", p.Name, err)
	}
	pid := command.Process.Pid
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }() // no zombie, and the pipe stays open, while this command lives
	return func() bool {
		select {
		case <-ended:
			return true
		default:
			return p.supervisorPid() == pid
		}
	}, nil
}

// Stop asks the process to end, and kills it if it does not within the grace period. It is
// not restarted until Start is called.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	if supervisor := p.supervisorPid(); supervisor != 0 {
		if err := p.signal(supervisor, p.isSupervisor, syscall.SIGTERM); err != nil {
			return err
		}
		p.waitGone(ctx, grace)
	}
	return p.Kill(ctx)
}

// Kill ends the process with SIGKILL. It is not restarted until Start is called. The kernel
// sends the signal when the supervisor is killed, so that no restart comes between.
func (p *Process) Kill(ctx context.Context) error {
	if supervisor := p.supervisorPid(); supervisor != 0 {
		if err := p.signal(supervisor, p.isSupervisor, syscall.SIGKILL); err != nil {
			return err
		}
	}
	if pid := p.Pid(); pid != 0 { // a dev program without supervisors may have started it
		if err := p.signal(pid, p.isOurs, syscall.SIGKILL); err != nil {
			return err
		}
	}
	if !p.waitGone(ctx, 30*time.Second) {
		return fmt.Errorf("%s (pid %d) did not end after SIGKILL", p.Name, p.Pid())
	}
	return p.forget()
}

func (p *Process) waitGone(ctx context.Context, limit time.Duration) bool {
	return poll(ctx, limit, 10*time.Millisecond, func() error {
		if p.Active() {
			return errors.New("still running")
		}
		return nil
	}) == nil
}

// lock returns the lock that a supervisor holds as long as it lives, or nil if another process
// supervises this one. It waits while a supervisor starts or ends.
func (p *Process) lock() (lock *os.File, err error) {
	path := filepath.Join(p.StateDir, "."+p.Name+".lock")
	err = poll(context.Background(), 10*time.Second, 5*time.Millisecond, func() (err error) {
		if lock, err = tryLock(path); err != nil {
			return final{err}
		}
		if lock == nil && !p.Supervised() {
			return fmt.Errorf("%s is locked", path)
		}
		return nil
	})
	return lock, err
}

// forget removes the files of a supervisor that has ended, unless another one has started.
func (p *Process) forget() error {
	lock, err := p.lock()
	if lock == nil {
		return err
	}
	defer lock.Close()
	return p.removeFiles()
}

func (p *Process) removeFiles() error {
	var errs []error
	for _, file := range []string{p.pidFile(), p.file(".restarts"), p.supervisorFile()} {
		if err := os.Remove(file); !os.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Supervise runs a program and restarts it when it exits, until SIGTERM. Its arguments are
// those of supervisorArgs. The program cannot outlive it: the kernel kills it.
func Supervise(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%s takes STATE/NAME, a program and its arguments", SuperviseCommand)
	}
	p := &Process{Name: filepath.Base(args[0]), StateDir: filepath.Dir(args[0]), Program: args[1], Args: args[2:]}
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	lock, err := p.lock()
	if lock == nil {
		return err
	}
	defer lock.Close()
	if err := p.removeFiles(); err != nil {
		return err
	}
	if err := writePid(p.supervisorFile(), os.Getpid()); err != nil {
		return err
	}
	if stdin, err := os.Stdin.Stat(); err == nil && stdin.Mode()&os.ModeNamedPipe != 0 {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0) // the program that started this has ended; the kernel kills the supervised one
		}()
	}
	runtime.LockOSThread() // the kernel kills the program when this thread ends
	delay := firstDelay
	for restart := 1; ; restart++ {
		began := time.Now()
		exited, terminated := p.runOnce(terminate)
		if terminated {
			return p.removeFiles()
		}
		if time.Since(began) > stableAfter {
			delay = firstDelay
		}
		if err := p.logRestart(exited, restart, delay); err != nil {
			return err
		}
		select {
		case <-terminate:
			return p.removeFiles()
		case <-time.After(delay):
		}
		delay = min(2*delay, lastDelay)
	}
}

// runOnce runs the program until it exits, and returns how. A signal that terminates the
// supervisor is passed on.
func (p *Process) runOnce(terminate <-chan os.Signal) (exited string, terminated bool) {
	command := exec.Command(p.Program, p.Args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err.Error(), false
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	failed := writePid(p.pidFile(), command.Process.Pid)
	if failed != nil {
		_ = command.Process.Kill() // without the file, it cannot be controlled
	}
	select {
	case <-terminate:
		_ = command.Process.Signal(syscall.SIGTERM)
		<-ended
		return "", true
	case err := <-ended:
		_ = os.Remove(p.pidFile())
		return exitText(errors.Join(failed, err)), false
	}
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// logRestart writes a line to the log of the program and to the file that Restarts reads.
func (p *Process) logRestart(exited string, restart int, delay time.Duration) error {
	line := fmt.Sprintf("%s %s exited (%s); starting it again in %s (restart %d)", time.Now().UTC().Format(time.RFC3339), p.Name, exited, delay, restart)
	fmt.Println(line)
	file, err := os.OpenFile(p.file(".restarts"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, line)
	return errors.Join(err, file.Close())
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// minRestartDelay and maxRestartDelay bound the delay before the member restarts its process.
	// The delay doubles with each process that exits before it serves.
	minRestartDelay = time.Second
	maxRestartDelay = 8 * time.Second
	// stopTimeout is how long the process can take to stop. etcd takes less than a second.
	stopTimeout = 30 * time.Second
)

// Member runs etcd as a child process, and restarts it. While that process does not run, it answers
// calls of etcd with the reason.
type Member struct {
	dir     string
	command func() *exec.Cmd

	mu      sync.Mutex
	problem error

	// tried is closed when the process serves, or has exited, for the first time.
	tried   chan struct{}
	once    sync.Once
	stop    context.CancelFunc
	stopped chan struct{}
}

// StartMember starts a member that keeps its data in the given directory. The command returns a
// process that calls Serve for that directory. StartMember returns when the process serves, or has
// exited for the first time. It returns an error only if the directory cannot be used. The member
// runs until Stop.
func StartMember(ctx context.Context, dir string, command func() *exec.Cmd) (*Member, error) {
	if _, err := prepare(dir); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	m := &Member{dir: dir, command: command, problem: errors.New("etcd is starting"), tried: make(chan struct{}), stop: stop, stopped: make(chan struct{})}
	go func() {
		defer close(m.stopped)
		m.run(running)
	}()
	select {
	case <-m.tried:
	case <-ctx.Done():
	}
	return m, nil
}

// Problem returns why etcd does not run, or nil if it does.
func (m *Member) Problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problem
}

// Stop stops the member and waits for it. Every acknowledged write is on disk.
func (m *Member) Stop() {
	m.stop()
	<-m.stopped
}

func (m *Member) set(problem error) {
	m.mu.Lock()
	m.problem = problem
	m.mu.Unlock()
	m.once.Do(func() { close(m.tried) })
}

// run starts and restarts the process until the context ends.
func (m *Member) run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("dir", m.dir)
	delay := minRestartDelay
	for {
		served, err := m.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if served {
			delay = minRestartDelay
		}
		logger.Error(err, "etcd exited, restarting it", "delay", delay)
		m.set(err)
		substitute, err := m.substitute(ctx)
		if err != nil {
			logger.Error(err, "Cannot answer calls of etcd")
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		substitute()
		if ctx.Err() != nil {
			return
		}
		delay = min(2*delay, maxRestartDelay)
	}
}

// runOnce runs the process until it exits. It returns whether the process served, and why it exited.
func (m *Member) runOnce(ctx context.Context) (served bool, err error) {
	command := m.command()
	output := &lastWords{to: os.Stderr}
	command.Stderr = output
	// The process stops when its standard input ends: on Stop, and when this process exits or crashes.
	input, err := command.StdinPipe()
	if err != nil {
		return false, err
	}
	defer func() { _ = input.Close() }()
	signs, err := command.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := command.Start(); err != nil {
		return false, fmt.Errorf("cannot start the etcd process: %w", err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		if line, _ := bufio.NewReader(signs).ReadString('\n'); line == readySign {
			close(ready)
		}
		_, _ = io.Copy(io.Discard, signs)
		ended <- command.Wait()
	}()
	for {
		select {
		case <-ready:
			ready, served = nil, true
			m.set(nil)
		case err := <-ended:
			return served, output.explain(m.dir, err)
		case <-ctx.Done():
			_ = input.Close()
			kill := time.AfterFunc(stopTimeout, func() { _ = command.Process.Kill() })
			defer kill.Stop()
			return served, <-ended
		}
	}
}

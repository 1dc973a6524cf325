/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Build builds the missing programs of Kubernetes, and those of nsinit, which takes a moment if nothing
// changed.
func (c *Cluster) Build(ctx context.Context) error {
	return c.build(ctx, c.buildKubernetes, c.buildNsinit)
}

// BuildKubernetes builds the missing programs of Kubernetes.
func (c *Cluster) BuildKubernetes(ctx context.Context) error {
	return c.build(ctx, c.buildKubernetes)
}

// BuildScheduler builds kube-scheduler if it is missing.
func (c *Cluster) BuildScheduler(ctx context.Context) error {
	return c.build(ctx, func(ctx context.Context) error {
		return c.installPrograms(ctx, map[string]map[string]string{newest: {Scheduler: "k8s.io/kubernetes/cmd/kube-scheduler"}})
	})
}

func (c *Cluster) build(ctx context.Context, parts ...step) error {
	if c.NoBuild {
		return nil
	}
	if err := os.MkdirAll(c.BinDir, 0o755); err != nil {
		return err
	}
	unlock, err := c.lock(ctx, c.BinDir)
	if err != nil {
		return err
	}
	defer unlock()
	return inOrder(ctx, parts...)
}

// SourceFile is the file beside nsinit's programs that names the commit of their source.
const SourceFile = ".nsinit.commit"

// recordSource writes SourceFile. It is empty if the source is not a git repository.
func (c *Cluster) recordSource(ctx context.Context) error {
	commit, err := exec.CommandContext(ctx, "git", "-C", c.Root, "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		commit = nil
	}
	return os.WriteFile(filepath.Join(c.BinDir, SourceFile), commit, 0o644) //nolint:gosec // no secret
}

func (c *Cluster) buildNsinit(ctx context.Context) error {
	if err := c.shown(ctx, "nsinit", c.Root, filepath.Join(c.Root, "hack", "build.sh"), c.BinDir); err != nil {
		return err
	}
	if err := errors.Join(c.installCompletion(), c.recordSource(ctx)); err != nil {
		return err
	}
	// The backend of http-provisioner in tests and in the demo.
	return c.shown(ctx, "logstore", filepath.Join(c.Root, "test", "logstore"),
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", c.program("logstore"), ".")
}

// installCompletion copies the script that kubectl runs for completion to the folder of the plugin.
func (c *Cluster) installCompletion() error {
	const name = "kubectl_complete-nsinit"
	script, err := os.ReadFile(filepath.Join(c.Root, "cmd", "kubectl-nsinit", name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.BinDir, name), script, 0o755) //nolint:gosec // a program
}

// shown runs a command that builds a program, and prints a line every 10 seconds.
func (c *Cluster) shown(ctx context.Context, name, dir string, args ...string) error {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := c.runShown(ctx, command, func() string { return name }); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", name, err, output.String())
	}
	return nil
}

// runShown runs a command that builds what, and prints a line every 10 seconds.
func (c *Cluster) runShown(ctx context.Context, command *exec.Cmd, what func() string) error {
	start := time.Now()
	running, stop := context.WithCancel(ctx)
	go wait.UntilWithContext(running, func(context.Context) {
		if took := time.Since(start).Round(time.Second); took > 0 {
			c.say("building %s (%s so far)", what(), took)
		}
	}, 10*time.Second)
	err := command.Run()
	stop()
	if took := time.Since(start); err == nil && took > 5*time.Second {
		c.say("built %s in %s", what(), took.Round(time.Second))
	}
	return err
}

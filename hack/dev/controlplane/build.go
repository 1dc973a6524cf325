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
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// commonPrograms are built from the module of the newest version, for every version of Kubernetes.
func commonPrograms() map[string]string {
	return map[string]string{
		"kubectl": "k8s.io/kubernetes/cmd/kubectl",
		"etcd":    "go.etcd.io/etcd/server/v3",
	}
}

// versionedPrograms are built from the module of the version of Kubernetes.
func versionedPrograms() map[string]string {
	return map[string]string{
		"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
		"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
	}
}

// Build builds the missing programs of Kubernetes, and those of nsinit, which takes a moment if nothing
// changed.
func (c *Cluster) Build(ctx context.Context) error {
	return c.build(ctx, c.buildKubernetes, c.buildNsinit)
}

// BuildKubernetes builds the missing programs of Kubernetes.
func (c *Cluster) BuildKubernetes(ctx context.Context) error {
	return c.build(ctx, c.buildKubernetes)
}

func (c *Cluster) build(ctx context.Context, parts ...func(context.Context) error) error {
	if err := os.MkdirAll(c.BinDir, 0o755); err != nil {
		return err
	}
	unlock, err := c.lock(ctx, c.BinDir)
	if err != nil {
		return err
	}
	defer unlock()
	for _, part := range parts {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
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
	return c.goBuild(ctx, filepath.Join(c.Root, "test", "logstore"), "logstore", ".", "")
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

// kubernetesProgram is a program to be built from a module that pins a version of Kubernetes.
type kubernetesProgram struct {
	name, pkg, module, version string
	// stamp is the file that holds the go.mod from which the program was built.
	stamp string
	goMod []byte
}

// buildKubernetes builds programs that are missing or were built from another go.mod.
func (c *Cluster) buildKubernetes(ctx context.Context) error {
	common, err := c.missing(c.kubernetesModule(newest), commonPrograms())
	if err != nil {
		return err
	}
	versioned, err := c.missing(c.kubernetesModule(c.Kubernetes), versionedPrograms())
	if err != nil {
		return err
	}
	missing := append(common, versioned...)
	for i, p := range missing {
		c.say("building %s %s (%d of %d), which takes minutes the first time", p.name, p.version, i+1, len(missing))
		major, minor, _ := strings.Cut(strings.TrimPrefix(p.version, "v"), ".")
		minor, _, _ = strings.Cut(minor, ".")
		ldflags := fmt.Sprintf("-s -w -X k8s.io/component-base/version.gitVersion=%s -X k8s.io/component-base/version.gitMajor=%s -X k8s.io/component-base/version.gitMinor=%s",
			p.version, major, minor)
		if err := c.goBuild(ctx, p.module, p.name, p.pkg, ldflags); err != nil {
			return err
		}
		if err := os.WriteFile(p.stamp, p.goMod, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the programs of a module that do not exist or were built from another go.mod.
func (c *Cluster) missing(module string, programs map[string]string) ([]kubernetesProgram, error) {
	goMod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, err
	}
	version, err := kubernetesVersion(string(goMod))
	if err != nil {
		return nil, err
	}
	var missing []kubernetesProgram
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		path := c.program(name)
		stamp := filepath.Join(filepath.Dir(path), "."+name+".go.mod")
		if built, _ := os.ReadFile(stamp); !exists(path) || !bytes.Equal(goMod, built) {
			missing = append(missing, kubernetesProgram{name: name, pkg: programs[name], module: module, version: version, stamp: stamp, goMod: goMod})
		}
	}
	return missing, nil
}

// kubernetesVersion reads the version of Kubernetes from go.mod.
func kubernetesVersion(goMod string) (string, error) {
	for line := range strings.SplitSeq(goMod, "\n") {
		if fields := strings.Fields(strings.TrimPrefix(line, "require ")); len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" && len(strings.Split(fields[1], ".")) == 3 {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("go.mod requires no version of k8s.io/kubernetes")
}

// goBuild builds one program into the folder of programs.
func (c *Cluster) goBuild(ctx context.Context, dir, name, pkg, ldflags string) error {
	return c.shown(ctx, name, dir, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", c.program(name), pkg)
}

// shown runs a command that builds a program, and prints a line every 10 seconds.
func (c *Cluster) shown(ctx context.Context, name, dir string, args ...string) error {
	start := time.Now()
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	running, stop := context.WithCancel(ctx)
	go wait.UntilWithContext(running, func(context.Context) {
		if took := time.Since(start).Round(time.Second); took > 0 {
			c.say("building %s (%s so far)", name, took)
		}
	}, 10*time.Second)
	err := command.Run()
	stop()
	if err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", name, err, output.String())
	}
	if took := time.Since(start); took > 5*time.Second {
		c.say("built %s in %s", name, took.Round(time.Second))
	}
	return nil
}

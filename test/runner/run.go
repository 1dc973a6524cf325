/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const project = "github.com/nsinit/nsinit/"

// command returns a command in a new process group, which an interrupt ends.
func (r *runner) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir, command.Env = filepath.Join(r.root, dir), append(os.Environ(), fmt.Sprintf("SEED=%d", r.seed))
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error {
		time.AfterFunc(time.Minute, func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) })
		return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) // SIGINT is ignored in the background
	}
	return command
}

// execute runs a command. It handles the events of go test -json, and prints other lines. If the command fails without an event
// of it, the last lines are the cause.
func (p *part) execute(what string, command *exec.Cmd) bool {
	out, err := command.StdoutPipe()
	command.Stderr = command.Stdout
	failures, said := p.failed, []string{}
	if err = errors.Join(err, command.Start()); err != nil {
		p.broken(what, err)
		return false
	}
	for reader := bufio.NewReader(out); err == nil; {
		var raw string
		if raw, err = reader.ReadString('\n'); !p.event(raw) {
			said = append(said, raw)
		}
	}
	if err = command.Wait(); err != nil && p.failed == failures {
		p.broken(what, err, said[max(0, len(said)-maxCause+1):]...)
	}
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // what an interrupted test has left
	return err == nil
}

// unitPackage is a package with unit tests.
type unitPackage struct {
	path, dir, binary string
	random            bool // its tests take a seed
}

// unit runs the unit tests of modules. It keeps the test binaries, so that only those that changed are linked again.
func (r *runner) unit(ctx context.Context, p *part, modules []string) {
	batches, err := r.unitPackages(ctx, p, modules)
	if err != nil {
		p.broken("go list", err)
		return
	}
	for _, batch := range batches {
		p.total += len(batch.packages)
	}
	compiled := make(chan unitPackage, p.total)
	var running sync.WaitGroup
	for range 3 { // many tests wait most of their time
		running.Go(func() {
			for one := range compiled {
				if ctx.Err() == nil {
					r.unitTests(ctx, p, one)
				}
			}
		})
	}
	for _, batch := range batches {
		args := []string{"go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", filepath.Dir(batch.packages[0].binary) + "/"} // the linters vet
		for _, one := range batch.packages {
			args = append(args, one.path)
		}
		if ctx.Err() == nil && p.execute("compile", r.command(ctx, batch.module, args...)) {
			for _, one := range batch.packages {
				compiled <- one
			}
		}
	}
	close(compiled)
	running.Wait()
}

// batch is packages of a module that are compiled together, into one folder.
type batch struct {
	module   string
	packages []unitPackage
}

// unitPackages returns the packages of a part. Those whose test binaries have the same name are in different batches.
func (r *runner) unitPackages(ctx context.Context, p *part, modules []string) (batches []*batch, err error) {
	const list = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}} {{.TestImports}} {{.XTestImports}}{{end}}`
	for _, module := range modules {
		out, err := r.command(ctx, module, "go", "list", "-f", list, "./...").Output()
		if err != nil {
			return nil, fmt.Errorf("in %s: %w", module, err)
		}
		first := len(batches)
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			folder, _, _ := strings.Cut(strings.TrimPrefix(fields[0], project), "/")
			isTool := folder == "hack" || folder == "test"
			if module == "." && isTool != (p.name == "tools") || r.run != "" && len(testsIn(p.name, fields[1], r.match)) == 0 {
				continue
			}
			one := unitPackage{path: fields[0], random: strings.Contains(line, "pgregory.net/rapid")}
			if one.dir, err = filepath.Rel(r.root, fields[1]); err != nil {
				return nil, err
			}
			name := path.Base(one.path) + ".test"
			fits := slices.IndexFunc(batches[first:], func(b *batch) bool {
				return len(b.packages) < 12 && !slices.ContainsFunc(b.packages, func(other unitPackage) bool { return path.Base(other.binary) == name })
			})
			if fits < 0 {
				fits, batches = len(batches)-first, append(batches, &batch{module: module})
			}
			into := batches[first+fits]
			one.binary = filepath.Join(r.output, "tests", fmt.Sprintf("%s-%d", p.name, first+fits), name)
			into.packages = append(into.packages, one)
		}
	}
	return batches, nil
}

// unitTests runs the tests of a package.
func (r *runner) unitTests(ctx context.Context, p *part, one unitPackage) {
	args := []string{"-test.paniconexit0", "-test.timeout=15m", "-test.parallel=4", fmt.Sprint("-test.short=", r.short), "-test.run=" + r.run}
	if one.random {
		args = append(args, fmt.Sprint("-rapid.seed=", r.seed))
	}
	p.execute(one.path, r.tests(ctx, one.dir, one.path, one.binary, args...))
}

// tests returns the command that runs the tests of a package in its folder.
func (r *runner) tests(ctx context.Context, dir, pkg, binary string, args ...string) *exec.Cmd {
	return r.command(ctx, dir, append([]string{"go", "tool", "test2json", "-t", "-p", pkg, binary, "-test.v=test2json", fmt.Sprint("-test.shuffle=", r.seed)}, args...)...)
}

// onPlanes runs the parts that need control planes: first e2e, then packaging, and beside it other versions of Kubernetes, so that
// one part works while the other waits. The slice of the fault campaign, which needs one control plane, runs beside the others.
func (r *runner) onPlanes(ctx context.Context, done *report, parts []string) {
	versions := strings.Fields(r.versions)
	var beside sync.WaitGroup
	defer beside.Wait()
	for _, name := range parts {
		matches := name == "faults-slice"
		for _, dir := range suitesOf(name) {
			matches = matches || len(testsIn(name, dir, r.match)) > 0
		}
		if !matches || ctx.Err() != nil || !r.build(ctx, done.part("build", false), parts, versions) {
			continue
		}
		switch name {
		case "faults-slice":
			p := done.part(name, false)
			p.total = 1
			beside.Go(func() { r.slice(ctx, p) })
		case "packaging":
			p, planes := done.part(name, false), r.planes
			if slices.Contains(parts, "test-versions") {
				planes = max(1, planes/2)
			}
			beside.Go(func() { r.suites(ctx, p, name, "", planes) })
		case "test-versions":
			for _, version := range versions {
				p, planes := done.part(version, false), r.planes/len(versions)
				if slices.Contains(parts, "packaging") {
					planes /= 2
				}
				beside.Go(func() { r.suites(ctx, p, name, version, max(1, planes)) })
			}
		default:
			r.suites(ctx, done.part(name, false), name, "", r.planes)
		}
	}
}

// slice runs a slice of the fault campaign.
func (r *runner) slice(ctx context.Context, p *part) {
	began := time.Now()
	if p.execute("slice", r.command(ctx, "", r.output+"/bin/faults", "slice", "--dir="+r.output+"/faults", fmt.Sprint("--seed=", r.seed))) {
		p.event(fmt.Sprintf(`{"Action":"pass","Test":"slice","Elapsed":%f}`, time.Since(began).Seconds()))
	}
}

// build builds the programs that the parts need, once.
func (r *runner) build(ctx context.Context, p *part, parts, versions []string) bool {
	dev := r.output + "/bin/dev"
	ok := r.buildOnce(ctx, p, "go", "build", "-o", dev, "./hack/dev") && r.buildOnce(ctx, p, dev, "build")
	if slices.Contains(parts, "e2e") { // before the tests: on a busy machine, a download can time out
		ok = ok && r.buildOnce(ctx, p, "go", "-C", "hack/python", "mod", "download")
	}
	if slices.Contains(parts, "faults-slice") {
		ok = ok && r.buildOnce(ctx, p, dev, "build", "kube-scheduler") && r.buildOnce(ctx, p, "go", "build", "-o", r.output+"/bin/faults", "./test/faults")
	}
	if slices.Contains(parts, "test-versions") {
		for _, version := range versions {
			ok = ok && r.buildOnce(ctx, p, dev, "--kubernetes="+version, "build")
		}
	}
	return ok
}

func (r *runner) buildOnce(ctx context.Context, p *part, args ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := strings.Join(args, " ")
	if !r.built[key] {
		p.say(strings.ReplaceAll(key, r.root+"/", ""))
		r.built[key] = p.execute(args[0], r.command(ctx, "", args...))
	}
	return r.built[key]
}

// suites runs the end-to-end tests of a part, on control planes with a version of Kubernetes.
func (r *runner) suites(ctx context.Context, p *part, name, version string, planes int) {
	var commands []*exec.Cmd
	temporary, err := os.MkdirTemp("", "nsinit-") // sockets are in it, so its path is short
	if err == nil {
		err = os.Chmod(temporary, 0o755) //nolint:gosec // PostgreSQL runs as another user
	}
	if err != nil {
		p.broken("start", err)
		return
	}
	first := filepath.Join(r.output, strings.TrimSuffix("e2e-"+p.name, "-e2e"))
	for _, dir := range suitesOf(name) {
		names := testsIn(name, dir, r.match)
		binary := filepath.Join(r.output, "tests", filepath.Base(dir)+".test")
		if len(names) == 0 || !r.buildOnce(ctx, p, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-tags=e2e", "-o", binary, "./"+dir) {
			continue
		}
		p.total += len(names)
		expression := "^(" + strings.Join(names, "|") + ")$"
		if _, sub, has := strings.Cut(r.run, "/"); has {
			expression += "/" + sub
		}
		command := r.tests(ctx, dir, project+dir, binary, "-test.timeout=60m", "-test.run="+expression)
		command.Env = append(command.Env, "TMPDIR="+temporary, "NSINIT_DEV_DIR="+first, fmt.Sprint("NSINIT_E2E_PLANES=", planes), "NSINIT_DEV_KUBERNETES="+version)
		commands = append(commands, command)
	}
	for _, stale := range r.down(p, first, first+"-[0-9]*") {
		_ = os.RemoveAll(stale)
	}
	for _, command := range commands {
		if ctx.Err() == nil {
			p.execute("go test", command)
		}
	}
	r.down(p, first, first+"-[0-9]*", temporary+"/nsinit-e2e*")
	_ = os.RemoveAll(temporary)
}

// down stops the control planes in folders, and returns the folders.
func (r *runner) down(p *part, patterns ...string) (dirs []string) {
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern)
		dirs = append(dirs, found...)
	}
	var stopping sync.WaitGroup
	for _, dir := range dirs {
		stopping.Go(func() {
			command := r.command(context.Background(), "", r.output+"/bin/dev", "--dir="+dir, "down")
			if out, err := command.CombinedOutput(); err != nil {
				p.broken("dev down", err, string(out))
			}
		})
	}
	stopping.Wait()
	return dirs
}

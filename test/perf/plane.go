/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

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
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/counts"
)

// ticks is the number of clock ticks in a second, the unit of times in /proc.
const ticks = 100

// plane is a control plane to measure.
type plane struct {
	*controlplane.Cluster
	admin   *rest.Config
	core    kubernetes.Interface
	dynamic dynamic.Interface
	nsinit  versioned.Interface
	// serves says that nsinit runs.
	serves bool
	// helpers are processes that belong to it, by name, such as initializers.
	helpers map[string]*exec.Cmd
}

// startPlane starts a new control plane, with or without nsinit.
func startPlane(ctx context.Context, dir string, nsinit bool) (*plane, error) {
	return startPlaneAt(ctx, dir, nsinit, true)
}

// startPlaneAt is startPlane with the default rates of requests of kube-controller-manager, or with higher ones.
func startPlaneAt(ctx context.Context, dir string, nsinit, defaultRates bool) (*plane, error) {
	c, err := controlplane.NewCluster(dir, "")
	if err != nil {
		return nil, err
	}
	c.DefaultRates, c.Env = defaultRates, map[string][]string{}
	for _, g := range memoryGroups() { // as in their pods
		c.Env[g.program] = []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", g.limit)}
	}
	p := &plane{Cluster: c, serves: nsinit, helpers: map[string]*exec.Cmd{}}
	up := c.UpKubernetes
	if nsinit {
		up = c.Up
	}
	if err := up(ctx); err != nil {
		return nil, errors.Join(err, p.stop(ctx))
	}
	if p.admin, err = c.AdminConfig(); err != nil {
		return nil, errors.Join(err, p.stop(ctx))
	}
	p.admin.QPS, p.admin.Burst = -1, -1
	p.core, p.dynamic, p.nsinit = kubernetes.NewForConfigOrDie(p.admin), dynamic.NewForConfigOrDie(p.admin), versioned.NewForConfigOrDie(p.admin)
	return p, nil
}

// stop stops it, and removes its state.
func (p *plane) stop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	p.stopHelpers()
	return errors.Join(p.Down(ctx), os.RemoveAll(p.Dir))
}

// startHelper starts a program that belongs to the control plane.
func (p *plane) startHelper(ctx context.Context, name, program string, args ...string) error {
	return p.startHelperWith(ctx, nil, name, program, args...)
}

// startHelperWith does the same with more environment variables.
func (p *plane) startHelperWith(ctx context.Context, environment []string, name, program string, args ...string) error {
	log, err := os.Create(filepath.Join(p.Dir, name+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := exec.CommandContext(ctx, program, args...)
	command.Stdout, command.Stderr = log, log
	command.Env = slices.Concat(os.Environ(), p.Env[name], environment)
	if err := command.Start(); err != nil {
		return err
	}
	p.helpers[name] = command
	return nil
}

func (p *plane) stopHelpers() {
	for name := range p.helpers {
		p.stopHelper(name)
	}
}

func (p *plane) stopHelper(name string) {
	_ = p.helpers[name].Process.Kill()
	_ = p.helpers[name].Wait()
	delete(p.helpers, name)
}

// pids returns the processes of the control plane by name.
func (p *plane) pids() map[string]int {
	pids := map[string]int{}
	for _, name := range controlplane.ProgramNames() {
		if pid := p.Process(name).Pid(); pid != 0 {
			pids[name] = pid
		}
	}
	for name, command := range p.helpers {
		pids[name] = command.Process.Pid
	}
	return pids
}

// cpu returns the CPU time in seconds that each process has used. That of nsinit-apiserver includes its etcd.
func (p *plane) cpu() (map[string]float64, error) {
	used := map[string]float64{}
	for name, pid := range p.pids() {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil, err
		}
		// The fields after the name of the command begin with the state, which is the third.
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		user, err := strconv.ParseFloat(fields[11], 64)
		if err != nil {
			return nil, err
		}
		system, err := strconv.ParseFloat(fields[12], 64)
		if err != nil {
			return nil, err
		}
		if name == "nsinit-etcd" {
			name = "nsinit-apiserver"
		}
		used[name] += (user + system) / ticks
	}
	return used, nil
}

// spent returns the CPU time in seconds that a process uses while a function runs, to the microsecond.
func (p *plane) spent(name string, work func() error) (float64, error) {
	before, err := scheduled(p.pids()[name])
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	after, err := scheduled(p.pids()[name])
	return after - before, err
}

// scheduled returns how long the threads of a process have run, in seconds. The threads of Go programs do not end.
func scheduled(pid int) (float64, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		nanoseconds, err := strconv.ParseFloat(strings.Fields(string(data))[0], 64)
		if err != nil {
			return 0, err
		}
		sum += nanoseconds / 1e9
	}
	return sum, nil
}

// memory returns the memory in bytes that each process has in RAM.
func (p *plane) memory() (map[string]float64, error) {
	resident := map[string]float64{}
	for name, pid := range p.pids() {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return nil, err
		}
		pages, err := strconv.ParseFloat(strings.Fields(string(data))[1], 64)
		if err != nil {
			return nil, err
		}
		resident[name] = pages * float64(os.Getpagesize())
	}
	return resident, nil
}

// total returns the sum of the values.
func total(values map[string]float64) float64 {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(values)) {
		sum += values[name]
	}
	return sum
}

// spending are requests and commits.
type spending struct {
	// kube and nsinit are the requests to kube-apiserver and to nsinit-apiserver. kube-apiserver passes on each of the latter.
	kube, nsinit float64
	// commits are the write transactions of both in etcd, with the two of kube-controller-manager for each namespace.
	commits float64
}

func (s spending) since(before spending) spending {
	return spending{s.kube - before.kube, s.nsinit - before.nsinit, s.commits - before.commits}
}

// spending counts requests and commits since the programs started, without those about events.
func (p *plane) spending(ctx context.Context) (spending, error) {
	var s spending
	kube, err := counts.Read(ctx, p.admin)
	if err != nil {
		return s, err
	}
	s.kube, s.commits = counts.Sum(kube.Requests, counts.Events), counts.Sum(kube.Writes, counts.Events)
	if !p.serves {
		return s, nil
	}
	nsinit, err := counts.Read(ctx, p.direct("nsinit-apiserver"))
	if err != nil {
		return s, err
	}
	s.nsinit = counts.Sum(nsinit.Requests)
	s.kube += s.nsinit
	s.commits += counts.Sum(nsinit.Writes)
	return s, nil
}

// idle waits until the control plane does nothing but what it always does, and returns its CPU time in seconds per second,
// by process.
func (p *plane) idle(ctx context.Context, window time.Duration) (map[string]float64, error) {
	const limit, most, enough = 60, 0.2, 0.04 // windows; CPU seconds per second in two quiet windows, and the difference between them
	last := -1.0
	for range limit {
		before, err := p.cpu()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(window):
		}
		after, err := p.cpu()
		if err != nil {
			return nil, err
		}
		for name := range after {
			after[name] = (after[name] - before[name]) / time.Since(began).Seconds()
		}
		rate := total(after)
		if last >= 0 && rate < most && rate-last < enough && last-rate < enough {
			return after, nil
		}
		last = rate
	}
	return nil, fmt.Errorf("%s does not become quiet: %.2f CPU seconds per second", p.Dir, last)
}

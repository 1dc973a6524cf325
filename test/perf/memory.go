/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// What nsinit-guard-create admits.
const (
	mostEntries = 32
	mostBytes   = 8192
)

// memoryGroup is the cgroup of a program, with the limit of its pod.
type memoryGroup struct {
	program, dir string
	limit        int
	// peak is the largest working set in bytes, as the kubelet counts it: the usage without inactive pages of files.
	peak int
}

// memoryGroups returns the programs with the limits of the manifests, in MiB.
func memoryGroups() []*memoryGroup {
	return []*memoryGroup{
		{program: "nsinit-apiserver", limit: 512}, {program: "nsinit-etcd", limit: 320},
		{program: "nsinit-controller-manager", limit: 256}, {program: repairs, limit: 256},
	}
}

// memoryCommand adds the flags of the command, and returns what it does.
func memoryCommand(ctx context.Context, flags *flag.FlagSet) func() error {
	planes := ""
	planesFlag(flags, &planes)
	namespaces := flags.Int("namespaces", 1000, "the number of namespaces")
	return func() error { return measureMemory(ctx, planes, *namespaces) }
}

// measureMemory measures how much memory the programs use while a tenant creates the largest namespaces, and after a restart, and
// how long the namespaces of others take.
func measureMemory(ctx context.Context, planes string, namespaces int) (err error) {
	// At its default rates, kube-controller-manager creates 20 ServiceAccounts in a second, first in, first out, and each namespace waits
	// for its own. That would hide what nsinit does.
	p, err := startPlaneAt(ctx, filepath.Join(planes, "memory"), true, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop(ctx)) }()
	config := rest.CopyConfig(p.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: "perf-tenant", Groups: []string{"system:masters"}}
	tenant := *p // another creator
	if tenant.core, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := p.registerRepairs(ctx); err != nil {
		return err
	}
	if err := p.startHelper(ctx, repairs, p.Process(repairs).Program, p.Process(repairs).Args...); err != nil {
		return err
	}
	groups := memoryGroups()
	for _, g := range groups {
		defer func() { err = errors.Join(err, g.remove()) }()
		if err := p.confine(g); err != nil {
			return err
		}
	}
	if err := p.restartConfined(ctx); err != nil {
		return err
	}
	watching, end := context.WithCancel(ctx)
	var sampling sync.WaitGroup
	defer sampling.Wait()
	defer end()
	for _, g := range groups {
		sampling.Go(func() { g.sample(watching) })
	}
	fmt.Print("| |")
	for _, g := range groups {
		fmt.Printf(" %s, MiB |", g.program)
	}
	fmt.Printf(" namespaces of others: p50, p99, max, ms |\n%s|\n", strings.Repeat("| --- ", len(groups)+2))
	row := func(what string, others [3]float64) {
		fmt.Printf("| %s |", what)
		for _, g := range groups {
			fmt.Printf(" %d of %d |", g.peak>>20, g.limit)
		}
		fmt.Printf(" %.0f, %.0f, %.0f |\n", others[0], others[1], others[2])
	}
	for _, step := range []struct {
		what   string
		create func(context.Context, string) error
	}{
		{"before", nil}, {fmt.Sprintf("while %d ordinary namespaces are created", namespaces), tenant.createNamespace},
		{fmt.Sprintf("while %d of the largest are created", namespaces), tenant.createLargest}, {"after a restart of the programs", nil},
	} {
		if strings.HasPrefix(step.what, "after") {
			if err := p.restartConfined(ctx); err != nil {
				return err
			}
		}
		times, err := p.othersDuring(ctx, namespaces, step.create)
		if err != nil {
			return err
		}
		row(step.what, quantiles(times))
	}
	end()
	sampling.Wait()
	for _, g := range groups {
		if killed, err := g.value("memory.oom_control", "oom_kill"); err != nil || killed > 0 || g.peak > g.limit<<20/2 {
			return fmt.Errorf("%s used %d MiB, more than half of its limit, and was killed %d times (%w)", g.program, g.peak>>20, killed, errors.Join(err, errors.New("no other error")))
		}
	}
	return nil
}

// othersDuring returns how long namespaces of other tenants take, one after the other, while a tenant creates namespaces in some
// way, if there is one.
func (p *plane) othersDuring(ctx context.Context, namespaces int, create func(context.Context, string) error) (times []float64, err error) {
	const least = 50
	began, flood := time.Now().UnixNano(), make(chan error, 1)
	if create == nil {
		flood <- nil
	} else {
		go func() {
			_, _, err := p.burstOf(ctx, fmt.Sprintf("flood-%d", began), namespaces, 1, readySigns(), create)
			flood <- err
		}()
	}
	for n := 0; n < least || len(flood) == 0; n++ {
		one, _, err := p.burst(ctx, fmt.Sprintf("other-%d-%d", began, n), 1, 1, readySigns())
		if err != nil {
			return nil, err
		}
		if times = append(times, one...); create != nil && len(flood) > 0 {
			break
		}
	}
	return times, <-flood
}

// confine moves the process that starts a program, and a helper itself, into a cgroup.
func (p *plane) confine(g *memoryGroup) error {
	g.dir = filepath.Join("/sys/fs/cgroup/memory", fmt.Sprintf("nsinit-perf-%d-%s", os.Getpid(), g.program))
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return fmt.Errorf("cannot create a cgroup, which needs root and cgroup v1: %w", err)
	}
	pid := 0
	if helper := p.helpers[g.program]; helper != nil {
		pid = helper.Process.Pid
	} else if data, err := os.ReadFile(filepath.Join(p.Dir, g.program+".supervisor.pid")); err != nil {
		return err
	} else if pid, err = strconv.Atoi(strings.Fields(string(data))[0]); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(g.dir, "memory.limit_in_bytes"), []byte(strconv.Itoa(g.limit<<20)), 0o600),
		os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600))
}

// restartConfined kills the programs that have a supervisor, and waits until namespaces open again.
func (p *plane) restartConfined(ctx context.Context) error {
	for _, program := range []string{"nsinit-etcd", "nsinit-apiserver", "nsinit-controller-manager"} {
		if err := p.Process(program).Signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	_, _, err := p.burst(ctx, fmt.Sprintf("restarted-%d", time.Now().UnixNano()), 5, 1, readySigns())
	return err
}

// createLargest creates a namespace with the largest labels and annotations that are admitted.
func (p *plane) createLargest(ctx context.Context, name string) error {
	const each = 60
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	free := mostBytes - len(corev1.LabelMetadataName) - len(name)
	for i := range mostEntries - 1 { // kube-apiserver adds one
		key := fmt.Sprintf("k%02d", i)
		n.Labels[key] = strings.Repeat("x", each)
		free -= len(key) + each
	}
	for i := range mostEntries {
		key := fmt.Sprintf("k%02d", i)
		size := free/(mostEntries-i) - len(key)
		n.Annotations[key] = strings.Repeat("x", size)
		free -= len(key) + size
	}
	_, err := p.core.CoreV1().Namespaces().Create(ctx, n, metav1.CreateOptions{})
	return err
}

// sample records the peak until the context ends.
func (g *memoryGroup) sample(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) {
		usage, usageErr := g.value("memory.usage_in_bytes", "")
		inactive, inactiveErr := g.value("memory.stat", "total_inactive_file")
		if usageErr == nil && inactiveErr == nil {
			counted, _ := g.value("memory.stat", "total_mapped_file")
			g.peak = max(g.peak, usage-inactive+max(0, g.mapped()-counted))
		}
	}, 20*time.Millisecond)
}

// mapped returns the size of the pages of files that a process has mapped. In a pod, those of the program count, too; here,
// they count for the cgroup in which it ran first.
func (g *memoryGroup) mapped() (bytes int) {
	pids, _ := os.ReadFile(filepath.Join(g.dir, "cgroup.procs")) // none: the program is being restarted
	for pid := range strings.FieldsSeq(string(pids)) {
		if program, err := os.Readlink(filepath.Join("/proc", pid, "exe")); err != nil || filepath.Base(program) == "dev" {
			continue // it has ended, or restarts the program
		}
		if data, err := os.ReadFile(filepath.Join("/proc", pid, "statm")); err == nil {
			pages, _ := strconv.Atoi(strings.Fields(string(data))[2])
			bytes = max(bytes, pages*os.Getpagesize())
		}
	}
	return bytes
}

// value reads a number from a file of the cgroup, after a key unless it is empty.
func (g *memoryGroup) value(file, key string) (int, error) {
	f, err := os.Open(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		if fields := strings.Fields(scanner.Text()); key == "" || fields[0] == key {
			return strconv.Atoi(fields[len(fields)-1])
		}
	}
	return 0, fmt.Errorf("%s has no %s", f.Name(), key)
}

// remove moves the processes of the cgroup back, and removes it.
func (g *memoryGroup) remove() error {
	pids, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	for pid := range slices.Values(strings.Fields(string(pids))) {
		_ = os.WriteFile(filepath.Join(filepath.Dir(g.dir), "cgroup.procs"), []byte(pid), 0o600) // it may have ended
	}
	return errors.Join(err, os.Remove(g.dir))
}

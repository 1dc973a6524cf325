/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
	"github.com/nsinit/nsinit/test/faults/proxy"
)

// stopGrace is how long a program may take to end.
const stopGrace = time.Minute

// Topology is the number of replicas of each program that can have several.
type Topology struct {
	KubeAPIServers int
	// NsinitEtcds is the number of members of nsinit's etcd cluster. Without one, the one nsinit-apiserver has an
	// embedded etcd.
	NsinitEtcds       int
	NsinitAPIServers  int
	Controllers       int
	PolicyPopulations int
}

// nsinitEtcds is the number of processes of nsinit's etcd.
func (t Topology) nsinitEtcds() int { return max(1, t.NsinitEtcds) }

// Full is the topology of the campaign.
func Full() Topology {
	return Topology{KubeAPIServers: 2, NsinitEtcds: 3, NsinitAPIServers: 2, Controllers: 2, PolicyPopulations: 2}
}

// Small has one of each, and an embedded etcd.
func Small() Topology {
	return Topology{KubeAPIServers: 1, NsinitAPIServers: 1, Controllers: 1, PolicyPopulations: 1}
}

// Options describe a cluster.
type Options struct {
	Topology Topology
	// Dir is the state directory: an empty one, or one of an earlier cluster, whose state is removed.
	// Its path must be short, because a unix socket is in it. Empty: a new temporary directory.
	Dir string
	// BinDir has programs that replace those in _output/bin, such as a build with failpoints. It may lack
	// some.
	BinDir string
	// EarlierDir has the programs of an earlier version of nsinit, see UseEarlier. Empty: there are none.
	EarlierDir string
	// Env is added to the environment of a program, such as GOFAIL_FAILPOINTS=… or GOFAIL_HTTP=….
	Env map[string][]string
	// Volume keeps the data of one etcd of nsinit on a small tmpfs, which FillVolume fills. It needs the
	// permission to mount.
	Volume bool
}

// Cluster is a running control plane. Its methods can be called concurrently.
type Cluster struct {
	// Dir is the state directory: PROGRAM.log, admin.kubeconfig, pki.
	Dir string

	options  Options
	base     *controlplane.Cluster
	admin    *rest.Config
	names    []string // programs, in the order in which they start
	links    map[string]*proxy.Link
	ports    map[string]int
	replicas []*replica
	stop     context.CancelFunc
	watching sync.WaitGroup

	mu        sync.Mutex
	processes map[string]*controlplane.Process
}

// Start starts a control plane with nsinit, and returns when its API is available and its policies
// act on each kube-apiserver. If that fails, it stops what it started, and leaves the logs.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c, err := prepare(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Down(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// prepare creates the cluster without its processes.
func prepare(ctx context.Context, options Options) (*Cluster, error) {
	t := options.Topology
	if t.KubeAPIServers < 1 || t.NsinitAPIServers < 1 || t.NsinitEtcds == 0 && t.NsinitAPIServers > 1 {
		return nil, fmt.Errorf("topology %+v: it takes a kube-apiserver, an nsinit-apiserver, and an etcd cluster for several", t)
	}
	dir, err := stateDir(ctx, options.Dir)
	if err != nil {
		return nil, err
	}
	base, err := controlplane.NewCluster(dir, "")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: base.Dir, options: options, base: base, stop: func() {},
		links: map[string]*proxy.Link{}, ports: maps.Clone(base.Ports), processes: map[string]*controlplane.Process{}}
	for _, step := range []func() error{base.Identities, c.certificates, c.mountVolume, c.define} {
		if err := step(); err != nil {
			return nil, errors.Join(err, c.Down(context.WithoutCancel(ctx)))
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", base.AdminKubeconfig())
	if err != nil {
		return nil, errors.Join(err, c.Down(context.WithoutCancel(ctx)))
	}
	config.QPS = -1
	c.admin = config
	return c, nil
}

// marker is in each state directory. Its presence allows Start to empty the directory.
const marker = ".faults-cluster"

// stateDir returns an empty directory. It stops what an earlier cluster left in it.
func stateDir(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		made, err := os.MkdirTemp("", "faults")
		if err != nil {
			return "", err
		}
		dir = made
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, marker)); len(entries) > 0 && err != nil {
		return "", fmt.Errorf("%s is not empty and holds no earlier cluster: give another directory", dir)
	}
	if err := clean(ctx, dir); err != nil {
		return "", err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return "", err
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, marker), nil, 0o600)
}

// clean unmounts the volume of an earlier cluster. Its programs ended with the process that started
// them, which may have been a moment ago.
func clean(ctx context.Context, dir string) error {
	const extension = ".supervisor.pid"
	files, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	if err != nil {
		return err
	}
	for _, file := range files {
		p := &controlplane.Process{Name: strings.TrimSuffix(filepath.Base(file), extension), StateDir: dir}
		if err := p.Kill(ctx); err != nil {
			return err
		}
	}
	return unmountAll(dir)
}

// Down stops everything and unmounts the volume. It keeps the state directory with the logs.
func (c *Cluster) Down(ctx context.Context) error {
	c.stop()
	c.watching.Wait()
	var errs []error
	var work sync.WaitGroup
	var mu sync.Mutex
	for _, name := range c.names {
		work.Go(func() {
			// The state is not needed any more.
			if err := c.process(name).Kill(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	work.Wait()
	for _, link := range c.links {
		link.Close()
	}
	return errors.Join(append(errs, unmountAll(c.Dir))...)
}

// Programs returns the names of the programs, in the order in which they start.
func (c *Cluster) Programs() []string { return slices.Clone(c.names) }

// Links returns the names of the links.
func (c *Cluster) Links() []string { return slices.Sorted(maps.Keys(c.links)) }

// Link returns a link, or nil if there is none of that name.
func (c *Cluster) Link(name string) *proxy.Link { return c.links[name] }

// Admin returns the configuration of an administrator's client of one kube-apiserver.
func (c *Cluster) Admin(server int) *rest.Config {
	config := rest.CopyConfig(c.admin)
	config.Host = c.url(replicaName(kubeAPIServer, server))
	return config
}

// Kubectl runs kubectl as an administrator of the first kube-apiserver.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.base.Admin(ctx, args...)
}

// LogFile returns the path of a program's log.
func (c *Cluster) LogFile(program string) string { return filepath.Join(c.Dir, program+".log") }

// process returns a copy, so that its environment can be set meanwhile.
func (c *Cluster) process(program string) *controlplane.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := *c.processes[program]
	return &p
}

// with calls a function with the process of a program.
func (c *Cluster) with(program string, call func(*controlplane.Process) error) error {
	if !slices.Contains(c.names, program) {
		return fmt.Errorf("there is no program %q in %v", program, c.names)
	}
	return call(c.process(program))
}

// Kill ends a program with SIGKILL. It stays down.
func (c *Cluster) Kill(ctx context.Context, program string) error {
	return c.with(program, func(p *controlplane.Process) error { return p.Kill(ctx) })
}

// Stop ends a program with SIGTERM. It stays down.
func (c *Cluster) Stop(ctx context.Context, program string) error {
	return c.with(program, func(p *controlplane.Process) error { return p.Stop(ctx, stopGrace) })
}

// Crash kills a program, which its supervisor restarts.
func (c *Cluster) Crash(_ context.Context, program string) error {
	return c.signal(program, syscall.SIGKILL)
}

// Pause stops the execution of a program (SIGSTOP) until Resume.
func (c *Cluster) Pause(_ context.Context, program string) error {
	return c.signal(program, syscall.SIGSTOP)
}

// Resume ends Pause.
func (c *Cluster) Resume(_ context.Context, program string) error {
	return c.signal(program, syscall.SIGCONT)
}

func (c *Cluster) signal(program string, signal syscall.Signal) error {
	return c.with(program, func(p *controlplane.Process) error { return p.Signal(signal) })
}

// StartProgram starts a program that does not run, and returns when it runs, before it is ready. See
// WaitReady.
func (c *Cluster) StartProgram(_ context.Context, program string) error {
	return c.with(program, func(p *controlplane.Process) error { return p.Start() })
}

// Running reports whether a program runs. A paused one does.
func (c *Cluster) Running(program string) bool {
	return c.with(program, func(p *controlplane.Process) error {
		if p.Pid() == 0 {
			return errors.New("it does not run")
		}
		return nil
	}) == nil
}

// Restarts returns a line for each restart of a program that exited by itself or crashed, since it was
// last started.
func (c *Cluster) Restarts(program string) []string {
	if !slices.Contains(c.names, program) {
		return nil
	}
	return c.process(program).Restarts()
}

// SetEnv replaces the additional environment of a program from its next start on. Restarts of a crashed
// program keep the environment with which it was started.
func (c *Cluster) SetEnv(program string, env []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes[program]; p != nil {
		p.Env = slices.Clone(env)
	}
}

// UseEarlier chooses the version of a program from its next start on: the one in Options.EarlierDir, or that of Options.BinDir.
func (c *Cluster) UseEarlier(program string, earlier bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, dir := c.processes[program], c.options.BinDir
	if earlier {
		dir = c.options.EarlierDir
	}
	p.Program = c.file(filepath.Base(p.Program), dir)
}

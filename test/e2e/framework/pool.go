/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
)

const (
	// dirVariable is the state directory of a running control plane. The default is _output/dev.
	dirVariable = "NSINIT_DEV_DIR"
	// planesVariable is the number of control planes for tests that call Connect. The default is 1: the one in dirVariable.
	// The tests start the others, in directories beside it, when they need them.
	planesVariable = "NSINIT_E2E_PLANES"
)

// plane is a control plane that one test after the other uses.
type plane struct {
	dir string
	// ours says that this process has tried to start it, and running that it runs.
	ours, running bool
}

// pool holds the control planes that no test uses.
type pool struct {
	mu   sync.Mutex
	free *sync.Cond
	idle []*plane
	// all are the control planes of the pool. The first was started before the tests.
	all []*plane
}

// shared returns the pool of the control planes that Connect returns.
var shared = sync.OnceValue(newPool) //nolint:gochecknoglobals // the control planes are of the whole process

func newPool() *pool {
	first := os.Getenv(dirVariable)
	if first == "" {
		first = filepath.Join(root(), "_output", "dev")
	}
	p := &pool{all: []*plane{{dir: first, running: true}}}
	p.free = sync.NewCond(&p.mu)
	planes, _ := strconv.Atoi(os.Getenv(planesVariable))
	for n := 2; n <= planes; n++ {
		p.all = append(p.all, &plane{dir: fmt.Sprintf("%s-%d", first, n)})
	}
	p.idle = slices.Clone(p.all)
	return p
}

// take waits until a control plane is idle, and returns it. It prefers one that runs.
func (p *pool) take() *plane {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) == 0 {
		p.free.Wait()
	}
	i := max(0, slices.IndexFunc(p.idle, func(one *plane) bool { return one.running }))
	taken := p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)
	return taken
}

func (p *pool) give(back *plane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, back)
	p.free.Signal()
}

// Main runs the tests, and stops the control planes that Connect started. TestMain calls it.
func Main(m *testing.M) {
	code := m.Run()
	var stopping sync.WaitGroup
	for _, one := range shared().all {
		if one.ours {
			stopping.Go(func() { _ = exec.Command(filepath.Join(BinDir(), "dev"), "--dir", one.dir, "down").Run() })
		}
	}
	stopping.Wait()
	os.Exit(code)
}

// Connect returns a control plane that no other test uses meanwhile. The test runs in parallel with others. It leaves the
// control plane as it was.
func Connect(t *testing.T) *Cluster {
	t.Helper()
	t.Parallel()
	one := shared().take()
	t.Cleanup(func() { shared().give(one) })
	c := &Cluster{Root: root(), Dir: one.dir}
	if !one.running {
		one.ours = true
		c.Dev(t, "up")
		one.running = true
	}
	c.load(t)
	return c
}

// Another starts a control plane for this test, and stops it when the test ends. Use it for what would spoil the control
// plane of other tests. It takes the arguments of dev up. The test runs in parallel with others.
func Another(t *testing.T, up ...string) *Cluster {
	t.Helper()
	t.Parallel()
	dir, err := os.MkdirTemp("", "nsinit-e2e")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Root: root(), Dir: dir}
	t.Cleanup(func() {
		c.Dev(t, "down")
		_ = os.RemoveAll(dir)
	})
	c.Dev(t, append([]string{"up"}, up...)...)
	c.load(t)
	return c
}

// root returns the folder of the project. Tests run in test/e2e.
func root() string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "."
	}
	return dir
}

// BinDir returns the folder of the programs: those of Kubernetes, those of nsinit, and those that Build builds.
func BinDir() string { return filepath.Join(root(), "_output", "bin") }

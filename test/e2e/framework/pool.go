/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// dirVariable is the state directory of the first control plane. The default is _output/dev.
	dirVariable = "NSINIT_DEV_DIR"
	// planesVariable is the number of control planes that may run at the same time. The tests start them when they need
	// them. The default is one that runs already, in dirVariable.
	planesVariable = "NSINIT_E2E_PLANES"
	// sharingAtOnce is the number of tests that use the shared control plane at the same time.
	sharingAtOnce = 4
	// testsIfBusy is the number of tests that run at the same time on a busy machine. One on which more than busyThreads threads for each
	// CPU want to run is busy: requests take so long that tests wait in vain.
	testsIfBusy, busyThreads = 2, 4
	// startPause is the time between two starts of control planes, after which the machine shows whether it is busy.
	startPause = 5 * time.Second
)

// plane is a control plane.
type plane struct {
	dir string

	mu sync.Mutex // held while it is started
	// ours says that this process has tried to start it, and running that it runs.
	ours, running bool
}

// pool decides which tests run, and on which control planes.
type pool struct {
	// all are the control planes that several tests use. Tests that share a control plane use the first.
	all []*plane
	// longest are the names of the tests that start first.
	longest []string

	mu      sync.Mutex
	changed *sync.Cond
	// idle are the control planes of all that no test uses. The first is among them only if no test shares it any more.
	idle []*plane
	// waiting are the tests that have no control plane yet, in the order in which they get one.
	waiting []*request
	// share is the number of tests that share the first control plane, and willShare also counts those that wait for it.
	share, willShare int
	// running is the number of tests that have a control plane, and busy says that the machine is busy.
	running int
	busy    bool
	// started is when the last control plane was started.
	started time.Time
}

// use is how a test uses a control plane.
type use int

const (
	// sharing uses the first control plane at the same time as others, alone uses one that no other test uses meanwhile, and
	// starting starts one in place of one of the pool.
	sharing use = iota
	alone
	starting
)

// request is a test that waits for a control plane.
type request struct {
	use   use
	order int
}

// planes returns the pool of this process.
var planes = sync.OnceValue(func() *pool { //nolint:gochecknoglobals // the control planes are of the whole process
	p := newPool()
	go p.observe()
	return p
})

func newPool() *pool {
	first := os.Getenv(dirVariable)
	if first == "" {
		first = filepath.Join(root(), "_output", "dev")
	}
	count, err := strconv.Atoi(os.Getenv(planesVariable))
	p := &pool{all: []*plane{{dir: first, running: err != nil}}}
	p.changed = sync.NewCond(&p.mu)
	for n := 2; n <= count; n++ {
		p.all = append(p.all, &plane{dir: fmt.Sprintf("%s-%d", first, n)})
	}
	p.idle = slices.Clone(p.all)
	return p
}

// observe notes every second whether the machine is busy: /proc/loadavg has the number of threads that want to run.
func (p *pool) observe() {
	average := 0.0
	for ; ; time.Sleep(time.Second) {
		load, _ := os.ReadFile("/proc/loadavg")
		var now, all float64
		_, _ = fmt.Sscanf(string(load), "%f %f %f %f/%f", &all, &all, &all, &now, &all)
		average += (now - average) / 4
		p.mu.Lock()
		p.busy = average > float64(busyThreads*runtime.NumCPU())
		p.changed.Broadcast()
		p.mu.Unlock()
	}
}

// enter announces a test. The pool must know every test before the first one starts.
func (p *pool) enter(test string, as use) *request {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, _, _ := strings.Cut(test, "/")
	r := &request{use: as, order: slices.Index(p.longest, name)}
	if r.order < 0 {
		r.order = len(p.longest)
	}
	if as == sharing {
		p.willShare++
	}
	p.waiting = append(p.waiting, r)
	slices.SortStableFunc(p.waiting, func(a, b *request) int { return cmp.Compare(a.order, b.order) })
	return r
}

// take waits until it is the turn of a test, and returns a control plane for it.
func (p *pool) take(r *request) *plane {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; ; p.changed.Wait() {
		if first := slices.IndexFunc(p.waiting, func(other *request) bool { return (other.use == sharing) == (r.use == sharing) }); p.waiting[first] != r {
			continue
		}
		taken := p.find(r.use)
		if taken == nil || p.running >= testsIfBusy && (p.busy || !taken.running && time.Since(p.started) < startPause) {
			continue
		}
		if p.running++; !taken.running {
			p.started = time.Now()
		}
		if r.use == sharing {
			p.share++
		}
		p.idle = slices.DeleteFunc(p.idle, func(one *plane) bool { return one == taken })
		p.waiting = slices.DeleteFunc(p.waiting, func(other *request) bool { return other == r })
		p.changed.Broadcast()
		return taken
	}
}

// find returns a control plane for a use, or nil. It prefers one that runs, unless the test starts its own.
func (p *pool) find(as use) *plane {
	first := p.all[0]
	if as == sharing {
		if p.share < sharingAtOnce && (p.share > 0 || slices.Contains(p.idle, first)) {
			return first
		}
		return nil
	}
	var other *plane
	for _, one := range p.idle {
		switch {
		case one == first && p.willShare > 0:
		case one.running == (as == alone):
			return one
		case other == nil:
			other = one
		}
	}
	return other
}

// leave gives a control plane back.
func (p *pool) leave(r *request, back *plane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if r.use == sharing {
		p.share--
		p.willShare--
	}
	if r.use != sharing || p.share == 0 {
		p.idle = append(p.idle, back)
	}
	p.changed.Broadcast()
}

// wait makes a test run in parallel with others, waits until it may, and returns a control plane that it has until it ends.
func wait(t *testing.T, as use) *plane {
	t.Helper()
	p := planes()
	r := p.enter(t.Name(), as)
	t.Parallel()
	began := time.Now()
	taken := p.take(r)
	t.Attr("waited", strconv.FormatFloat(time.Since(began).Seconds(), 'f', 1, 64)) // test/runner subtracts it
	t.Cleanup(func() { p.leave(r, taken) })
	return taken
}

// Main runs the tests, of which the longest start first, and stops the control planes that Connect started. TestMain calls
// it.
func Main(m *testing.M, longest ...string) {
	flag.Parse()
	// The pool decides how many tests run at the same time. It needs all of them, to start the longest first.
	if err := flag.Set("test.parallel", strconv.Itoa(math.MaxInt16)); err != nil {
		panic(err)
	}
	planes().longest = longest
	code := m.Run()
	var stopping sync.WaitGroup
	for _, one := range planes().all {
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
	one := wait(t, alone)
	c := &Cluster{Root: root(), Dir: one.dir}
	one.start(t, c)
	return c
}

// Share returns a control plane that other tests use at the same time. The names of the test's namespaces come from Name, and
// Configure registers initializers for these only. The test stops no program, and changes nothing that has an effect on
// namespaces of other tests.
func Share(t *testing.T) *Cluster {
	t.Helper()
	one := wait(t, sharing)
	c := &Cluster{Root: root(), Dir: one.dir, prefix: UniqueName("share") + "-"}
	one.start(t, c)
	return c
}

// start starts a control plane, unless it runs, and makes the clients of a test.
func (p *plane) start(t *testing.T, c *Cluster) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		p.ours = true
		c.up(t)
		p.running = true
	}
	c.load(t)
}

// Another starts a control plane for this test, and stops it when the test ends. Use it for what would spoil the control
// plane of other tests. It takes the arguments of dev up. The test runs in parallel with others.
func Another(t *testing.T, up ...string) *Cluster {
	t.Helper()
	wait(t, starting) // each control plane needs memory and CPU time
	c := &Cluster{Root: root()}
	t.Cleanup(func() { c.remove(t) })
	c.create(t, up)
	return c
}

// DependsOnKubernetes marks a test that depends on what kube-apiserver and kube-controller-manager do themselves, such as the
// evaluation of policies. make test-versions runs the marked tests on each supported version of Kubernetes: it finds the calls of
// this function in the source.
func DependsOnKubernetes(t *testing.T) {
	t.Helper()
	t.Attr("kubernetes", cmp.Or(os.Getenv("NSINIT_DEV_KUBERNETES"), "newest"))
}

// Environment marks a test of test/e2e that needs another environment than nsinit usually has, such as a control plane without
// kube-controller-manager, or that tests what authors of initializers use. make test does not run it, but make packaging: it finds the
// calls of this function in the source.
func Environment(t *testing.T) {
	t.Helper()
	t.Attr("environment", "special")
}

// Renew replaces a control plane that Another has started by a new one.
func (c *Cluster) Renew(t *testing.T, up ...string) {
	t.Helper()
	c.remove(t)
	c.create(t, up)
}

func (c *Cluster) create(t *testing.T, up []string) {
	t.Helper()
	var err error
	if c.Dir, err = os.MkdirTemp("", "nsinit-e2e"); err != nil {
		t.Fatal(err)
	}
	c.up(t, up...)
	c.load(t)
}

// built builds the programs, or returns the error of an earlier call.
var built = sync.OnceValue(func() error { //nolint:gochecknoglobals // the programs are of the whole process
	out, err := exec.Command(filepath.Join(BinDir(), "dev"), "build").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// up starts a control plane. It takes the arguments of dev up.
func (c *Cluster) up(t *testing.T, args ...string) {
	t.Helper()
	if err := built(); err != nil {
		t.Fatalf("cannot build the programs: %v", err)
	}
	c.Dev(t, append([]string{"--no-build", "up"}, args...)...)
}

func (c *Cluster) remove(t *testing.T) {
	t.Helper()
	c.Dev(t, "down")
	_ = os.RemoveAll(c.Dir)
}

// root returns the folder of the project. Tests run in test/e2e or test/packaging.
func root() string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "."
	}
	return dir
}

// BinDir returns the folder of the programs: those of Kubernetes, those of nsinit, and those that Build builds.
func BinDir() string { return filepath.Join(root(), "_output", "bin") }

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// step is a part of what a command does, or a check of its result.
type step func(context.Context) error

// inOrder takes steps until one fails.
func inOrder(ctx context.Context, steps ...step) error {
	for _, take := range steps {
		if err := take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// newest is the version of Kubernetes that the control plane runs by default.
const newest = "v1.37"

// Cluster is one control plane: a state directory, ports, and processes.
type Cluster struct {
	Root   string
	Dir    string
	BinDir string
	Ports  map[string]int
	// Bare means that no kube-controller-manager runs.
	Bare bool
	// Kubernetes is the version of Kubernetes, such as v1.35.
	Kubernetes string
	// DefaultRates means that kube-controller-manager limits its requests as in production. Otherwise tests and trials
	// do not wait for its limits.
	DefaultRates bool
	// Env has environment variables of programs, by name.
	Env map[string][]string
	// NoBuild means that the programs are built already.
	NoBuild bool

	start time.Time
}

// NewCluster returns the control plane of a state directory, _output/dev of this
// checkout if dir is empty, with a version of Kubernetes, the newest if that is empty. It
// starts nothing.
func NewCluster(dir, kubernetes string) (*Cluster, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir = filepath.Join(root, "_output", "dev")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if dir, err = canonical(dir); err != nil {
		return nil, err
	}
	if kubernetes == "" {
		kubernetes = newest
	}
	c := &Cluster{Root: root, Dir: dir, BinDir: filepath.Join(root, "_output", "bin"), Kubernetes: kubernetes, start: time.Now()}
	if module := c.kubernetesModule(kubernetes); !exists(module) {
		return nil, fmt.Errorf("version %q of Kubernetes is not supported: give one of the folders in %s", kubernetes, filepath.Dir(module))
	}
	if err := c.loadPorts(); err != nil {
		return nil, err
	}
	c.Bare = exists(c.bareFile())
	return c, nil
}

// findRoot returns the folder of this checkout: the one with the pinned versions of Kubernetes.
func findRoot() (string, error) {
	dir, err := canonical(".")
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "hack", "dev", "kubernetes")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run this inside a checkout of nsinit")
		}
	}
}

// canonical returns the absolute path of a folder without symbolic links, because a process is identified
// by the paths of its program and state directory.
func canonical(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// lock waits until no other command works in a folder. The kernel releases the lock when this command ends.
func (c *Cluster) lock(ctx context.Context, dir string) (unlock func(), err error) {
	var file *os.File
	waiting := false
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (_ bool, err error) {
		file, err = tryLock(filepath.Join(dir, ".lock"))
		if file == nil && err == nil && !waiting {
			c.say("waiting for another command that works in %s", dir)
			waiting = true
		}
		return file != nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	return func() { _ = file.Close() }, nil
}

// kubernetesModule is the folder of the module that pins a version of Kubernetes.
func (c *Cluster) kubernetesModule(version string) string {
	return filepath.Join(c.Root, "hack", "dev", "kubernetes", version)
}

// webhookStamps reports whether the stamp is a webhook, because Kubernetes is too old for the policy.
func (c *Cluster) webhookStamps() bool { return c.Kubernetes == "v1.34" || c.Kubernetes == "v1.35" }

// program returns the path of a program.
func (c *Cluster) program(name string) string {
	if _, versioned := versionedPrograms()[name]; versioned && c.Kubernetes != newest {
		return filepath.Join(c.BinDir, c.Kubernetes, name)
	}
	return filepath.Join(c.BinDir, name)
}

// bareFile marks the state directory of a control plane without kube-controller-manager.
func (c *Cluster) bareFile() string { return filepath.Join(c.Dir, "bare") }

// PKI holds the certificates and keys of the control plane.
func (c *Cluster) PKI() PKI { return PKI{Dir: filepath.Join(c.Dir, "pki")} }

// downCommand returns the command that stops this control plane.
func (c *Cluster) downCommand() string {
	return fmt.Sprintf("%s --dir %s down", filepath.Join(c.BinDir, "dev"), c.Dir)
}

// say prints one line of progress.
func (c *Cluster) say(format string, args ...any) {
	fmt.Printf("[%6.1fs] %s\n", time.Since(c.start).Seconds(), fmt.Sprintf(format, args...))
}

// Status prints what runs.
func (c *Cluster) Status() error {
	for _, name := range ProgramNames() {
		process := c.Process(name)
		state := "stopped"
		switch pid := process.Pid(); {
		case pid != 0:
			state = fmt.Sprintf("running, pid %d", pid)
		case process.Supervised():
			state = "exited, will be restarted"
		case process.SupervisorKilled():
			state = "stopped, because its supervisor was killed: run dev start " + name
		}
		fmt.Printf("%-28s %s\n", name, state)
		if restarts := process.Restarts(); len(restarts) > 0 {
			fmt.Printf("%-28s last restart: %s\n", "", restarts[len(restarts)-1])
		}
	}
	return nil
}

// Control starts, stops or kills one program.
func (c *Cluster) Control(ctx context.Context, command, name string) error {
	process := c.Process(name)
	if process == nil {
		return fmt.Errorf("unknown program %q", name)
	}
	switch command {
	case "start":
		return process.Start()
	case "stop":
		return process.Stop(ctx, time.Minute)
	default:
		return process.Kill(ctx)
	}
}

// Down stops the programs of this control plane in the reverse order.
func (c *Cluster) Down(ctx context.Context) error {
	unlock, err := c.lock(ctx, c.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	for _, name := range slices.Backward(ProgramNames()) {
		process := c.Process(name)
		if process.Active() {
			c.say("stopping %s", name)
		}
		errs = append(errs, process.Stop(ctx, 20*time.Second))
	}
	errs = append(errs, os.RemoveAll(c.logStoreDir())) // its data is outside of the state directory
	return errors.Join(errs...)
}

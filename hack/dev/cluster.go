/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Cluster is one control plane: a state directory, ports, and processes.
type Cluster struct {
	Root   string
	Dir    string
	BinDir string
	Ports  map[string]int

	start time.Time
}

// NewCluster returns the control plane of a state directory, _output/dev of this
// checkout if dir is empty. It starts nothing.
func NewCluster(dir string) (*Cluster, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir = filepath.Join(root, "_output", "dev")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	c := &Cluster{Root: root, Dir: dir, BinDir: filepath.Join(root, "_output", "bin"), start: time.Now()}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := c.loadPorts(); err != nil {
		return nil, err
	}
	return c, nil
}

// findRoot returns the folder of this checkout: the one whose hack/dev holds this module.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "hack", "dev", "go.mod")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run this inside a checkout of nsinit")
		}
	}
}

// portNames are the listeners of a control plane.
func portNames() []string {
	return []string{"etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "nsinit-apiserver", "nsinit-controller-manager"}
}

// loadPorts reads the ports that were chosen before, or chooses free ones. NSINIT_DEV_PORT
// sets the first of a row instead.
func (c *Cluster) loadPorts() error {
	file := filepath.Join(c.Dir, "ports.json")
	if data, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(data, &c.Ports); err != nil {
			return fmt.Errorf("%s is damaged, remove it: %w", file, err)
		}
		return nil
	}
	c.Ports = map[string]int{}
	var first int
	if text := os.Getenv("NSINIT_DEV_PORT"); text != "" {
		if _, err := fmt.Sscanf(text, "%d", &first); err != nil || first < 1 || first > 65000 {
			return fmt.Errorf("NSINIT_DEV_PORT is %q: set it to a port number, or leave it out to use free ports", text)
		}
	}
	for i, name := range portNames() {
		if first > 0 {
			c.Ports[name] = first + i
			continue
		}
		// The listeners stay open until all ports are chosen, so they differ.
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		c.Ports[name] = listener.Addr().(*net.TCPAddr).Port
	}
	data, err := json.MarshalIndent(c.Ports, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

func (c *Cluster) pki() PKI { return PKI{Dir: filepath.Join(c.Dir, "pki")} }

// say prints one line of progress.
func (c *Cluster) say(format string, args ...any) {
	fmt.Printf("[%6.1fs] %s\n", time.Since(c.start).Seconds(), fmt.Sprintf(format, args...))
}

// Status prints what runs.
func (c *Cluster) Status() error {
	for _, name := range programNames() {
		state := "stopped"
		if pid := c.process(name).Pid(); pid != 0 {
			state = fmt.Sprintf("running, pid %d", pid)
		}
		fmt.Printf("%-28s %s\n", name, state)
	}
	return nil
}

// control starts, stops or kills one program.
func (c *Cluster) control(ctx context.Context, command, name string) error {
	process := c.process(name)
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

// Down stops everything that was started, in the reverse order, and nothing else.
func (c *Cluster) Down(ctx context.Context) error {
	var errs []error
	for _, name := range slices.Backward(programNames()) {
		process := c.process(name)
		if process.Pid() != 0 {
			c.say("stopping %s", name)
		}
		errs = append(errs, process.Stop(ctx, 20*time.Second))
	}
	return errors.Join(errs...)
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withPorts returns a control plane that runs nothing, with ports that it has chosen.
func withPorts(t *testing.T, dir string) *Cluster {
	t.Helper()
	c := &Cluster{Root: dir, Dir: dir, Kubernetes: newest, BinDir: filepath.Join(dir, "bin"), start: time.Now()}
	if err := c.loadPorts(); err != nil {
		t.Fatal(err)
	}
	return c
}

// take listens on a port until the test ends.
func take(t *testing.T, c *Cluster, name string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:"+c.port(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
}

func TestPortsAreKept(t *testing.T) {
	dir := t.TempDir()
	c := withPorts(t, dir)
	seen := map[int]string{}
	for _, name := range portNames() {
		port := c.Ports[name]
		if port < firstPort || port > lastPort || seen[port] != "" {
			t.Errorf("%s has port %d, which %q has", name, port, seen[port])
		}
		seen[port] = name
	}
	if err := c.claimPorts(); err != nil {
		t.Fatal(err)
	}
	if again := withPorts(t, dir); !maps.Equal(again.Ports, c.Ports) {
		t.Errorf("ports %v were not kept: %v", c.Ports, again.Ports)
	}
}

// TestTakenPort: while nothing runs, another port replaces one that another program took, and the
// kubeconfigs of users contain the new port.
func TestTakenPort(t *testing.T) {
	c := withPorts(t, t.TempDir())
	if err := c.PKI().EnsureCA("ca"); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := c.UserKubeconfig("alice")
	if err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(c.Ports)
	take(t, c, "kube-apiserver")
	if err := c.claimPorts(); err != nil {
		t.Fatal(err)
	}
	if c.Ports["kube-apiserver"] == before["kube-apiserver"] {
		t.Error("a port that is taken was kept")
	}
	if again := withPorts(t, c.Dir); !maps.Equal(again.Ports, c.Ports) {
		t.Errorf("ports %v were not kept: %v", c.Ports, again.Ports)
	}
	if err := c.Identities(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), c.url("kube-apiserver")) {
		t.Errorf("the kubeconfig of alice does not know %s", c.url("kube-apiserver"))
	}
}

// TestTakenPortWhileRunning: the ports of running programs do not change.
func TestTakenPortWhileRunning(t *testing.T) {
	c := withPorts(t, t.TempDir())
	if err := os.Mkdir(c.BinDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.BinDir, "sleep.sh"), []byte("while :; do /bin/sleep 1; done\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/sh", filepath.Join(c.BinDir, "etcd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(devProgram(t), filepath.Join(c.BinDir, "dev")); err != nil {
		t.Fatal(err)
	}
	etcd := c.Process("etcd")
	etcd.Args = []string{filepath.Join(c.BinDir, "sleep.sh")}
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Kill(t.Context()) })
	if c.Process("etcd").Pid() == 0 {
		t.Fatal("the program that stands for etcd does not run")
	}
	take(t, c, "etcd") // its own port does not count as taken
	if err := c.claimPorts(); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(c.Ports)
	take(t, c, "nsinit-apiserver")
	if err := c.claimPorts(); err == nil || !strings.Contains(err.Error(), "port "+c.port("nsinit-apiserver")+" of nsinit-apiserver is taken") {
		t.Errorf("got %v", err)
	}
	if !maps.Equal(before, c.Ports) {
		t.Errorf("ports changed from %v to %v", before, c.Ports)
	}
}

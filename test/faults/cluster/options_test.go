/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWith(t *testing.T) {
	args := []string{"--a=1", "--b=2", "--bb=3", "-v=2"}
	got := with(args, map[string]string{"b": "x=y", "bb": "", "c": "4"})
	if want := []string{"--a=1", "-v=2", "--b=x=y", "--c=4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if args[1] != "--b=2" {
		t.Errorf("the arguments were changed: %q", args)
	}
}

// TestStateDir: only the state of an earlier cluster is removed.
func TestStateDir(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := stateDir(t.Context(), dir); err == nil || !exists(file) {
		t.Errorf("a directory with other files is used: %v", err)
	}
	for range 2 { // an empty directory, and one of an earlier cluster
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if got, err := stateDir(t.Context(), dir); got != dir || err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stateDir(t.Context(), dir); err != nil || exists(file) {
		t.Errorf("the state of an earlier cluster is left: %v", err)
	}
}

func TestTopology(t *testing.T) {
	for _, topology := range []Topology{{}, {KubeAPIServers: 1}, {KubeAPIServers: 1, NsinitAPIServers: 2}} {
		if _, err := Start(t.Context(), Options{Topology: topology}); err == nil {
			t.Errorf("%+v was started", topology)
		}
	}
}

// TestEmbeddedEtcd: the embedded etcd is a separate program. It and its server use the same directory.
func TestEmbeddedEtcd(t *testing.T) {
	for name, topology := range map[string]Topology{"small": Small(), "full": Full()} {
		c, err := prepare(t.Context(), Options{Topology: topology})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(c.Dir) })
		member, server, dir := c.process("nsinit-etcd-0"), c.process("nsinit-apiserver-0"), "--embedded-etcd-dir="+c.volume()
		embedded := filepath.Base(member.Program) == "nsinit-apiserver" && slices.Equal(member.Args, []string{"etcd", dir})
		served := slices.Contains(server.Args, dir) && strings.HasPrefix(c.etcdEndpoint("nsinit-etcd-0"), "unix://"+c.volume())
		if embedded != (name == "small") || embedded != served {
			t.Errorf("%s: %s %q, and the server has %q", name, member.Program, member.Args, server.Args)
		}
		if err := c.Down(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestUseEarlier: a program is that of the earlier version from its next start on, where that has it, until it is the tested one again.
func TestUseEarlier(t *testing.T) {
	earlier := t.TempDir()
	if err := os.WriteFile(filepath.Join(earlier, "policy-population"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := prepare(t.Context(), Options{Topology: Small(), EarlierDir: earlier})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(c.Dir) })
	for program, has := range map[string]bool{"policy-population-0": true, "nsinit-apiserver-0": false} {
		tested := c.process(program).Program
		c.UseEarlier(program, true)
		if got := c.process(program).Program; (filepath.Dir(got) == earlier) != has || filepath.Base(got) != filepath.Base(tested) {
			t.Errorf("%s is %s", program, got)
		}
		if c.UseEarlier(program, false); c.process(program).Program != tested {
			t.Errorf("%s is %s again", program, c.process(program).Program)
		}
	}
	if err := c.Down(t.Context()); err != nil {
		t.Error(err)
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestPKI(t *testing.T) {
	p := PKI{Dir: t.TempDir()}
	for _, step := range []func() error{
		func() error { return p.EnsureCA("ca") },
		func() error { return p.EnsureServing("server", "ca", "a.b.svc") },
		func() error { return p.EnsureClient("client", "ca", "alice", "team-a") },
		func() error { return p.EnsureKeyPair("tokens") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := os.ReadFile(p.Cert("ca"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for name, usage := range map[string]x509.ExtKeyUsage{"server": x509.ExtKeyUsageServerAuth, "client": x509.ExtKeyUsageClientAuth} {
		pair, err := tls.LoadX509KeyPair(p.Cert(name), p.Key(name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	before, _ := os.ReadFile(p.Cert("client"))
	if err := p.EnsureClient("client", "ca", "bob"); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(p.Cert("client")); string(after) != string(before) {
		t.Error("a certificate that was there was replaced")
	}
}

// TestForeignPid: a pid that belongs to another program now is not ours to kill.
func TestForeignPid(t *testing.T) {
	dir := t.TempDir()
	p := &Process{Name: "sleeper", Program: "/bin/sleep", Args: []string{"600"}, StateDir: dir}
	if err := os.WriteFile(filepath.Join(dir, "sleeper.pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid := p.Pid(); pid != 0 {
		t.Errorf("this test's own pid %d passes for the program", pid)
	}
	if err := p.Stop(context.Background(), time.Minute); err != nil {
		t.Error(err)
	}
}

func TestStartStop(t *testing.T) {
	dir := t.TempDir()
	// The state directory is part of the command line, as it is of every program here.
	p := &Process{Name: "sh", Program: "/bin/sh", Args: []string{"-c", "while :; do /bin/sleep 1; done # " + dir}, StateDir: dir}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	pid := p.Pid()
	if pid == 0 {
		t.Fatal("it does not run")
	}
	if err := p.Start(); err != nil || p.Pid() != pid {
		t.Errorf("a second start: %v, pid %d, it was %d", err, p.Pid(), pid)
	}
	if err := p.Stop(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if p.Pid() != 0 {
		t.Error("it still runs")
	}
}

func TestKubernetesVersion(t *testing.T) {
	version, err := kubernetesVersion("require (\n\tk8s.io/kubernetes v1.37.1\n)\nreplace k8s.io/api => k8s.io/api v0.37.1\n")
	if err != nil || version != "v1.37.1" {
		t.Errorf("%q, %v", version, err)
	}
	if _, err := kubernetesVersion("module x"); err == nil {
		t.Error("no error without a version")
	}
}

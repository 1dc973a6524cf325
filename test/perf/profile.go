/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// profiled are the programs that serve profiles.
var profiled = []string{"kube-apiserver", "nsinit-apiserver", "nsinit-controller-manager"} //nolint:gochecknoglobals // a constant

// profile writes profiles of the programs to a folder, while they do what a scenario measures with nsinit, and prints which
// functions use most CPU time and memory.
func profile(ctx context.Context, planes, dir, name string) (err error) {
	all := scenarios()
	named := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
	if named < 0 {
		return fmt.Errorf("--scenario=%q: name a scenario of scenarios.go", name)
	}
	measured := all[named].arms[slices.IndexFunc(all[named].arms, func(a arm) bool { return a.nsinit })]
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	p, err := startPlane(ctx, planes+"-profile", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop(ctx)) }()
	done := make(chan error, 1)
	go func() {
		if together := all[named].together; together != nil {
			_, err := together(ctx, map[bool]*plane{true: p}, "profile")
			done <- err
			return
		}
		figures, err := measured.measure(ctx, p, "profile")
		printFigures(figures)
		done <- err
	}()
	for n := 0; ; n++ {
		if err := p.fetchAll(ctx, "/debug/pprof/profile?seconds=5", dir, fmt.Sprintf("%03d.cpu", n)); err != nil {
			return err
		}
		select {
		case err := <-done:
			return errors.Join(err, p.fetchAll(ctx, "/debug/pprof/heap?gc=1", dir, "heap"), printProfiles(ctx, dir))
		default:
		}
	}
}

// printProfiles prints the top of all profiles of each program.
func printProfiles(ctx context.Context, dir string) error {
	for _, name := range profiled {
		for _, kind := range []string{"cpu", "heap"} {
			files, err := filepath.Glob(filepath.Join(dir, name+"*."+kind))
			if err != nil {
				return err
			}
			fmt.Printf("\ngo tool pprof %s\n", filepath.Join(dir, name+"*."+kind))
			top := exec.CommandContext(ctx, "go", append([]string{"tool", "pprof", "-top", "-nodecount=20"}, files...)...)
			top.Stdout = os.Stdout
			if err := top.Run(); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchAll stores what each program serves under a path.
func (p *plane) fetchAll(ctx context.Context, path, dir, suffix string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range profiled {
		group.Go(func() error { return p.fetch(ctx, name, path, filepath.Join(dir, name+"."+suffix)) })
	}
	return group.Wait()
}

// fetch stores what a program serves under a path.
func (p *plane) fetch(ctx context.Context, name, path, file string) error {
	data, err := versioned.NewForConfigOrDie(p.direct(name)).Discovery().RESTClient().Get().RequestURI(path).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("cannot read %s of %s: %w", path, name, err)
	}
	return os.WriteFile(file, data, 0o644)
}

// direct returns the configuration of a client of a program, not of kube-apiserver in front of it.
func (p *plane) direct(name string) *rest.Config {
	config := rest.CopyConfig(p.admin)
	if name == "kube-apiserver" {
		return config
	}
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", p.Ports[name])
	config.CAData, config.CAFile = nil, p.PKI().Cert("nsinit-ca")
	config.ServerName = "nsinit-apiserver.nsinit-system.svc" // both programs of nsinit have the same certificate here
	config.Dial = (&net.Dialer{}).DialContext
	return config
}

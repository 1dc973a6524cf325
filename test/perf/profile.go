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
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

// profile writes CPU and heap profiles of the servers and of the controller manager to a folder, while a storm of namespaces with
// one initializer runs. It prints the functions that use most CPU time.
func profile(ctx context.Context, planes, dir string) (err error) {
	const duration, top = 12 * time.Second, 25
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	p, err := startPlane(ctx, planes+"-profile", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop(ctx)) }()
	what := initializers{count: 1, write: true}
	_, err = what.with(ctx, p, "perf", readySigns(), func() (map[string]float64, error) {
		var group errgroup.Group
		for _, name := range []string{"kube-apiserver", "nsinit-apiserver", "nsinit-controller-manager"} {
			group.Go(func() error {
				if err := p.fetch(ctx, name, "/debug/pprof/profile?seconds="+strconv.Itoa(int(duration.Seconds())), filepath.Join(dir, name+".cpu")); err != nil {
					return err
				}
				return p.fetch(ctx, name, "/debug/pprof/heap?gc=1", filepath.Join(dir, name+".heap"))
			})
		}
		group.Go(func() error {
			_, _, err := p.burst(ctx, "profile", 334, clients, readySigns())
			return err
		})
		return nil, group.Wait()
	})
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.cpu"))
	if err != nil {
		return err
	}
	for _, file := range files {
		fmt.Println(file)
		print := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount="+strconv.Itoa(top), file)
		print.Stdout, print.Stderr = os.Stdout, os.Stderr
		if err := print.Run(); err != nil {
			return err
		}
	}
	return nil
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

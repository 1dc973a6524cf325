/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Run starts everything, and the initializer, shows what to try, and stops everything when
// the context ends.
func (c *Cluster) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	if err := c.Up(ctx); err != nil {
		return interrupted(ctx, err)
	}
	if err := c.ensure(ctx, "policy-population", func() error { return nil }); err != nil {
		return interrupted(ctx, err)
	}
	for _, manifest := range []string{"policy-population.yaml", "tenants.yaml"} {
		if _, err := c.admin(ctx, "apply", "--server-side", "-f", filepath.Join(c.Root, "artifacts", "examples", manifest)); err != nil {
			return interrupted(ctx, err)
		}
	}
	alice, err := c.UserKubeconfig("alice", "team-a")
	if err != nil {
		return err
	}
	fmt.Printf(`
nsinit runs. The initializer policy-population is registered and acts on every new namespace.
Try it, in another terminal:

  export PATH=%s:$PATH
  export KUBECONFIG=%s

  kubectl get namespaceinitializerconfigurations     # who acts on new namespaces
  kubectl explain namespacelifecycles.spec.initializers

  export KUBECONFIG=%s       # a tenant, who may create namespaces
  kubectl create namespace shop
  kubectl get namespace shop -o yaml                 # the conditions say what is waited for
  kubectl -n shop create configmap hello

  export KUBECONFIG=%s
  kubectl wait --for=condition=Ready namespace/shop
  kubectl get nsl                                    # what every namespace waits for
  kubectl describe nsl shop
  kubectl -n shop get rolebinding,quota,limits,netpol

Logs are in %s. Ctrl-C stops everything.

`, c.BinDir, c.AdminKubeconfig(), alice, c.AdminKubeconfig(), c.Dir)
	return c.watch(ctx)
}

// watch waits for the end, and says if a program ends before.
func (c *Cluster) watch(ctx context.Context) error {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Println()
			return nil
		case <-ticker.C:
		}
		for _, name := range programNames() {
			if process := c.process(name); process.Pid() == 0 {
				return fmt.Errorf("%s has ended, last lines of %s:\n%s", name, process.LogFile(), process.LogTail(15))
			}
		}
	}
}

// interrupted makes no error of a Ctrl-C.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

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

	"github.com/nsinit/nsinit/pkg/installation"
)

// approval is the initializer that artifacts/examples/approval.yaml registers.
const approval = "approval.example.com"

// Run starts everything with two initializers, prints what to try, and stops everything when the
// context ends.
func (c *Cluster) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	if err := c.run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (c *Cluster) run(ctx context.Context) error {
	if err := inOrder(ctx, c.Up, c.AskToRetry, c.storeCertificate, c.applyExamples, c.starts("policy-population", itRuns)); err != nil {
		return err
	}
	alice, err := c.UserKubeconfig("alice", "team-a")
	if err != nil {
		return err
	}
	fmt.Printf(`
nsinit runs. Two initializers act on each new namespace: policy-population, a program, and then
%[1]s, a person. Try it, in another terminal:

  export PATH=%[2]s:$PATH
  export KUBECONFIG=%[3]s
  # alice, a tenant who may create namespaces
  kubectl create namespace shop
  kubectl nsinit status shop                         # closed: it waits for your approval
  kubectl -n shop create configmap hello             # refused until you approve shop

  export KUBECONFIG=%[4]s
  # an administrator
  kubectl get namespaceinitializerconfigurations     # which initializers act on new namespaces
  kubectl get nsl                                    # which initializer each namespace waits for
  kubectl nsinit why shop                            # why it is closed, and the remedies
  kubectl nsinit done shop %[1]s      # approve it
  kubectl wait --for=condition=Ready namespace/shop
  kubectl -n shop get rolebinding,quota,limits,netpol
  kubectl get nspop,popns                            # what populations define and contain
  kubectl nsinit preview shop
  kubectl nsinit check

  export KUBECONFIG=%[3]s
  # alice again: the namespace is open, and she is its administrator
  kubectl -n shop create configmap hello
  kubectl nsinit create depot                        # returns when an administrator has approved depot
  kubectl create -f artifacts/examples/namespace-with-content.yaml
                                                     # waits, if you approve bakery within 10 seconds

Logs are in %[5]s. Ctrl-C stops everything. Until then, this shows each change of a NamespaceLifecycle:

`, approval, c.BinDir, alice, c.AdminKubeconfig(), c.Dir)
	return c.watch(ctx)
}

// applyExamples registers two initializers, and grants the group team-a to create namespaces.
func (c *Cluster) applyExamples(ctx context.Context) error {
	var err error
	for _, manifest := range []string{"policy-population.yaml", "approval.yaml", "tenants.yaml"} {
		if err == nil {
			_, err = c.Admin(ctx, "apply", "--server-side", "-f", filepath.Join(c.Root, "artifacts", "examples", manifest))
		}
	}
	return err
}

// storeCertificate stores the certificate of nsinit-apiserver in its Secret, as the installed manifests do, so
// that kubectl nsinit check finds it. The program itself reads files here.
func (c *Cluster) storeCertificate(ctx context.Context) error {
	secret, err := c.Admin(ctx, "create", "secret", "tls", installation.ServingSecret, "--namespace", installation.DefaultNamespace,
		"--cert", c.PKI().Cert("nsinit-apiserver"), "--key", c.PKI().Key("nsinit-apiserver"), "--dry-run=client", "--output=json")
	if err != nil {
		return err
	}
	_, err = c.adminInput(ctx, secret, "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

// watch shows changes of NamespaceLifecycles and restarts of programs, until the context or all programs end.
func (c *Cluster) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	shown := make(chan struct{})
	go func() { defer close(shown); c.showLifecycles(ctx) }()
	defer func() { cancel(); <-shown }()
	last := map[string]string{} // the restart that was shown last, by program
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Println()
			return nil
		case <-ticker.C:
		}
		active := false
		for _, name := range runPrograms() {
			process := c.Process(name)
			restarts := process.Restarts()
			for _, line := range restarts[slices.Index(restarts, last[name])+1:] {
				c.say("%s; its log is %s", line, process.LogFile())
				last[name] = line
			}
			if process.SupervisorKilled() {
				c.say("the supervisor of %s was killed: starting both again", name)
				if err := process.Start(); err != nil {
					return err
				}
			}
			active = active || process.Active()
		}
		if !active {
			c.say("another command stopped everything")
			return nil
		}
	}
}

// showLifecycles prints each change of a NamespaceLifecycle. It starts again when its watch ends, for
// example because nsinit-apiserver was restarted.
func (c *Cluster) showLifecycles(ctx context.Context) {
	// That of the probe is no part of what users do.
	_, _ = c.Admin(ctx, "wait", "--for=delete", "namespaces", "--selector", probeLabel, "--timeout=1m")
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		command := c.adminCommand(ctx, "get", "namespacelifecycles", "--watch", "--output-watch-events")
		command.Stdout = os.Stdout
		_ = command.Run()
	}, time.Second)
}

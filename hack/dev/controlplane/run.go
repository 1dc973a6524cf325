/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Run starts everything, and the initializer, shows what to try, and stops everything when
// the context ends.
func (c *Cluster) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	if err := c.Up(ctx); err != nil {
		return interrupted(ctx, err)
	}
	if err := c.AskToRetry(ctx); err != nil {
		return interrupted(ctx, err)
	}
	if err := c.ensure(ctx, "policy-population", func() error { return nil }); err != nil {
		return interrupted(ctx, err)
	}
	for _, manifest := range []string{"policy-population.yaml", "tenants.yaml"} {
		if _, err := c.Admin(ctx, "apply", "--server-side", "-f", filepath.Join(c.Root, "artifacts", "examples", manifest)); err != nil {
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
  kubectl -n shop create configmap hello             # waits by itself, if it comes too early
  kubectl apply -f artifacts/examples/namespace-with-content.yaml
  kubectl nsinit create depot                        # shows each initializer as it finishes

  export KUBECONFIG=%s
  kubectl wait --for=condition=Ready namespace/shop
  kubectl get nsl                                    # what every namespace waits for
  kubectl describe nsl shop
  kubectl nsinit why shop                            # what is in the way, and what helps
  kubectl -n shop get rolebinding,quota,limits,netpol
  kubectl get nspop,popns                            # what is put into namespaces, and what was
  kubectl nsinit preview shop
  kubectl nsinit check

Logs are in %s. Ctrl-C stops everything. Until then, this shows what namespaces wait for:

`, c.BinDir, c.AdminKubeconfig(), alice, c.AdminKubeconfig(), c.Dir)
	return c.watch(ctx)
}

// watch shows what happens to namespaces, and which programs are restarted, until the end.
func (c *Cluster) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	shown := make(chan struct{})
	go func() { defer close(shown); c.showRecords(ctx) }()
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

// showRecords prints a line for each change of what a namespace waits for. It begins again
// when its watch ends, as it does with nsinit-apiserver.
func (c *Cluster) showRecords(ctx context.Context) {
	last := map[string]string{}
	for {
		command := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl"), "--kubeconfig", c.AdminKubeconfig(),
			"get", "namespacelifecycles", "--watch", "--output-watch-events", "--output",
			`jsonpath={.type} {.object.metadata.name} {.object.status.phase} {.object.status.currentInitializer}{"\n"}`)
		command.Env = append(os.Environ(), "HOME="+c.Dir)
		if out, err := command.StdoutPipe(); err == nil && command.Start() == nil {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				if name, text := recordLine(lines.Text()); name != "" && last[name] != text && !strings.HasPrefix(name, probePrefix) {
					last[name] = text
					c.say("namespace %s %s", name, text)
				}
			}
			_ = command.Wait()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// recordLine turns an event of a record, its type, name, phase and current initializer,
// into the name of the namespace and what a person reads of it.
func recordLine(event string) (name, text string) {
	fields := strings.Fields(event)
	switch {
	case len(fields) < 3:
		return "", ""
	case fields[0] == "DELETED":
		return fields[1], "is gone"
	case len(fields) > 3:
		return fields[1], fmt.Sprintf("is %s, waiting for %s", fields[2], fields[3])
	default:
		return fields[1], "is " + fields[2]
	}
}

// interrupted makes no error of a Ctrl-C.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

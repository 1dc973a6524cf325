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
	"strings"
	"time"
)

const (
	// ProbeUser may write, so only a policy refuses its requests.
	ProbeUser = "nsinit-dev:probe"

	// probeNamespace is the manifest of a namespace that exists while the gate is checked.
	probeNamespace = `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "` + probePrefix + `", "labels": {"nsinit-dev/probe": "true"}}}`
	probePrefix    = "nsinit-dev-probe-"
	probeSelector  = "nsinit-dev/probe=true"
)

// policiesAct waits until the stamp and the guard are in force.
func (c *Cluster) policiesAct(ctx context.Context) error {
	return poll(ctx, startLimit, 200*time.Millisecond, func() error {
		out, err := c.Admin(ctx, "create", "namespace", "nsinit-dev-dry-run", "--dry-run=server",
			"-o", `jsonpath={.metadata.labels.nsinit\.dev/initializing}`)
		if err != nil {
			return fmt.Errorf("the stamp does not act: %w", err)
		}
		if out != "true" {
			return fmt.Errorf("the stamp does not act: a new namespace carries %q", out)
		}
		_, err = c.Admin(ctx, "label", "namespace", "default", "nsinit.dev/initializing=true", "--dry-run=server", "--as", ProbeUser)
		if !refusedBy(err, "nsinit-guard") {
			return fmt.Errorf("the guard does not act: %w", orOpen(err))
		}
		return nil
	})
}

// gateActsAndOpens waits until the gate refuses a write into a namespace that is initializing, starts the
// controller, and waits until it has created the NamespaceLifecycle. Only a closed namespace shows the gate, and
// the controller opens it, so the controller is stopped first. If it runs, and this kube-apiserver
// enforced this gate before, nothing is checked. nsinit-gate-namesakes is created before nsinit-gate,
// so it is in force by then.
func (c *Cluster) gateActsAndOpens(ctx context.Context) error {
	controller := c.Process("nsinit-controller-manager")
	gate, err := c.gateIdentity(ctx)
	if err != nil {
		return err
	}
	seen, _ := os.ReadFile(c.path("gate.seen"))
	if string(seen) == gate && controller.Current() {
		return nil
	}
	if err := controller.Stop(ctx, 30*time.Second); err != nil {
		return err
	}
	namespace, err := c.kubectlInput(ctx, c.AdminKubeconfig(), probeNamespace, "create", "-f", "-", "-o", "jsonpath={.metadata.name}")
	if err != nil {
		return err
	}
	if err := poll(ctx, startLimit, 200*time.Millisecond, func() error {
		_, err := c.Admin(ctx, "create", "configmap", "probe", "--namespace", namespace, "--dry-run=server", "--as", ProbeUser)
		if !refusedBy(err, "nsinit-gate") {
			return fmt.Errorf("the gate does not act: %w", orOpen(err))
		}
		return nil
	}); err != nil {
		return err
	}
	if err := c.ensure(ctx, controller.Name, func() error {
		_, err := c.Admin(ctx, "get", "namespacelifecycles", namespace)
		return err
	}); err != nil {
		return err
	}
	if _, err := c.Admin(ctx, "delete", "namespaces", "--selector", probeSelector, "--wait=false"); err != nil {
		return err
	}
	return os.WriteFile(c.path("gate.seen"), []byte(gate), 0o600)
}

// gateIdentity identifies the gate and the process of kube-apiserver that evaluates it.
func (c *Cluster) gateIdentity(ctx context.Context) (string, error) {
	server := c.Process("kube-apiserver")
	started, err := os.Stat(server.pidFile())
	if err != nil {
		return "", err
	}
	objects, err := c.Admin(ctx, "get", "validatingadmissionpolicy/nsinit-gate", "validatingadmissionpolicybinding/nsinit-gate",
		"validatingadmissionpolicy/nsinit-gate-namesakes", "validatingadmissionpolicybinding/nsinit-gate-namesakes",
		"-o", `jsonpath={range .items[*]}{.metadata.uid} {.metadata.generation}{"\n"}{end}`)
	return fmt.Sprintf("kube-apiserver %d %d\n%s", server.Pid(), started.ModTime().UnixNano(), objects), err
}

// refusedBy reports whether a policy refused a request.
func refusedBy(err error, policy string) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
}

// orOpen returns the error that was returned instead of a refusal.
func orOpen(err error) error {
	if err == nil {
		return errors.New("it admitted the request of the probe")
	}
	return err
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command gitops applies manifests with the libraries of Flux and Helm, and prints the states that Flux, Helm and Argo CD see.
//
//	gitops status ARGOCD-CM KUSTOMIZATION   reads an object as JSON, and prints its states as JSON
//	gitops apply KUBECONFIG [FLAG...]       reads manifests, and applies them as the kustomize-controller of Flux does
//	gitops install KUBECONFIG [FLAG...] RELEASE CHART NAMESPACE
//	                                        installs a chart as helm install --wait does
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sigs.k8s.io/yaml"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "status":
		return printStatus(ctx, os.Stdin, os.Stdout, args[1], args[2])
	case len(args) >= 2 && args[0] == "apply":
		return apply(ctx, os.Stdin, os.Stdout, args[1], args[2:])
	case len(args) >= 2 && args[0] == "install":
		return install(ctx, args[1], args[2:])
	}
	return errors.New("usage: gitops status ARGOCD-CM KUSTOMIZATION | apply KUBECONFIG | install KUBECONFIG RELEASE CHART NAMESPACE")
}

// readFile reads a file in YAML.
func readFile(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

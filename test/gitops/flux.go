/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/clusterreader"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/engine"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// readHealthCheckExprs reads the health checks of a Kustomization of Flux.
func readHealthCheckExprs(file string) ([]kustomize.CustomHealthCheck, error) {
	var kustomization struct {
		Spec struct {
			HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	if err := readFile(file, &kustomization); err != nil {
		return nil, err
	}
	return kustomization.Spec.HealthCheckExprs, nil
}

// apply reconciles manifests once, as the kustomize-controller of Flux does: it applies namespaces first, waits for them for at
// most a minute, applies the other objects, and waits for all of them.
func apply(ctx context.Context, in io.Reader, out io.Writer, kubeconfig string, args []string) error {
	flags := flag.NewFlagSet("apply", flag.ContinueOnError)
	kustomization := flags.String("kustomization", "", "a file with a Kustomization that has healthCheckExprs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	objects, err := utils.ReadObjects(in)
	if err != nil {
		return err
	}
	manager, err := newManager(kubeconfig, *kustomization)
	if err != nil {
		return err
	}
	changes, err := manager.ApplyAllStaged(ctx, objects, ssa.DefaultApplyOptions())
	if err != nil {
		return err
	}
	for _, change := range changes.Entries {
		if _, err := fmt.Fprintln(out, change.String()); err != nil {
			return err
		}
	}
	options := ssa.DefaultWaitOptions() // the controller sets spec.timeout
	options.FailFast = true
	return manager.WaitForSetWithContext(ctx, changes.ToObjMetadataSet(), options)
}

// newManager returns a manager with the health checks of a Kustomization, if there is one.
func newManager(kubeconfig, kustomization string) (*ssa.ResourceManager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	mapper, err := newMapper(config)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		return nil, err
	}
	options := polling.Options{ClusterReaderFactory: engine.ClusterReaderFactoryFunc(clusterreader.NewDirectClusterReader)}
	if kustomization != "" {
		checks, err := readHealthCheckExprs(kustomization)
		if err != nil {
			return nil, err
		}
		reader, err := cel.NewStatusReader(checks)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kustomization, err)
		}
		options.CustomStatusReaders = []engine.StatusReader{reader(mapper)}
	}
	return ssa.NewResourceManager(c, polling.NewStatusPoller(c, mapper, options),
		ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}), nil
}

func newMapper(config *rest.Config) (meta.RESTMapper, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return apiutil.NewDynamicRESTMapper(config, client)
}

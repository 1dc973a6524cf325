/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// install installs a chart, and waits until its objects are ready, as helm install --wait does.
func install(ctx context.Context, kubeconfig string, args []string) error {
	flags := flag.NewFlagSet("install", flag.ContinueOnError)
	upgrade := flags.Bool("upgrade", false, "upgrade the release if it exists, as helm upgrade --install does")
	create := flags.Bool("create-namespace", false, "create the namespace of the release")
	timeout := flags.Duration("timeout", time.Minute, "how long to wait until the objects are ready")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 3 {
		return fmt.Errorf("arguments %q, want RELEASE CHART NAMESPACE", flags.Args())
	}
	release, path, namespace := flags.Arg(0), flags.Arg(1), flags.Arg(2)
	chart, err := loader.Load(path)
	if err != nil {
		return err
	}
	getter := genericclioptions.NewConfigFlags(true)
	getter.KubeConfig, getter.Namespace = &kubeconfig, &namespace
	configuration := action.NewConfiguration()
	if err := configuration.Init(getter, namespace, "secrets"); err != nil {
		return err
	}
	if *upgrade {
		if _, err := action.NewHistory(configuration).Run(release); err == nil {
			u := action.NewUpgrade(configuration)
			u.Namespace, u.Timeout, u.WaitStrategy = namespace, *timeout, kube.StatusWatcherStrategy
			_, err = u.RunWithContext(ctx, release, chart, nil)
			return err
		} else if !errors.Is(err, driver.ErrReleaseNotFound) {
			return err
		}
	}
	i := action.NewInstall(configuration)
	i.ReleaseName, i.Namespace, i.CreateNamespace, i.Timeout, i.WaitStrategy = release, namespace, *create, *timeout, kube.StatusWatcherStrategy
	_, err = i.RunWithContext(ctx, chart, nil)
	return err
}

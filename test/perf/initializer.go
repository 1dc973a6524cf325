/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"golang.org/x/sync/errgroup"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
)

// initializerCommand adds the flags of the command, and returns what it does.
func initializerCommand(ctx context.Context, flags *flag.FlagSet) func() error {
	kubeconfig := flags.String("kubeconfig", "", "the kubeconfig")
	write := flags.Bool("write", false, "write one ConfigMap in each namespace")
	return func() error { return serveInitializers(ctx, *kubeconfig, *write, flags.Args()) }
}

// serveInitializers serves initializers with the SDK's defaults until the context ends.
func serveInitializers(ctx context.Context, kubeconfig string, write bool, names []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.QPS, config.Burst, config.DisableCompression = -1, -1, true
	core, nsinit := kubernetes.NewForConfigOrDie(config), versioned.NewForConfigOrDie(config)
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		runner, err := initializer.New(initializer.Options{Name: name, Core: core, Nsinit: nsinit, Initialize: func(ctx context.Context, namespace *corev1.Namespace) error {
			if !write {
				return nil
			}
			_, err := core.CoreV1().ConfigMaps(namespace.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "content"}}, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}})
		if err != nil {
			return err
		}
		group.Go(func() error { return runner.Run(ctx) })
	}
	return group.Wait()
}

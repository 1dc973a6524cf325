/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package cluster is how the commands reach a cluster: by kubectl's own flags.
package cluster

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

const (
	// qps and burst bound the requests, as in kubectl.
	qps   = 50
	burst = 300
)

// Flags name a cluster, and who asks.
type Flags struct {
	config *genericclioptions.ConfigFlags
}

// NewFlags returns the flags of kubectl, but for the namespace, which is an argument, and the
// cache, because nothing is cached.
func NewFlags() *Flags {
	f := &Flags{config: genericclioptions.NewConfigFlags(true)}
	f.config.Namespace, f.config.CacheDir = nil, nil
	return f
}

// AddFlags adds them to a command.
func (f *Flags) AddFlags(flags *pflag.FlagSet) { f.config.AddFlags(flags) }

// Config returns the configuration of clients.
func (f *Flags) Config() (*rest.Config, error) {
	config, err := f.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = qps, burst
	return config, nil
}

// Clients returns clients of the core API and of nsinit's.
func (f *Flags) Clients() (kubernetes.Interface, versioned.Interface, error) {
	config, err := f.Config()
	if err != nil {
		return nil, nil, err
	}
	return ClientsFor(config)
}

// ClientsFor returns clients of the core API and of nsinit's with a configuration.
func ClientsFor(config *rest.Config) (kubernetes.Interface, versioned.Interface, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	nsinit, err := versioned.NewForConfig(config)
	return core, nsinit, err
}

// CompleteNamespaces offers the names of namespaces for the first argument.
func (f *Flags) CompleteNamespaces(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.CompleteSome(func(*corev1.Namespace) bool { return len(args) == 0 })(command, args, prefix)
}

// CompleteSome offers the names of some namespaces that were not given yet.
func (f *Flags) CompleteSome(offered func(*corev1.Namespace) bool) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return f.complete(command.Context(), func(namespace *corev1.Namespace) bool {
			return offered(namespace) && !slices.Contains(args, namespace.Name)
		})
	}
}

func (f *Flags) complete(ctx context.Context, offered func(*corev1.Namespace) bool) ([]string, cobra.ShellCompDirective) {
	core, _, err := f.Clients()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	namespaces, err := core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range namespaces.Items {
		if offered(&namespaces.Items[i]) {
			names = append(names, namespaces.Items[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

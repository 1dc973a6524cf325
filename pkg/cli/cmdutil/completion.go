/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"math"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// CompleteFlag offers the values that a flag of a command can have.
func CompleteFlag(command *cobra.Command, flag string, values ...string) {
	// It is an error to complete a flag that does not exist, or twice: neither depends on input.
	utilruntime.Must(command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// CompleteNamespace offers every namespace for the first argument.
func CompleteNamespace(f Factory) cobra.CompletionFunc {
	return completeNamespaces(f, 1, func(*corev1.Namespace) bool { return true })
}

// CompleteNamespaces offers the namespaces for which offered is true, except those among the arguments.
func CompleteNamespaces(f Factory, offered func(*corev1.Namespace) bool) cobra.CompletionFunc {
	return completeNamespaces(f, math.MaxInt, offered)
}

func completeNamespaces(f Factory, most int, offered func(*corev1.Namespace) bool) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) (names []string, directive cobra.ShellCompDirective) {
		clients, err := f()
		if err != nil || len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespaces, err := clients.Core.CoreV1().Namespaces().List(command.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for i := range namespaces.Items {
			if namespace := &namespaces.Items[i]; offered(namespace) && !slices.Contains(args, namespace.Name) {
				names = append(names, namespace.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

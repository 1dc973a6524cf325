/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package act holds the commands that act in an initializer's or participant's place: kubectl
// nsinit done, skip and finalize. kubectl patch and edit do not know the subresources that it
// takes.
package act

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/cli/cluster"
	"github.com/nsinit/nsinit/pkg/cli/dryrun"
	client "github.com/nsinit/nsinit/pkg/generated/clientset/versioned/typed/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// verb is one of the commands.
type verb struct {
	name, argument, short, long, example string
	// past says what was done.
	past string
	// change changes the record, or says why it cannot.
	change func(record *v1alpha1.NamespaceLifecycle, name string) error
	// update writes it.
	update func(ctx context.Context, records client.NamespaceLifecycleInterface, record *v1alpha1.NamespaceLifecycle, options metav1.UpdateOptions) error
	// names are what may be given for a record.
	names func(record *v1alpha1.NamespaceLifecycle) []string
}

// NewCommands returns the commands.
func NewCommands(streams genericiooptions.IOStreams) []*cobra.Command {
	return []*cobra.Command{newCommand(streams, done()), newCommand(streams, skip()), newCommand(streams, finalize())}
}

func done() verb {
	return verb{
		name: "done", argument: "INITIALIZER", past: "done",
		short: "Say that an initializer has done its work in a namespace",
		long: `Remove an initializer from a namespace's pending ones, as it does itself when it has done its work.

It works for the initializer whose turn it is, and takes its own right: the verb initialize on initializers.nsinit.dev with its
name. For an initializer that has not done its work and never will, see kubectl nsinit skip.`,
		example: `  # Approve the namespace shop, where an approval is an initializer without a program
  kubectl nsinit done shop approval.example.com`,
		change: removeFirst, update: initialize, names: turn,
	}
}

func skip() verb {
	return verb{
		name: "skip", argument: "INITIALIZER", past: "skipped",
		short: "Let a namespace go on without an initializer",
		long: `Drop an initializer that does not do its work from a namespace's pending ones. The record keeps that it was skipped, and by whom.

It works for the initializer whose turn it is, and takes its own right or the verb open on namespaces. The namespace opens without
what the initializer was to bring.`,
		example: `  # The log store is down, and the team needs its namespace now
  kubectl nsinit skip shop log-index.example.com`,
		change: func(record *v1alpha1.NamespaceLifecycle, name string) error {
			if err := removeFirst(record, name); err != nil {
				return err
			}
			record.Spec.Skipped = append(record.Spec.Skipped, name)
			return nil
		},
		update: initialize, names: turn,
	}
}

func finalize() verb {
	return verb{
		name: "finalize", argument: "PARTICIPANT", past: "released",
		short: "Say that a participant has cleaned up after a namespace that is being deleted",
		long: `Remove a participant's name from the finalizers of a namespace's record, as it does itself when it has cleaned up.

It takes the participant's own right: the verb finalize on initializers.nsinit.dev with its name. If the participant did not clean
up, what it was to clean up stays behind, perhaps outside the cluster.`,
		example: `  # The participant was uninstalled, and its index was removed by hand
  kubectl nsinit finalize shop log-index.example.com`,
		change: func(record *v1alpha1.NamespaceLifecycle, name string) error {
			if record.DeletionTimestamp == nil {
				return fmt.Errorf("namespace %q is not being deleted: participants clean up after it is", record.Name)
			}
			i := slices.Index(record.Spec.Finalizers, v1alpha1.FinalizerName(name))
			if i < 0 {
				return fmt.Errorf("namespace %q does not wait for participant %q, but for %s", record.Name, name, list(helper.Participants(record)))
			}
			record.Spec.Finalizers = slices.Delete(record.Spec.Finalizers, i, i+1)
			return nil
		},
		update: func(ctx context.Context, records client.NamespaceLifecycleInterface, record *v1alpha1.NamespaceLifecycle, options metav1.UpdateOptions) error {
			_, err := records.Finalize(ctx, record.Name, record, options)
			return err
		},
		names: func(record *v1alpha1.NamespaceLifecycle) []string {
			if record.DeletionTimestamp == nil {
				return nil
			}
			return helper.Participants(record)
		},
	}
}

// turn returns the initializer whose turn it is, if there is one.
func turn(record *v1alpha1.NamespaceLifecycle) []string {
	if name := helper.Current(record); name != "" && record.DeletionTimestamp == nil {
		return []string{name}
	}
	return nil
}

func initialize(ctx context.Context, records client.NamespaceLifecycleInterface, record *v1alpha1.NamespaceLifecycle, options metav1.UpdateOptions) error {
	_, err := records.Initialize(ctx, record.Name, record, options)
	return err
}

// removeFirst removes the initializer whose turn it is, if it is the one that is named.
func removeFirst(record *v1alpha1.NamespaceLifecycle, name string) error {
	names := helper.Pending(record)
	switch {
	case record.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %q is being deleted: every initializer's turn is over", record.Name)
	case len(names) == 0:
		return fmt.Errorf("namespace %q waits for no initializer", record.Name)
	case !slices.Contains(names, name):
		return fmt.Errorf("namespace %q does not wait for initializer %q, but for %s", record.Name, name, list(names))
	case names[0] != name:
		return fmt.Errorf("it is not the turn of initializer %q in namespace %q, but of %q; they act in the order %s", name, record.Name, names[0], list(names))
	}
	record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
	return nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

func newCommand(streams genericiooptions.IOStreams, v verb) *cobra.Command {
	flags, dryRun := cluster.NewFlags(), dryrun.NewFlag()
	command := &cobra.Command{
		Use:     v.name + " NAMESPACE " + v.argument,
		Short:   v.short,
		Long:    v.long,
		Example: v.example,
		Args:    cobra.ExactArgs(2),
		ValidArgsFunction: func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return v.complete(command.Context(), flags, args), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, args []string) error {
			return v.run(command.Context(), streams, flags, dryRun, args[0], args[1])
		},
	}
	flags.AddFlags(command.Flags())
	dryRun.AddFlag(command.Flags())
	return command
}

// run changes the record. Each try after a conflict reads it again.
func (v verb) run(ctx context.Context, streams genericiooptions.IOStreams, flags *cluster.Flags, dryRun *dryrun.Flag, namespace, name string) error {
	dry, err := dryRun.Options()
	if err != nil {
		return err
	}
	options, suffix := metav1.UpdateOptions{FieldManager: "kubectl-nsinit-" + v.name, DryRun: dry}, ""
	if dry != nil {
		suffix = " (server dry run)"
	}
	core, nsinit, err := flags.Clients()
	if err != nil {
		return err
	}
	records := nsinit.NsinitV1alpha1().NamespaceLifecycles()
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		record, err := records.Get(ctx, namespace, metav1.GetOptions{})
		if utilapierrors.IsAbsent(err) {
			return v.missing(ctx, core, namespace)
		}
		if err != nil {
			return err
		}
		if err := v.change(record, name); err != nil {
			return err
		}
		return v.update(ctx, records, record, options)
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(streams.Out, "initializer.nsinit.dev/%s %s in namespace %s%s\n", name, v.past, namespace, suffix)
	return err
}

// missing says why a namespace has no NamespaceLifecycle.
func (v verb) missing(ctx context.Context, core kubernetes.Interface, namespace string) error {
	if _, err := core.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %q does not exist", namespace)
	}
	return fmt.Errorf("namespace %q has no NamespaceLifecycle; run kubectl nsinit why %s", namespace, namespace)
}

// complete offers the namespaces that wait for somebody, and then those that the namespace waits for.
func (v verb) complete(ctx context.Context, flags *cluster.Flags, args []string) []string {
	_, nsinit, err := flags.Clients()
	if err != nil {
		return nil
	}
	lifecycles := nsinit.NsinitV1alpha1().NamespaceLifecycles()
	switch len(args) {
	case 0:
		list, err := lifecycles.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil
		}
		var names []string
		for i := range list.Items {
			if len(v.names(&list.Items[i])) > 0 {
				names = append(names, list.Items[i].Name)
			}
		}
		return names
	case 1:
		lifecycle, err := lifecycles.Get(ctx, args[0], metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return v.names(lifecycle)
	}
	return nil
}

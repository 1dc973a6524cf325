/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package act holds the commands that act in the place of an initializer or a participant: kubectl nsinit done, skip,
// fail and finalize. kubectl patch and edit do not support the subresources that this takes. It also holds freeze and unfreeze, which
// stop the writes of tenants into a namespace, and allow them again.
package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned/scheme"
	client "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// verb is what differs between the commands.
type verb struct {
	// past describes the result.
	past string
	// rbac are the flags of kubectl nsinit rbac that print the permission.
	rbac string
	// before says that an earlier call had the same result.
	before func(lifecycle *v1alpha1.NamespaceLifecycle, name string) bool
	// without says that nothing is left to do without a NamespaceLifecycle.
	without bool
	// change changes a NamespaceLifecycle, or returns why it cannot.
	change func(lifecycle *v1alpha1.NamespaceLifecycle, name string) error
	// update writes it.
	update func(lifecycles client.NamespaceLifecycleInterface, ctx context.Context, name string, lifecycle *v1alpha1.NamespaceLifecycle, options metav1.UpdateOptions) (*v1alpha1.NamespaceLifecycle, error)
	// names returns the names that change accepts.
	names func(lifecycle *v1alpha1.NamespaceLifecycle) []string
}

// NewDoneCommand returns the command kubectl nsinit done.
func NewDoneCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(f, streams, &cobra.Command{
		Use:   "done NAMESPACE INITIALIZER",
		Short: "Report that an initializer has done its work in a namespace",
		Long: `Remove an initializer from the pending initializers of a namespace. Usually, an initializer removes itself when its work is done.

The initializer must have its turn. If the initializer is already done, the command succeeds and changes nothing. If the initializer will
not do its work, run kubectl nsinit skip instead.

You need the verb initialize on the namespace, and on initializers.nsinit.dev with the name of the initializer. kubectl nsinit rbac prints
the roles.`,
		Example: `  # Approve the namespace shop: a person acts as the initializer approval.example.com
  kubectl nsinit done shop approval.example.com`,
	}, verb{
		past: "done", before: isIn(v1alpha1.InitializerDone),
		change: remove, update: client.NamespaceLifecycleInterface.Initialize, names: helper.Acting,
	})
}

// NewSkipCommand returns the command kubectl nsinit skip.
func NewSkipCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(f, streams, &cobra.Command{
		Use:   "skip NAMESPACE INITIALIZER",
		Short: "Skip a broken initializer in a namespace",
		Long: `Remove an initializer from the pending initializers of a namespace, although the work of the initializer is not done. The namespace can
then open without the content that this initializer provides.

The initializer must have its turn. The NamespaceLifecycle records who skipped the initializer.

You need the permissions for kubectl nsinit done, or the verb open on namespaces.`,
		Example: `  # Skip an initializer whose log store is down, because the team needs the namespace now
  kubectl nsinit skip shop log-index.example.com`,
	}, verb{
		past: "skipped", before: isIn(v1alpha1.InitializerSkipped),
		change: func(lifecycle *v1alpha1.NamespaceLifecycle, name string) error {
			if err := remove(lifecycle, name); err != nil {
				return err
			}
			lifecycle.Spec.Skipped = append(lifecycle.Spec.Skipped, name)
			return nil
		},
		update: client.NamespaceLifecycleInterface.Initialize, names: helper.Acting,
	})
}

// NewFailCommand returns the command kubectl nsinit fail.
func NewFailCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	message := ""
	command := newCommand(f, streams, &cobra.Command{
		Use:   "fail NAMESPACE INITIALIZER",
		Short: "Fail the initialization of a namespace, so that nsinit deletes the namespace",
		Long: `Report that an initializer cannot do its work in a namespace. The initialization then fails: nsinit shows the message in the conditions
and events of the namespace, and deletes the namespace. Usually, an initializer reports the failure itself when no retry can succeed.

The initializer must have its turn. If the initializer has already failed, the command succeeds and changes nothing.

You need the permissions for kubectl nsinit done, or the verb open on namespaces.`,
		Example: `  # Refuse the namespace shop: a person acts as the initializer approval.example.com
  kubectl nsinit fail shop approval.example.com --message="no cost centre"`,
	}, verb{
		past: "failed", before: isIn(v1alpha1.InitializerFailed),
		change: func(lifecycle *v1alpha1.NamespaceLifecycle, name string) error {
			if err := mayEnd(lifecycle, name); err != nil {
				return err
			}
			lifecycle.Spec.Initializers.FailedInitializer = name
			lifecycle.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: message}
			return nil
		},
		update: client.NamespaceLifecycleInterface.Initialize, names: helper.Acting,
	})
	command.Flags().StringVar(&message, "message", message, "Why the initializer cannot do its work. Required.")
	_ = command.MarkFlagRequired("message") // it exists
	return command
}

// NewFinalizeCommand returns the command kubectl nsinit finalize.
func NewFinalizeCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(f, streams, &cobra.Command{
		Use:   "finalize NAMESPACE PARTICIPANT",
		Short: "Report that a participant has cleaned up after a namespace that is being deleted",
		Long: `Remove a participant from the finalizers of a NamespaceLifecycle. Usually, a participant removes itself when it has cleaned up.

The command itself does not clean up. Everything that the participant has not cleaned up remains, for example resources outside the cluster.

If the participant is already removed, or if the NamespaceLifecycle no longer exists, the command succeeds and changes nothing.

You need the verb finalize on initializers.nsinit.dev with the name of the participant. kubectl nsinit rbac --finalizer prints the roles.`,
		Example: `  # Remove a participant that was uninstalled, after you have deleted its index by hand
  kubectl nsinit finalize shop log-index.example.com`,
	}, verb{
		past: "released", rbac: " --finalizer", without: true,
		before: func(lifecycle *v1alpha1.NamespaceLifecycle, name string) bool {
			planned := helper.Planned(lifecycle, name)
			return lifecycle.DeletionTimestamp != nil && planned != nil && planned.Finalizer && !slices.Contains(helper.Participants(lifecycle), name)
		},
		change: func(lifecycle *v1alpha1.NamespaceLifecycle, name string) error {
			if lifecycle.DeletionTimestamp == nil {
				return fmt.Errorf("namespace %q is not being deleted: participants clean up after it is", lifecycle.Name)
			}
			i := slices.Index(lifecycle.Spec.Finalizers, v1alpha1.FinalizerName(name))
			if i < 0 {
				return fmt.Errorf("namespace %q does not wait for participant %q, but for %s", lifecycle.Name, name, cmp.Or(strings.Join(helper.Participants(lifecycle), ", "), "none"))
			}
			lifecycle.Spec.Finalizers = slices.Delete(lifecycle.Spec.Finalizers, i, i+1)
			return nil
		},
		update: client.NamespaceLifecycleInterface.Finalize,
		names: func(lifecycle *v1alpha1.NamespaceLifecycle) []string {
			if lifecycle.DeletionTimestamp == nil {
				return nil
			}
			return helper.Participants(lifecycle)
		},
	})
}

// isIn returns a function that says whether an initializer is in a state.
func isIn(state v1alpha1.InitializerState) func(lifecycle *v1alpha1.NamespaceLifecycle, name string) bool {
	return func(lifecycle *v1alpha1.NamespaceLifecycle, name string) bool {
		entry := helper.Entry(lifecycle, name)
		return entry != nil && entry.State == state
	}
}

// remove removes the named initializer, if it has its turn.
func remove(lifecycle *v1alpha1.NamespaceLifecycle, name string) error {
	err := mayEnd(lifecycle, name)
	if err == nil {
		helper.RemovePending(lifecycle, name)
	}
	return err
}

// mayEnd returns why the named initializer cannot end its turn.
func mayEnd(lifecycle *v1alpha1.NamespaceLifecycle, name string) error {
	names, failure := helper.Pending(lifecycle), helper.Failure(lifecycle)
	switch {
	case lifecycle.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %q is being deleted: every initializer's turn is over", lifecycle.Name)
	case failure != nil:
		return fmt.Errorf("initializer %q failed in namespace %q, so nsinit deletes the namespace: %s",
			helper.FailedInitializer(lifecycle), lifecycle.Name, printable.Line(failure.Message))
	case len(names) == 0:
		return fmt.Errorf("namespace %q waits for no initializer", lifecycle.Name)
	case !slices.Contains(names, name):
		return fmt.Errorf("namespace %q does not wait for initializer %q, but for %s", lifecycle.Name, name, strings.Join(names, ", "))
	case !helper.IsActing(lifecycle, name):
		return fmt.Errorf("it is not the turn of initializer %q in namespace %q: it waits for %s, and it is the turn of %s",
			name, lifecycle.Name, strings.Join(helper.WaitsFor(lifecycle, name), ", "), strings.Join(helper.Acting(lifecycle), ", "))
	}
	return nil
}

// Options are the options of the commands.
type Options struct {
	cmdutil.Base
	verb
	manager string
	// uid is that of the namespace, or empty.
	uid string
}

func newCommand(f cmdutil.Factory, streams genericiooptions.IOStreams, command *cobra.Command, v verb) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags("", scheme.Scheme)}, verb: v, manager: "kubectl-nsinit-" + command.Name()}
	command.ValidArgsFunction = func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return v.complete(command.Context(), f, args), cobra.ShellCompDirectiveNoFileComp
	}
	o.DryRun.AddFlag(command)
	command.Flags().StringVar(&o.uid, "uid", o.uid, "Expected UID of the namespace. If the namespace has another UID, the command changes nothing.")
	return cmdutil.NewCommand(f, o, command)
}

// Run implements cmdutil.Options. After a conflict, it reads the NamespaceLifecycle of the same namespace again.
func (o *Options) Run(ctx context.Context) error {
	namespace, name := o.Args[0], o.Args[1]
	rbac := printable.WordOr(name, "INITIALIZER") + o.rbac
	options := metav1.UpdateOptions{FieldManager: o.manager, DryRun: o.DryRun.Options()}
	var updated *v1alpha1.NamespaceLifecycle
	uid, already := types.UID(o.uid), ""
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lifecycle, err := o.Clients.Lifecycle(ctx, namespace, rbac)
		if err != nil {
			return err
		}
		if uid = cmp.Or(uid, lifecycle.Spec.NamespaceUID); uid != lifecycle.Spec.NamespaceUID {
			return cmdutil.NoLifecycle(fmt.Sprintf("namespace %q with the UID %s does not exist: the one with this name has the UID %s", namespace, uid, lifecycle.Spec.NamespaceUID))
		}
		if o.before(lifecycle, name) {
			updated, already = lifecycle, "already "
			return nil
		}
		if err := o.change(lifecycle, name); err != nil {
			return err
		}
		updated, err = o.update(o.Clients.Nsinit.NsinitV1alpha1().NamespaceLifecycles(), ctx, namespace, lifecycle, options)
		return cmdutil.Permission(err, rbac)
	})
	var none cmdutil.NoLifecycle
	if o.without && errors.As(err, &none) {
		_, err := fmt.Fprintf(o.PrintFlags.Lasting(o.IOStreams), "nothing waits for %s: %s\n", printable.Line(name), none)
		return err
	}
	if err != nil {
		return err
	}
	return o.PrintFlags.Print(o.Out, updated, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "initializer.nsinit.dev/%s %s%s in namespace %s%s\n", name, already, o.past, namespace, o.DryRun.Suffix())
		return err
	})
}

// complete offers the namespaces in which the command can act, and then the names that it accepts there.
func (v verb) complete(ctx context.Context, f cmdutil.Factory, args []string) []string {
	clients, err := f()
	if err != nil {
		return nil
	}
	lifecycles := clients.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
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

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package freeze holds the commands kubectl nsinit freeze and unfreeze: they stop the writes of tenants into a namespace, and
// allow them again.
package freeze

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
)

// Options are the options of both commands.
type Options struct {
	cmdutil.Base
	Reason string
	DryRun cmdutil.DryRun

	freeze bool
}

// NewFreezeCommand returns the command kubectl nsinit freeze.
func NewFreezeCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: base(streams, "frozen"), freeze: true}
	command := newCommand(f, o, &cobra.Command{
		Use:   "freeze NAMESPACE",
		Short: "Stop the writes of tenants into a namespace",
		Long: `Freeze a namespace: kube-apiserver refuses the writes of its tenants and of their pods, and the deletion of the namespace. Tenants can
still read. The message of each refusal says who froze the namespace and why.

Users with the verb initialize on the namespace can still write, such as the controllers of Kubernetes and initializers. You need the
verb freeze on namespaces, which the ClusterRole nsinit:freeze contains.`,
		Example: `  # Keep everything as it is during an incident
  kubectl nsinit freeze shop --reason="incident 4711: evidence"`,
	})
	command.Flags().StringVar(&o.Reason, "reason", "", "Why the namespace is frozen, for its tenants. One line with at most 512 characters.")
	return command
}

// NewUnfreezeCommand returns the command kubectl nsinit unfreeze.
func NewUnfreezeCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(f, &Options{Base: base(streams, "unfrozen")}, &cobra.Command{
		Use:   "unfreeze NAMESPACE",
		Short: "Allow the writes of tenants into a frozen namespace again",
		Long: `Unfreeze a namespace that kubectl nsinit freeze froze. If it is not frozen, the command succeeds and changes nothing.

You need the verb freeze on namespaces, which the ClusterRole nsinit:freeze contains.`,
		Example: `  # The incident is over
  kubectl nsinit unfreeze shop`,
	})
}

func base(streams genericiooptions.IOStreams, operation string) cmdutil.Base {
	return cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags(operation, scheme.Scheme)}
}

func newCommand(f cmdutil.Factory, o *Options, command *cobra.Command) *cobra.Command {
	command.ValidArgsFunction = cmdutil.CompleteNamespaces(f, func(namespace *corev1.Namespace) bool {
		_, frozen := namespace.Labels[v1alpha1.LabelFrozen]
		return frozen != o.freeze
	})
	o.DryRun.AddFlag(command)
	return cmdutil.NewCommand(f, o, command)
}

// Complete implements cmdutil.Options.
func (o *Options) Complete(f cmdutil.Factory, args []string) error {
	o.PrintFlags.NamePrintFlags.Operation += o.DryRun.Suffix()
	return o.Base.Complete(f, args)
}

// Validate implements cmdutil.Options. The policy checks the reason, too.
func (o *Options) Validate() error {
	if o.freeze && o.Reason == "" {
		return errors.New("--reason is missing: say why the namespace is frozen, for its tenants")
	}
	return o.Base.Validate()
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	printer, err := o.PrintFlags.ToPrinter()
	if err != nil {
		return err
	}
	var label, by, reason any // nil removes them
	if o.freeze {
		self, err := cmdutil.Self(ctx, o.Clients.Core)
		if err != nil {
			return err
		}
		label, by, reason = "true", self.Username, o.Reason
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{v1alpha1.LabelFrozen: label},
		"annotations": map[string]any{v1alpha1.AnnotationFrozenBy: by, v1alpha1.AnnotationFrozenReason: reason},
	}})
	if err != nil {
		return err
	}
	namespace, err := o.Clients.Core.CoreV1().Namespaces().Patch(ctx, o.Args[0], types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl-nsinit-freeze", DryRun: o.DryRun.Options()})
	switch {
	case apierrors.IsNotFound(err):
		return cmdutil.NoNamespace(o.Args[0])
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; an administrator can grant this: kubectl create clusterrolebinding nsinit-freeze --clusterrole=nsinit:freeze --user=USER", err)
	case err != nil:
		return err
	}
	return printer.PrintObj(namespace, o.Out)
}

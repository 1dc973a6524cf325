/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package act

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
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// freezeOptions are the options of the commands kubectl nsinit freeze and unfreeze.
type freezeOptions struct {
	cmdutil.Base
	Reason    string
	Overwrite bool

	freeze bool
}

// NewFreezeCommand returns the command kubectl nsinit freeze.
func NewFreezeCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &freezeOptions{freeze: true}
	command := o.newCommand(f, streams, "frozen", &cobra.Command{
		Use:   "freeze NAMESPACE",
		Short: "Freeze a namespace, so that tenants cannot write to the namespace",
		Long: `Freeze a namespace. kube-apiserver then refuses the writes of the tenants and of their pods, and the deletion of the namespace. Tenants
can still read. The message of each refusal shows who froze the namespace, and why.

If the namespace is already frozen by another user or for another reason, the command fails, and shows that user and that reason. With
--overwrite, the command replaces the user and the reason. The next kubectl nsinit unfreeze then ends the freeze, even if the earlier reason
still applies.

Users with the verb initialize on the namespace can still write, for example initializers and the controllers of Kubernetes. These users
cannot delete objects, with one exception: Kubernetes still deletes endpoints, and pods that cannot stay on their node. CronJobs start no
Jobs.

If the namespace is being deleted, the content that still exists is kept until you unfreeze the namespace.

You need the verb freeze on namespaces. The ClusterRole nsinit:freeze contains this verb.`,
		Example: `  # Keep the content of the namespace shop as it is during an incident
  kubectl nsinit freeze shop --reason="incident 4711: evidence"`,
	})
	command.Flags().StringVar(&o.Reason, "reason", "", "Why the namespace is frozen. kube-apiserver shows the reason to tenants. One line with at most 512 characters.")
	command.Flags().BoolVar(&o.Overwrite, "overwrite", false, "If the namespace is already frozen, replace the recorded user and reason.")
	return command
}

// NewUnfreezeCommand returns the command kubectl nsinit unfreeze.
func NewUnfreezeCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &freezeOptions{}
	command := o.newCommand(f, streams, "unfrozen", &cobra.Command{
		Use:   "unfreeze NAMESPACE",
		Short: "Unfreeze a namespace, so that tenants can write to the namespace again",
		Long: `Unfreeze a frozen namespace. The condition Frozen of the namespace then shows who froze the namespace, who unfroze the namespace, and the
reasons. If the namespace is not frozen, the command succeeds and changes nothing.

You need the verb freeze on namespaces. The ClusterRole nsinit:freeze contains this verb.`,
		Example: `  # Unfreeze the namespace shop after an incident
  kubectl nsinit unfreeze shop --reason="incident 4711: evidence is saved"`,
	})
	command.Flags().StringVar(&o.Reason, "reason", "", "Why the namespace is unfrozen. One line with at most 512 characters.")
	return command
}

func (o *freezeOptions) newCommand(f cmdutil.Factory, streams genericiooptions.IOStreams, operation string, command *cobra.Command) *cobra.Command {
	o.Base = cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags(operation, scheme.Scheme)}
	command.ValidArgsFunction = cmdutil.CompleteNamespaces(f, func(namespace *corev1.Namespace) bool {
		_, frozen := namespace.Labels[v1alpha1.LabelFrozen]
		return frozen != o.freeze
	})
	o.DryRun.AddFlag(command)
	return cmdutil.NewCommand(f, o, command)
}

// Validate implements cmdutil.Options. The policy checks the reason, too.
func (o *freezeOptions) Validate() error {
	if o.freeze && o.Reason == "" {
		return errors.New("--reason is missing: say why the namespace is frozen, for its tenants")
	}
	return o.Base.Validate()
}

// Run implements cmdutil.Options. After a conflict, it reads the namespace again.
func (o *freezeOptions) Run(ctx context.Context) error {
	self, err := cmdutil.Self(ctx, o.Clients.Core)
	if err != nil {
		return err
	}
	var namespace *corev1.Namespace
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		namespace, err = o.write(ctx, self.Username)
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return cmdutil.NoNamespace(o.Args[0])
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; an administrator can grant this: kubectl create clusterrolebinding nsinit-freeze-USER --clusterrole=nsinit:freeze --user=USER", err)
	case err != nil:
		return err
	}
	return o.PrintFlags.Print(o.Out, namespace, nil)
}

// write freezes or unfreezes the namespace for a user, unless that is already so. The patch names the version that it read.
func (o *freezeOptions) write(ctx context.Context, self string) (*corev1.Namespace, error) {
	namespaces := o.Clients.Core.CoreV1().Namespaces()
	namespace, err := namespaces.Get(ctx, o.Args[0], metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	said, frozen := utilnamespaces.Frozen(namespace)
	same := namespace.Annotations[v1alpha1.AnnotationFrozenBy] == self && namespace.Annotations[v1alpha1.AnnotationFrozenReason] == o.Reason
	switch {
	case !frozen && !o.freeze:
		o.PrintFlags.NamePrintFlags.Operation = "was not frozen"
		return namespace, nil
	case frozen && o.freeze && same:
		return namespace, nil
	case frozen && o.freeze && !o.Overwrite:
		return nil, fmt.Errorf("namespace %q is already frozen: %s; to replace the user and the reason, use --overwrite", namespace.Name, said)
	}
	if o.freeze && namespace.DeletionTimestamp != nil {
		_, _ = fmt.Fprintf(o.ErrOut, "Warning: namespace %q is being deleted: what is left of its content is kept until you unfreeze it\n", namespace.Name)
	}
	var label any // nil removes it
	annotations := map[string]any{v1alpha1.AnnotationUnfrozenBy: self}
	if o.Reason != "" {
		annotations[v1alpha1.AnnotationUnfrozenReason] = o.Reason
	}
	if o.freeze {
		label = "true"
		annotations = map[string]any{v1alpha1.AnnotationFrozenBy: self, v1alpha1.AnnotationFrozenReason: o.Reason,
			v1alpha1.AnnotationUnfrozenBy: nil, v1alpha1.AnnotationUnfrozenReason: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": namespace.ResourceVersion, "labels": map[string]any{v1alpha1.LabelFrozen: label}, "annotations": annotations,
	}})
	if err != nil {
		return nil, err
	}
	return namespaces.Patch(ctx, namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-nsinit-freeze", DryRun: o.DryRun.Options()})
}

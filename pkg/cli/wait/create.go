/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package wait

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const createLong = `Create a namespace, and wait until every initializer is done and you can write to the namespace.

You need the permission to create the namespace, and the permission to get the namespace or its AccessibleNamespace. If you may also get
the NamespaceLifecycle, the command prints a line for each initializer that is done. On a terminal, it also shows what the namespace
waits for.

The exit code is 0 if the namespace is open. It is 1 if the creation or the initialization fails, or if the namespace is not open within
--timeout. After a timeout, the namespace still exists and may open later.`

const createExample = `  # Create a namespace and wait until it is open
  kubectl nsinit create shop && kubectl -n shop apply -f shop.yaml

  # Create a namespace with a label, and wait for at most one minute
  kubectl nsinit create shop --labels=team=a --timeout=1m`

// createOptions are the options of the command kubectl nsinit create.
type createOptions struct {
	cmdutil.Base
	Labels      map[string]string
	Annotations map[string]string
	Wait        bool
	Timeout     time.Duration
}

// NewCreateCommand returns the command kubectl nsinit create.
func NewCreateCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &createOptions{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags("created", scheme.Scheme)}}
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a namespace, and wait until it is open",
		Long:    createLong,
		Example: createExample,
	})
	o.DryRun.AddFlag(command)
	command.Flags().StringToStringVarP(&o.Labels, "labels", "l", nil, "Labels of the namespace, as key=value,key=value.")
	command.Flags().StringToStringVar(&o.Annotations, "annotations", nil, "Annotations of the namespace, as key=value,key=value.")
	command.Flags().BoolVar(&o.Wait, "wait", true, "Wait until the namespace is open.")
	cmdutil.DurationVar(command.Flags(), &o.Timeout, "timeout", 5*time.Minute, "How long to wait. 0 waits indefinitely.")
	return command
}

// Run implements cmdutil.Options.
func (o *createOptions) Run(ctx context.Context) error {
	o.Wait = o.Wait && !bool(o.DryRun)
	name := o.Args[0]
	namespace, err := o.create(ctx, name)
	if err != nil {
		return err
	}
	if o.PrintFlags.Text() || !o.Wait {
		if err := o.PrintFlags.Print(o.Out, namespace, nil); err != nil {
			return err
		}
	}
	if !o.Wait {
		return nil
	}
	ctx, cancel := cmdutil.WithTimeout(ctx, o.Timeout)
	defer cancel()
	began := o.Clients.Clock.Now()
	opened, err := newFollower(o.Clients, o.PrintFlags.Lasting(o.IOStreams), o.ErrOut).untilOpen(ctx, name, namespace.UID)
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; namespace %q still exists, and opens when its initializers are done", name)
	case err != nil:
		return err
	case !o.PrintFlags.Text():
		return o.PrintFlags.Print(o.Out, opened, nil)
	}
	_, err = fmt.Fprintf(o.Out, "namespace/%s is open after %s\n", name, o.Clients.Clock.Since(began).Round(10*time.Millisecond))
	return err
}

func (o *createOptions) create(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespaces := o.Clients.Core.CoreV1().Namespaces()
	namespace, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: o.Labels, Annotations: o.Annotations,
	}}, metav1.CreateOptions{FieldManager: "kubectl-nsinit-create", DryRun: o.DryRun.Options()})
	if apierrors.IsAlreadyExists(err) {
		if existing, getErr := namespaces.Get(ctx, name, metav1.GetOptions{}); getErr == nil && helper.IsClosed(existing) {
			return nil, fmt.Errorf("%w, and is not open yet: run kubectl nsinit wait %s", err, name)
		}
	}
	return namespace, err
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package status is the command kubectl nsinit status: what namespaces wait for.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/cli/cluster"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

const long = `Show what namespaces wait for.

Without a name, it shows the namespaces that are being initialized or deleted; with one, every initializer of the namespace, how
far it is and what it last said. Who may not read the namespace's record is shown what the namespace itself says of it.`

const example = `  # Which namespaces are not ready, and who is waited for
  kubectl nsinit status

  # Every initializer of the namespace shop
  kubectl nsinit status shop`

// options are what the command was called with.
type options struct {
	streams genericiooptions.IOStreams
	cluster *cluster.Flags
	all     bool
	now     func() time.Time
}

// NewCommand returns the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, cluster: cluster.NewFlags(), now: time.Now}
	command := &cobra.Command{
		Use:               "status [NAMESPACE]",
		Short:             "Show what namespaces wait for",
		Long:              long,
		Example:           example,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.cluster.CompleteNamespaces,
		RunE: func(command *cobra.Command, args []string) error {
			core, nsinit, err := o.cluster.Clients()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return o.list(command.Context(), nsinit)
			}
			return o.one(command.Context(), core, nsinit, args[0])
		},
	}
	o.cluster.AddFlags(command.Flags())
	command.Flags().BoolVarP(&o.all, "all", "A", o.all, "Show namespaces that are ready, too.")
	return command
}

// list shows many namespaces, a line each, as the server describes them.
func (o *options) list(ctx context.Context, nsinit versioned.Interface) error {
	request := nsinit.NsinitV1alpha1().RESTClient().Get().Resource("namespacelifecycles").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if !o.all {
		request.Param("fieldSelector", fields.OneTermNotEqualSelector("status.phase", string(v1alpha1.LifecycleActive)).String())
	}
	answer, err := request.Do(ctx).Raw()
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; for one namespace that you may get, run kubectl nsinit status NAMESPACE", err)
	}
	if err != nil {
		return err
	}
	var table metav1.Table
	if err := json.Unmarshal(answer, &table); err != nil {
		return fmt.Errorf("cannot read the answer of nsinit-apiserver: %w", err)
	}
	if len(table.Rows) == 0 {
		_, err := fmt.Fprintln(o.streams.ErrOut, "No namespace is being initialized or deleted.")
		return err
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: true}).PrintObj(&table, o.streams.Out)
}

// one shows one namespace, a line for each initializer.
func (o *options) one(ctx context.Context, core kubernetes.Interface, nsinit versioned.Interface, name string) error {
	namespace, err := core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	record, recordErr := nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		if recordErr != nil {
			return fmt.Errorf("namespace %q does not exist", name)
		}
		namespace = nil
	}
	if recordErr != nil {
		if !apierrors.IsNotFound(recordErr) && !apierrors.IsForbidden(recordErr) {
			return recordErr
		}
		return o.conditions(namespace)
	}
	_, _ = fmt.Fprintf(o.streams.Out, "Namespace %s: %s%s\n", name, record.Status.Phase, formerly(namespace, record))
	for _, condition := range record.Status.Conditions {
		_, _ = fmt.Fprintf(o.streams.Out, "  %s=%s: %s\n", condition.Type, condition.Status, printable.Line(condition.Message))
	}
	if len(record.Status.Initializers) == 0 {
		return nil
	}
	return o.initializers(o.streams.Out, record)
}

// formerly says that the record is of another namespace than the one that exists.
func formerly(namespace *corev1.Namespace, record *v1alpha1.NamespaceLifecycle) string {
	switch {
	case namespace == nil:
		return ", the namespace is gone"
	case namespace.UID != record.Spec.NamespaceUID:
		return ", the record is of a former namespace of this name"
	}
	return ""
}

func (o *options) initializers(out io.Writer, record *v1alpha1.NamespaceLifecycle) error {
	table := printers.GetNewTabWriter(out)
	_, _ = fmt.Fprintln(table, "INITIALIZER\tSTATE\tTOOK\tCLEANS UP\tMESSAGE\tLAST ACTOR")
	for _, status := range record.Status.Initializers {
		took := "<none>"
		switch {
		case status.StartTime != nil && status.EndTime != nil:
			took = status.EndTime.Sub(status.StartTime.Time).Round(10 * time.Millisecond).String()
		case status.StartTime != nil:
			took = o.age(&metav1.Time{Time: status.StartTime.Time}) + " so far"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", status.Name, status.State, took, cleansUp(record, status.Name), orNone(printable.Line(status.Message)), orNone(printable.Line(status.LastActor)))
	}
	return table.Flush()
}

// cleansUp says whether an initializer takes part in the deletion of the namespace.
func cleansUp(record *v1alpha1.NamespaceLifecycle, name string) string {
	for _, finalizer := range record.Spec.Finalizers {
		if string(finalizer) == name {
			return "yes"
		}
	}
	for _, planned := range record.Spec.Plan {
		if planned.Name == name && planned.Finalizer {
			return "has done so"
		}
	}
	return "no"
}

// conditions shows what the namespace itself says.
func (o *options) conditions(namespace *corev1.Namespace) error {
	phase := string(namespace.Status.Phase)
	if helper.IsClosed(namespace) && namespace.DeletionTimestamp == nil {
		phase = string(v1alpha1.LifecycleInitializing)
	}
	_, _ = fmt.Fprintf(o.streams.Out, "Namespace %s: %s\n", namespace.Name, phase)
	for _, condition := range namespace.Status.Conditions {
		if _, err := fmt.Fprintf(o.streams.Out, "  %s=%s: %s\n", condition.Type, condition.Status, printable.Line(condition.Message)); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) age(since *metav1.Time) string {
	if since.IsZero() {
		return "<none>"
	}
	return duration.HumanDuration(o.now().Sub(since.Time))
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

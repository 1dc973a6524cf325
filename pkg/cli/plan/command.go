/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package plan is the command kubectl nsinit plan: it shows which initializers act on a namespace, and why others do not.
package plan

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/plan"
)

// readers are the arguments of kubectl nsinit rbac for the permission to read NamespaceLifecycles and configurations.
const readers = "--view"

const long = `Show the plan of a namespace: which initializers act on it, in which order, and why the other registered initializers do not.

If the namespace exists, the command shows the plan that it got when it was created, and compares it with the current
configurations. If the namespace does not exist, the command evaluates the configurations of the cluster for a namespace that
--creator, --groups and --labels describe; you are the creator by default. It does not know annotations and the UID of such a
namespace.`

const example = `  # The initializers of the namespace shop, and why others are left out
  kubectl nsinit plan shop

  # The initializers of the next namespace that alice creates
  kubectl nsinit plan team-a-shop --creator=alice --groups=team-a --labels=tier=self-service`

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	Future cmdutil.Future
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewReportFlags()}}
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:               "plan NAMESPACE",
		Short:             "Show which initializers act on a namespace, and why others do not",
		Long:              long,
		Example:           example,
		ValidArgsFunction: cmdutil.CompleteNamespace(f),
	})
	o.Future.AddFlags(command.Flags())
	return command
}

// Report is the plan of a namespace.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string `json:"namespace"`
	// Exists reports whether the namespace exists, and so whether the plan is stored.
	Exists  bool   `json:"exists"`
	Creator string `json:"creator,omitempty"`
	// Exempt is why nsinit ignores the namespace. Then there is no plan.
	Exempt       string         `json:"exempt,omitempty"`
	Initializers []Initializer  `json:"initializers"`
	LeftOut      []plan.LeftOut `json:"leftOut"`
	// Degraded is how the plan differs from what the configurations say.
	Degraded string `json:"degraded,omitempty"`
}

// Initializer is an entry of the plan.
type Initializer struct {
	Name          string `json:"name"`
	Configuration string `json:"configuration,omitempty"`
	// After are the initializers that must be done before.
	After []string `json:"after"`
	// InOrder says that it waits for all initializers before it.
	InOrder bool `json:"inOrder"`
	// State is its progress in a namespace that exists.
	State     v1alpha1.InitializerState `json:"state,omitempty"`
	Finalizer bool                      `json:"finalizer,omitempty"`
	Holds     *v1alpha1.HoldPolicy      `json:"holds,omitempty"`
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	name := o.Args[0]
	namespace, exists, err := o.Future.Namespace(ctx, o.Clients.Core, name)
	if err != nil {
		return err
	}
	report := &Report{
		TypeMeta: metav1.TypeMeta{Kind: "NamespacePlan", APIVersion: cmdutil.APIVersion}, Namespace: name, Exists: exists,
		Creator: namespace.Annotations[v1alpha1.AnnotationCreatedBy], Initializers: []Initializer{}, LeftOut: []plan.LeftOut{},
	}
	if report.Exempt = o.exempt(ctx, namespace, exists); report.Exempt == "" {
		if err := o.compare(ctx, report, namespace); err != nil {
			return err
		}
	}
	return o.PrintFlags.Print(o.Out, report, func(out io.Writer) error { return text(out, report) })
}

// compare fills in the plan, and what is left out of it.
func (o *Options) compare(ctx context.Context, report *Report, namespace *corev1.Namespace) error {
	lifecycle := &v1alpha1.NamespaceLifecycle{}
	var err error
	if report.Exists {
		if lifecycle, err = o.Clients.Lifecycle(ctx, namespace.Name, readers); err != nil {
			return err
		}
		if lifecycle.Spec.NamespaceUID != namespace.UID {
			return former(namespace.Name)
		}
	}
	configurations, err := o.Clients.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return cmdutil.Permission(err, readers)
	}
	current := plan.NewMerger().Merge(configurations.Items, namespace)
	if report.Exists {
		report.stored(lifecycle)
		report.LeftOut = append(report.LeftOut, notStored(lifecycle, configurations.Items, current)...)
		return nil
	}
	lifecycle.Spec.Plan = current.Entries
	if degraded := current.Condition(); degraded != nil {
		lifecycle.Status.Conditions = []metav1.Condition{*degraded}
	}
	report.stored(lifecycle)
	report.LeftOut = append(report.LeftOut, current.LeftOut...)
	return nil
}

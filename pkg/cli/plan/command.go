/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package plan is the command kubectl nsinit plan: it shows which initializers act on a namespace, and why others do not.
package plan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/plan"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// readers are the arguments of kubectl nsinit rbac for the permission to read NamespaceLifecycles and configurations.
const readers = "--view"

const long = `Show the plan of a namespace: which initializers act on the namespace, and in which order. The command also shows why the other registered
initializers are not in the plan.

If the namespace exists, the command shows the plan that is stored, and compares this plan with the current configurations.

If the namespace does not exist, the command predicts the plan from the current configurations. Describe the future namespace with
--creator, --groups and --labels. Without --creator, you are the creator. The command cannot predict the UID and the annotations of the
namespace.`

const example = `  # Show the initializers of the namespace shop, and why other initializers are left out
  kubectl nsinit plan shop

  # Predict the initializers of a namespace that alice creates
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
	Exempt string `json:"exempt,omitempty"`
	// NotClosed is why the plan of an open namespace is empty if nsinit did not close it.
	NotClosed    string         `json:"notClosed,omitempty"`
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
		Creator: helper.Creator(namespace), Initializers: []Initializer{}, LeftOut: []plan.LeftOut{},
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
		if _, stamped := namespace.Annotations[v1alpha1.AnnotationCreatedBy]; !stamped && len(lifecycle.Spec.Plan) == 0 && !helper.IsClosed(namespace) {
			report.NotClosed = "it was not closed when it was created: it is older than nsinit, its creator is exempt, or nsinit was off"
			return nil
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

// changedLater entries would be in the plan if it were made now.
const changedLater plan.Reason = "ChangedLater"

func former(namespace string) error {
	return fmt.Errorf("namespace %q has no plan yet: its NamespaceLifecycle is of a former namespace of this name; run kubectl nsinit why %s", namespace, namespace)
}

// exempt returns why nsinit ignores a namespace, or "". If the user cannot read the list, it prints a note.
func (o *Options) exempt(ctx context.Context, namespace *corev1.Namespace, exists bool) string {
	list, err := o.Clients.Exemptions(ctx)
	if err != nil {
		_, _ = fmt.Fprintf(o.ErrOut, "Exemptions are not considered: %s\n", printable.Line(err.Error()))
		return ""
	}
	exemption := list.ExemptName(namespace.Name, namespace.GenerateName)
	if !exists {
		exemption = list.Exempt(installation.Creation{Name: namespace.Name, Creator: namespace.Annotations[v1alpha1.AnnotationCreatedBy],
			Groups: strings.Split(namespace.Annotations[v1alpha1.AnnotationCreatedByGroups], "\n")})
	}
	if exemption == nil {
		return ""
	}
	return fmt.Sprintf("%s exempts it: %s", list.Source, exemption)
}

// stored fills in the plan of a lifecycle.
func (r *Report) stored(lifecycle *v1alpha1.NamespaceLifecycle) {
	for _, planned := range lifecycle.Spec.Plan {
		initializer := Initializer{Name: planned.Name, Finalizer: planned.Finalizer, Holds: planned.Holds, After: []string{}, InOrder: planned.Ordering == nil}
		initializer.After = append(initializer.After, helper.Predecessors(lifecycle, planned.Name)...)
		if planned.Configuration != nil {
			initializer.Configuration = planned.Configuration.Name
		}
		if entry := helper.Entry(lifecycle, planned.Name); entry != nil {
			initializer.State = entry.State
		}
		r.Initializers = append(r.Initializers, initializer)
	}
	if degraded := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionPlanDegraded); degraded != nil {
		r.Degraded = degraded.Message
	}
}

// notStored returns why each registered initializer is not in the plan of a lifecycle. current is the plan that the
// namespace would get now.
func notStored(lifecycle *v1alpha1.NamespaceLifecycle, configurations []v1alpha1.NamespaceInitializerConfiguration, current *plan.Plan) []plan.LeftOut {
	isStored := func(initializer, configuration string) bool {
		return slices.ContainsFunc(lifecycle.Spec.Plan, func(p v1alpha1.PlannedInitializer) bool {
			return p.Name == initializer && p.Configuration != nil && p.Configuration.Name == configuration
		})
	}
	var all []plan.LeftOut
	for _, entry := range current.Entries {
		if entry.Configuration != nil && !isStored(entry.Name, entry.Configuration.Name) {
			all = append(all, plan.LeftOut{Initializer: entry.Name, Configuration: entry.Configuration.Name, Reason: changedLater,
				Message: "it would be in a plan made now: the configuration or the namespace changed after the plan was made"})
		}
	}
	for _, left := range current.LeftOut {
		if !isStored(left.Initializer, left.Configuration) {
			all = append(all, left)
		}
	}
	slices.SortStableFunc(all, func(a, b plan.LeftOut) int { return cmp.Compare(a.Configuration, b.Configuration) })
	return all
}

// text prints the plan, and then why other initializers are left out.
func text(out io.Writer, r *Report) error {
	switch {
	case r.Exempt != "":
		_, err := fmt.Fprintf(out, "nsinit ignores namespace %q: %s.\n", r.Namespace, r.Exempt)
		return err
	case r.Exists && len(r.Initializers) == 0:
		_, _ = fmt.Fprintf(out, "The plan of namespace %q is empty: %s.\n", r.Namespace, cmp.Or(r.NotClosed, "no initializer acts on it"))
	case r.Exists:
		_, _ = fmt.Fprintf(out, "The plan of namespace %q:\n\n", r.Namespace)
	case len(r.Initializers) == 0:
		_, _ = fmt.Fprintf(out, "Namespace %q does not exist. If %s creates it, no initializer acts on it.\n", r.Namespace, printable.Line(r.Creator))
	default:
		_, _ = fmt.Fprintf(out, "Namespace %q does not exist. If %s creates it, its plan is:\n\n", r.Namespace, printable.Line(r.Creator))
	}
	if err := r.writeInitializers(out); err != nil {
		return err
	}
	if r.Degraded != "" {
		_, _ = fmt.Fprintf(out, "\nThe plan differs from what the configurations say: %s\n", printable.Line(r.Degraded))
	}
	if len(r.LeftOut) == 0 {
		return nil
	}
	_, _ = fmt.Fprint(out, "\nLeft out:\n\n")
	table := printers.GetNewTabWriter(out)
	_, _ = fmt.Fprintln(table, "INITIALIZER\tCONFIGURATION\tWHY")
	for _, left := range r.LeftOut {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", left.Initializer, left.Configuration, printable.Line(left.Message))
	}
	return table.Flush()
}

func (r *Report) writeInitializers(out io.Writer) error {
	if len(r.Initializers) == 0 {
		return nil
	}
	table := printers.GetNewTabWriter(out)
	header, state := "INITIALIZER\tCONFIGURATION\tAFTER", func(Initializer) string { return "" }
	if r.Exists {
		header, state = header+"\tSTATE", func(i Initializer) string { return "\t" + cmp.Or(string(i.State), "<unknown>") }
	}
	_, _ = fmt.Fprintln(table, header)
	for _, initializer := range r.Initializers {
		after := cmp.Or(strings.Join(initializer.After, ","), "<none>")
		if initializer.InOrder && len(initializer.After) > 1 {
			after = "all before it"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s%s\n", initializer.Name, cmp.Or(initializer.Configuration, "<none>"), after, state(initializer))
	}
	return table.Flush()
}

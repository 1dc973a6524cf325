/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package status is the command kubectl nsinit status: it shows what namespaces wait for.
package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned/scheme"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const long = `Show what namespaces wait for.

Without a name, the command lists the namespaces that are not open.

With a name, the command shows the state and the last message of every initializer of the namespace. With --output=wide, it does not
shorten the messages. If you may not get the NamespaceLifecycle, the command shows the conditions of the namespace instead.

With --output=json or yaml, the command prints NamespaceLifecycles.`

const example = `  # List the namespaces that are not open, and what each namespace waits for
  kubectl nsinit status

  # Show every initializer of the namespace shop
  kubectl nsinit status shop

  # Print the initializers that have their turn in the namespace shop
  kubectl nsinit status shop --output=jsonpath='{.status.currentInitializers[*]}'`

const (
	// readers are the flags of kubectl nsinit rbac that print the permission to read NamespaceLifecycles.
	readers = "--view"
	// maxNamed is how many names are shown of those that an initializer waits for.
	maxNamed = 3
	// maxMessage is the length of a message in the table, in bytes: the conditions have the whole of the current one.
	maxMessage = 60
)

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	All bool
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags("", scheme.Scheme)}}
	o.PrintFlags.Wide = true
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:               "status [NAMESPACE]",
		Short:             "Show what namespaces wait for",
		Long:              long,
		Example:           example,
		ValidArgsFunction: cmdutil.CompleteNamespace(f),
	})
	command.Flags().BoolVarP(&o.All, "all", "A", o.All, "Also list open namespaces.")
	return command
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	switch {
	case len(o.Args) == 0:
		return o.list(ctx)
	case o.PrintFlags.Text():
		return o.describe(ctx, o.Args[0])
	}
	lifecycle, err := o.Clients.Lifecycle(ctx, o.Args[0], readers)
	if err != nil {
		return err
	}
	return o.PrintFlags.Print(o.Out, lifecycle, nil)
}

// list shows many namespaces.
func (o *Options) list(ctx context.Context) error {
	request := o.Clients.REST.Get().Resource("namespacelifecycles")
	if !o.All {
		request.Param("fieldSelector", fields.OneTermNotEqualSelector("status.phase", string(v1alpha1.LifecycleActive)).String())
	}
	err := o.PrintList(ctx, request, "No namespace is initializing or terminating.")
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; for a namespace that you may get, run kubectl nsinit status NAMESPACE", cmdutil.Permission(err, readers))
	}
	return err
}

// describe shows one namespace, with a line for each initializer.
func (o *Options) describe(ctx context.Context, name string) error {
	namespace, err := o.Clients.Namespace(ctx, name)
	lifecycle, lifecycleErr := o.Clients.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
	former := ""
	switch {
	case lifecycleErr == nil && apierrors.IsNotFound(err):
		former = ", the namespace is removed"
	case apierrors.IsNotFound(err):
		return cmdutil.NoNamespace(name)
	case err != nil && (lifecycleErr != nil || !apierrors.IsForbidden(err)):
		return cmdutil.Permission(err, readers)
	case lifecycleErr != nil:
		o.namespace(namespace)
		if apierrors.IsNotFound(lifecycleErr) || apierrors.IsForbidden(lifecycleErr) {
			return nil
		}
		return fmt.Errorf("cannot read the NamespaceLifecycle: %w; to find the cause, run kubectl nsinit check", lifecycleErr)
	case err == nil && namespace.UID != lifecycle.Spec.NamespaceUID:
		former = ", the NamespaceLifecycle is of a former namespace of this name"
	}
	if err != nil || former != "" {
		namespace = &corev1.Namespace{} // only the lifecycle is shown
	}
	_, _ = fmt.Fprintf(o.Out, "Namespace %s: %s%s\n", name, phaseOf(namespace, lifecycle), former)
	o.conditions(merged(lifecycle.Status.Conditions, namespace))
	if len(lifecycle.Status.Initializers) == 0 {
		return nil
	}
	return o.initializers(ctx, lifecycle)
}

// phaseOf returns the phase of a lifecycle, or that of its namespace if it is later: it waits for required objects.
func phaseOf(namespace *corev1.Namespace, lifecycle *v1alpha1.NamespaceLifecycle) v1alpha1.LifecyclePhase {
	if lacksObjects(namespace) && helper.IsClosed(namespace) {
		return v1alpha1.LifecycleInitializing
	}
	return lifecycle.Status.Phase
}

// merged returns the conditions of a lifecycle and those of its namespace. Of the former, Initializing and Ready are earlier if the
// namespace lacks required objects. Of the latter, those are left out that say that nothing is wrong.
func merged(lifecycle []metav1.Condition, namespace *corev1.Namespace) []metav1.Condition {
	lacks := lacksObjects(namespace)
	conditions := slices.DeleteFunc(slices.Clone(lifecycle), func(c metav1.Condition) bool {
		return lacks && (c.Type == v1alpha1.ConditionInitializing || c.Type == v1alpha1.ConditionReady)
	})
	for _, c := range utilnamespaces.Conditions(namespace) {
		if meta.FindStatusCondition(conditions, c.Type) == nil && (c.Status == metav1.ConditionTrue || c.Type == v1alpha1.ConditionReady) {
			conditions = append(conditions, c)
		}
	}
	return conditions
}

// lacksObjects reports whether a namespace waits for required objects, or was opened without them.
func lacksObjects(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp == nil && slices.ContainsFunc(namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Reason == v1alpha1.ReasonObjectsMissing
	})
}

func (o *Options) initializers(ctx context.Context, lifecycle *v1alpha1.NamespaceLifecycle) error {
	// Who may not read them does not see which initializers no program serves.
	configurations, err := o.Clients.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		configurations = &v1alpha1.NamespaceInitializerConfigurationList{}
	}
	table := printers.GetNewTabWriter(o.Out)
	_, _ = fmt.Fprintln(table, "INITIALIZER\tSTATE\tTOOK\tCLEANS UP\tLAST ACTOR\tMESSAGE")
	for _, status := range lifecycle.Status.Initializers {
		took := "<none>"
		switch {
		case status.StartTime != nil && status.EndTime != nil:
			took = status.EndTime.Sub(status.StartTime.Time).Round(10 * time.Millisecond).String()
		case status.StartTime != nil:
			took = duration.HumanDuration(o.Clients.ServerClock.Since(status.StartTime.Time)) + " so far"
		}
		message := cmp.Or(printable.Line(status.Message), waits(lifecycle, status), "<none>")
		if *o.PrintFlags.OutputFormat != "wide" {
			message = printable.Shorten(message, maxMessage)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s%s\t%s\t%s\t%s\t%s\n", status.Name, status.State, unserved(configurations.Items, status), took,
			o.cleansUp(lifecycle, status.Name), cmp.Or(printable.Line(status.LastActor), "<none>"), message)
	}
	return table.Flush()
}

// unserved says that no program serves an initializer that has its turn, or that none ever did: it may then be a person.
func unserved(configurations []v1alpha1.NamespaceInitializerConfiguration, status v1alpha1.InitializerStatus) string {
	_, registration := helper.Registration(configurations, status.Name)
	switch {
	case status.State != v1alpha1.InitializerRunning || registration == nil:
		return ""
	case registration.ReportTime == nil:
		return ", never served"
	case meta.IsStatusConditionFalse(registration.Conditions, v1alpha1.ConditionServed):
		return ", not served"
	}
	return ""
}

// waits names what an initializer waits for, or returns "".
func waits(lifecycle *v1alpha1.NamespaceLifecycle, status v1alpha1.InitializerStatus) string {
	names := helper.WaitsFor(lifecycle, status.Name)
	if status.State != v1alpha1.InitializerWaiting || lifecycle.DeletionTimestamp != nil || len(names) == 0 {
		return ""
	}
	more := ""
	if others := len(names) - maxNamed; others > 0 {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", others)
	}
	return "waits for " + strings.Join(names, ", ") + more
}

// cleansUp reports whether an initializer takes part in the deletion of the namespace and, if it is asked to clean up, for how long.
func (o *Options) cleansUp(lifecycle *v1alpha1.NamespaceLifecycle, name string) string {
	switch participates := slices.Contains(lifecycle.Spec.Finalizers, v1alpha1.FinalizerName(name)); {
	case participates && lifecycle.DeletionTimestamp != nil:
		return duration.HumanDuration(o.Clients.ServerClock.Since(lifecycle.DeletionTimestamp.Time)) + " so far"
	case participates:
		return "yes"
	}
	if planned := helper.Planned(lifecycle, name); planned != nil && planned.Finalizer {
		return "done"
	}
	return "no"
}

// namespace shows a namespace without its lifecycle.
func (o *Options) namespace(namespace *corev1.Namespace) {
	_, _ = fmt.Fprintf(o.Out, "Namespace %s: %s\n", namespace.Name, utilnamespaces.Phase(namespace))
	o.conditions(utilnamespaces.Conditions(namespace))
}

// conditions shows conditions, those with one message on one line.
func (o *Options) conditions(conditions []metav1.Condition) {
	for i, condition := range conditions {
		same := func(other metav1.Condition) bool { return other.Message == condition.Message }
		if slices.ContainsFunc(conditions[:i], same) {
			continue
		}
		var states []string
		for _, c := range conditions[i:] {
			if same(c) {
				states = append(states, fmt.Sprintf("%s=%s", c.Type, c.Status))
			}
		}
		_, _ = fmt.Fprintf(o.Out, "  %s\n", printable.Line(strings.Join(states, ", ")+": "+condition.Message))
	}
}

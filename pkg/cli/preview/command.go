/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package preview is the command kubectl nsinit preview: it shows what NamespacePopulations put into a namespace.
package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// exitRefused says that something could not be applied.
const exitRefused cmdutil.ExitCode = 2

const long = `Show which objects NamespacePopulations put into a namespace. The command stores nothing.

If the namespace exists, the command applies each object with a dry run, and shows which objects kube-apiserver refuses. For populations
with scope All, it reports each object that belongs to another client as a conflict.

If the namespace does not exist, the command renders the objects for a future namespace. Describe this namespace with --creator, --groups
and --labels. Without --creator, you are the creator. For a future namespace, the command reports only unknown kinds and missing
permissions.

The command uses your permissions. To test the permissions of policy-population, name the service account of policy-population with --as.

With --all, the command shows the report of policy-population on each population with scope All. A report shows how many objects
policy-population still has to create, change or delete in existing namespaces. It also shows the first ten problems. An object that belongs
to another client is a conflict, and stays as it is. Namespaces that are closed, frozen, terminating or exempt by name get no objects.
Namespaces whose names begin with "kube-" also get no objects.

The exit code is 0 if every object can be applied, and 2 if an object cannot be applied. It is 1 after any other error. With --all, it is
also 1 if policy-population has not checked every namespace yet.`

const example = `  # Show the objects for the namespace shop, with the permissions of policy-population
  kubectl nsinit preview shop --as=system:serviceaccount:nsinit-system:policy-population

  # Show the objects that a population in a file would put into a namespace that alice creates
  kubectl nsinit preview new --filename=population.yaml --creator=alice --groups=team-a --labels=tier=self-service --output=yaml

  # Show what populations with scope All do in existing namespaces
  kubectl nsinit preview --all`

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	Future        cmdutil.Future
	Filename      string
	Initializer   string
	ClusterScoped []string
	All           bool
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewReportFlags()}}
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:               "preview NAMESPACE",
		Short:             "Show which objects NamespacePopulations put into a namespace",
		Long:              long,
		Example:           example,
		ValidArgsFunction: cmdutil.CompleteNamespace(f),
		Args:              cmdutil.ArgsUnless(&o.All, "--all is for every namespace"),
	})
	flags := command.Flags()
	flags.BoolVarP(&o.All, "all", "A", o.All, "Show what populations with scope All do in existing namespaces.")
	flags.StringVarP(&o.Filename, "filename", "f", o.Filename, "File with NamespacePopulations, or - for standard input. The command uses these populations instead of the populations in the cluster.")
	o.Future.AddFlags(flags)
	flags.StringVar(&o.Initializer, "initializer-name", "policy-population.nsinit.dev", "Name of policy-population in the NamespaceInitializerConfiguration. It is also the field manager of the objects.")
	flags.StringSliceVar(&o.ClusterScoped, "cluster-scoped-resources", o.ClusterScoped, "Cluster-scoped resources that policy-population may apply. Use the value of the same flag of policy-population.")
	return command
}

// Result is what would become of one manifest.
type Result struct {
	Population string `json:"population"`
	Manifest   string `json:"manifest"`
	// Result is created, configured, unchanged, rendered (the namespace does not exist), refused, or with scope All
	// conflict (it belongs to another client) or deleted (the manifest was removed, or has another object).
	Result string `json:"result"`
	// Message says why it is refused, or what is in conflict.
	Message string `json:"message,omitempty"`
	// ReadyWhen is what a new namespace waits for after the object is applied. It is empty if the namespace does not wait.
	ReadyWhen string `json:"readyWhen,omitempty"`
	// Object is what is applied.
	Object map[string]any `json:"object,omitempty"`
}

// Validate implements cmdutil.Options.
func (o *Options) Validate() error {
	if o.All && o.Future.IsSet() {
		return errors.New("--creator, --groups and --labels are for a namespace that does not exist, and --all for those that do")
	}
	if o.All && o.Filename != "" {
		return errors.New("--filename shows a population in one namespace; to see what it would do in every namespace that exists, create it with scope: All and rollout: Report")
	}
	return o.Base.Validate()
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	if o.All {
		return o.all(ctx)
	}
	items, err := o.populations(ctx)
	if err != nil {
		return err
	}
	populations, err := compile(items)
	if err != nil {
		return err
	}
	applier := &population.Applier{
		Client: o.Clients.Dynamic, Mapper: o.Clients.Mapper, FieldManager: o.Initializer, ClusterScoped: map[schema.GroupResource]struct{}{}, DryRun: true,
		Discovery: o.Clients.Core.Discovery(), Reviews: o.Clients.Core.AuthorizationV1().SelfSubjectAccessReviews(),
	}
	for _, resource := range o.ClusterScoped {
		applier.ClusterScoped[schema.ParseGroupResource(resource)] = struct{}{}
	}
	namespace, exists, err := o.Future.Namespace(ctx, o.Clients.Core, o.Args[0])
	if err != nil {
		return err
	}
	objects := population.Render(populations, namespace)
	if exists {
		if objects, err = o.reached(ctx, namespace, objects); err != nil {
			return err
		}
	}
	outcomes, err := o.outcomes(ctx, applier, namespace, exists, populations, objects)
	if err != nil {
		return err
	}
	results, refused := []Result{}, false
	for i, outcome := range outcomes[:len(objects)] { // those after them are deletions
		result := Result{Population: outcome.Population, Manifest: outcome.Manifest, Result: string(outcome.Outcome), Message: outcome.Message, ReadyWhen: objects[i].ReadyWhen()}
		if content := objects[i].Content; content != nil {
			result.Object = content.Object
		}
		results, refused = append(results, result), refused || result.Message != ""
	}
	if err := o.PrintFlags.Print(o.Out, cmdutil.NewList("PopulationPreview", results), func(out io.Writer) error { return text(out, namespace, exists, results) }); err != nil {
		return err
	}
	if refused {
		return exitRefused
	}
	return nil
}

// outcomes returns what would become of each object, and then of those without a manifest.
func (o *Options) outcomes(ctx context.Context, applier *population.Applier, namespace *corev1.Namespace, exists bool,
	populations []*population.Population, objects []population.Object,
) (outcomes []population.Result, err error) {
	switch {
	case !exists:
		for _, object := range objects {
			outcome := population.Result{Target: population.Target{Key: object.Key}, Outcome: "rendered"}
			if err := applier.CheckObject(ctx, &object); err != nil {
				outcome.Outcome, outcome.Message = population.Refused, err.Error()
			}
			outcomes = append(outcomes, outcome)
		}
		return outcomes, nil
	case !population.IsOpen(namespace) || !slices.ContainsFunc(objects, isOfAll):
		outcomes, _ = applier.Report(ctx, namespace, population.Initialize, "", populations, objects, nil) // the outcomes have the errors
		return outcomes, nil
	}
	if o.Filename != "" { // a population in the cluster that the file does not have keeps its objects
		stored, err := o.stored(ctx)
		if err != nil {
			return nil, err
		}
		for _, other := range stored {
			if compiled, errs := population.Compile(other.Name, &other.Spec); len(errs) == 0 { // the file is shown, whatever the others are
				populations = append(populations, compiled)
			}
		}
	}
	inventory, err := o.Clients.Nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
	var known []v1alpha1.PopulatedObject
	switch {
	case err == nil && inventory.Spec.NamespaceUID == namespace.UID: // not of a former namespace of this name
		known = inventory.Status.Objects
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	}
	outcomes, _ = applier.Report(ctx, namespace, population.RollOut, "", populations, objects, known)
	return outcomes, nil
}

// populations returns the populations of the file, or of the cluster, in order.
func (o *Options) populations(ctx context.Context) ([]v1alpha1.NamespacePopulation, error) {
	if o.Filename == "" {
		return o.stored(ctx)
	}
	items, err := o.read()
	if err != nil {
		return nil, fmt.Errorf("--filename=%s: %w", o.Filename, err)
	}
	population.Sort(items)
	return items, nil
}

// stored returns the populations of the cluster, in order.
func (o *Options) stored(ctx context.Context) ([]v1alpha1.NamespacePopulation, error) {
	list, err := o.Clients.Nsinit.NsinitV1alpha1().NamespacePopulations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	population.Sort(list.Items)
	return list.Items, nil
}

func compile(items []v1alpha1.NamespacePopulation) (populations []*population.Population, err error) {
	for _, item := range items {
		compiled, errs := population.Compile(item.Name, &item.Spec)
		if len(errs) > 0 {
			return nil, fmt.Errorf("NamespacePopulation %q is not valid: %w", item.Name, errs.ToAggregate())
		}
		populations = append(populations, compiled)
	}
	return populations, nil
}

// read reads populations, and ignores objects of other kinds.
func (o *Options) read() ([]v1alpha1.NamespacePopulation, error) {
	from := resource.NewLocalBuilder().Unstructured()
	if o.Filename == "-" {
		from.Stream(o.In, "standard input")
	} else {
		from.FilenameParam(false, &resource.FilenameOptions{Filenames: []string{o.Filename}})
	}
	objects, err := cmdutil.ReadObjects(from)
	if err != nil {
		return nil, err
	}
	var items []v1alpha1.NamespacePopulation
	for _, object := range objects {
		if object.GroupVersionKind() != v1alpha1.SchemeGroupVersion.WithKind("NamespacePopulation") {
			continue
		}
		var item v1alpha1.NamespacePopulation
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &item); err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		return nil, errors.New("there is no NamespacePopulation in it")
	}
	return items, nil
}

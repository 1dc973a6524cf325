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

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/population"
)

// exitRefused says that something could not be applied.
const exitRefused cmdutil.ExitCode = 2

const long = `Show what NamespacePopulations put into a namespace, without storing anything.

If the namespace exists, the command applies each object with dry-run, and shows what the API server refuses. For populations with scope
All, objects of other clients are conflicts. The command uses your permissions: to test those of policy-population, name its service
account with --as. If the namespace does not exist, the command renders the objects for a namespace that --creator, --groups and --labels
describe; you are the creator by default. It reports unknown kinds and missing permissions, but no other refusals.

With --all, the command shows what policy-population reports of each population with scope All: how many objects it would create, change
and delete in the namespaces that exist, or still has to, and the first ten problems. Objects of other clients are conflicts and stay as
they are. Namespaces that are closed, frozen, terminating or exempt, and those whose name starts with "kube-", get nothing.

The exit code is 0 if every object can be applied, 2 if one cannot, and 1 after another error, or with --all if not every namespace was
checked yet.`

const example = `  # The objects of the namespace shop, applied with the permissions of policy-population
  kubectl nsinit preview shop --as=system:serviceaccount:nsinit-system:policy-population

  # The objects that alice's next namespace would get from a population that is not in the cluster yet
  kubectl nsinit preview new --filename=population.yaml --creator=alice --groups=team-a --labels=tier=self-service --output=yaml

  # What the populations with scope All do in the namespaces that exist
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
		Short:             "Show what NamespacePopulations put into a namespace",
		Long:              long,
		Example:           example,
		ValidArgsFunction: cmdutil.CompleteNamespace(f),
		Args:              cmdutil.ArgsOrAll(&o.All),
	})
	flags := command.Flags()
	flags.BoolVarP(&o.All, "all", "A", o.All, "Show what the populations with scope All do in the namespaces that exist.")
	flags.StringVarP(&o.Filename, "filename", "f", o.Filename, "File of NamespacePopulations to show instead of those in the cluster, - for standard input.")
	o.Future.AddFlags(flags)
	flags.StringVar(&o.Initializer, "initializer-name", "policy-population.nsinit.dev", "Name under which policy-population is registered, and field manager of what it applies.")
	flags.StringSliceVar(&o.ClusterScoped, "cluster-scoped-resources", o.ClusterScoped, "Resources outside of namespaces that policy-population may apply: the same as its flag of this name.")
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
	populations, err := o.populations(ctx, o.Clients.Nsinit)
	if err != nil {
		return err
	}
	applier := &population.Applier{
		Client: o.Clients.Dynamic, Mapper: o.Clients.Mapper, FieldManager: o.Initializer, ClusterScoped: map[schema.GroupResource]struct{}{}, DryRun: true,
		Reviews: o.Clients.Core.AuthorizationV1().SelfSubjectAccessReviews(),
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
	rollout := exists && population.IsOpen(namespace) && slices.ContainsFunc(objects, isOfAll)
	var inventory []v1alpha1.PopulatedObject
	if rollout {
		if inventory, err = o.inventory(ctx, namespace, populations); err != nil {
			return err
		}
	}
	results := []Result{}
	refused := false
	for _, object := range objects {
		var result Result
		if rollout && isOfAll(object) {
			result = rolledOut(ctx, applier, namespace, object, inventory)
		} else {
			result = preview(ctx, applier, namespace, exists, object)
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

// inventory returns what a namespace has of manifests that exist.
func (o *Options) inventory(ctx context.Context, namespace *corev1.Namespace, populations []*population.Population) ([]v1alpha1.PopulatedObject, error) {
	manifests, err := o.manifests(ctx, populations)
	if err != nil {
		return nil, err
	}
	inventory, err := o.Clients.Nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case inventory.Spec.NamespaceUID != namespace.UID: // of a former namespace of this name
		return nil, nil
	}
	return population.Existing(inventory.Status.Objects, manifests), nil
}

// rolledOut tries one object as the rollout to open namespaces does, without taking over what belongs to other clients.
func rolledOut(ctx context.Context, applier *population.Applier, namespace *corev1.Namespace, object population.Object, inventory []v1alpha1.PopulatedObject) Result {
	results, _ := applier.Report(ctx, namespace, []population.Object{object}, inventory) // the result has the error
	result := resultOf(results[0])
	if object.Content != nil {
		result.Object = object.Content.Object
	}
	return result
}

// resultOf returns what is printed of an outcome.
func resultOf(result population.Result) Result {
	return Result{Population: result.Population, Manifest: result.Manifest, Result: string(result.Outcome), Message: result.Message}
}

// preview tries one object.
func preview(ctx context.Context, applier *population.Applier, namespace *corev1.Namespace, exists bool, object population.Object) Result {
	result := Result{Population: object.Population, Manifest: object.Manifest}
	refused := func(err error) Result {
		result.Result, result.Message = "refused", err.Error()
		return result
	}
	if object.Err != nil {
		return refused(object.Err)
	}
	result.Object = object.Content.Object
	if !exists {
		if _, err := applier.Check(ctx, object.Content, v1alpha1.ScopeNew); err != nil {
			return refused(err)
		}
		result.Result = "rendered"
		return result
	}
	outcome, err := applier.Try(ctx, namespace, object.Content, "")
	if err != nil {
		return refused(err)
	}
	result.Result = string(outcome)
	return result
}

// populations returns the populations of the file, or of the cluster, in order.
func (o *Options) populations(ctx context.Context, nsinit versioned.Interface) (populations []*population.Population, err error) {
	var items []v1alpha1.NamespacePopulation
	if o.Filename == "" {
		list, err := nsinit.NsinitV1alpha1().NamespacePopulations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		items = list.Items
	} else if items, err = o.read(); err != nil {
		return nil, fmt.Errorf("--filename=%s: %w", o.Filename, err)
	}
	population.Sort(items)
	for _, item := range items {
		compiled, errs := population.Compile(item.Name, &item.Spec)
		if len(errs) > 0 {
			return nil, fmt.Errorf("NamespacePopulation %q is not valid: %w", item.Name, errs.ToAggregate())
		}
		populations = append(populations, compiled)
	}
	return populations, nil
}

// manifests returns the manifests of populations, and of those in the cluster.
func (o *Options) manifests(ctx context.Context, populations []*population.Population) (map[population.Key]struct{}, error) {
	keys := population.Keys(populations)
	if o.Filename == "" {
		return keys, nil
	}
	list, err := o.Clients.Nsinit.NsinitV1alpha1().NamespacePopulations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, item := range list.Items {
		for _, manifest := range item.Spec.Manifests {
			keys[population.Key{Population: item.Name, Manifest: manifest.Name}] = struct{}{}
		}
	}
	return keys, nil
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

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package static is the command kubectl nsinit static: it prints nsinit's policies as manifests that kube-apiserver reads
// when it starts.
package static

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/controller/gate"
	"github.com/nsinit/nsinit/pkg/installation"
)

const long = `Print the policies of nsinit as static manifests: the stamp, the guard, the gate, and the policies for frozen and terminating namespaces.
kube-apiserver 1.37 and later reads static manifests when it starts. The policies are in force from the first request, and no user can
delete these policies through the API.

KIND is "validating" or "mutating". Write the policies of each kind to a separate folder.

Static policies cannot read a ConfigMap, so the manifests contain the exemptions. When you change the exemptions, run the command again,
and replace the files on each control plane node. kube-apiserver reads changed files within a minute.

Without --filename, the command reads the exemptions from the ConfigMap nsinit-exemptions in the cluster. It then fails if nsinit does not
work yet, because static policies would keep new namespaces closed until nsinit works.`

const example = `  # Print the validating policies, with the exemptions of the installed nsinit
  kubectl nsinit static validating > validating/nsinit.yaml

  # Print the mutating policies before the installation, with the exemptions in a file
  kubectl nsinit static mutating --filename=artifacts/deploy/base/exemptions.yaml > mutating/nsinit.yaml`

const (
	// suffix is what the name of each static policy and binding ends with.
	suffix = ".static.k8s.io"
	// parameter is how the expressions of the policies read the exemptions.
	parameter = "params.?data[?key]"
)

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	Filename string
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags("", scheme.Scheme)}}
	o.PrintFlags.WithDefaultOutput("yaml")
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:       "static KIND",
		Short:     "Print the policies of nsinit as static manifests for kube-apiserver",
		Long:      long,
		Example:   example,
		ValidArgs: kinds(),
	})
	command.Flags().StringVarP(&o.Filename, "filename", "f", o.Filename, "File with the ConfigMap nsinit-exemptions.")
	return command
}

// Validate implements cmdutil.Options.
func (o *Options) Validate() error {
	if !slices.Contains(kinds(), o.Args[0]) {
		return fmt.Errorf(`kind %q: must be "validating" or "mutating"`, o.Args[0])
	}
	return o.Base.Validate()
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	printer, err := o.PrintFlags.ToPrinter()
	if err != nil {
		return err
	}
	exemptions, err := o.exemptions(ctx)
	if err != nil {
		return err
	}
	for _, malformed := range installation.ParseExemptions(exemptions).Malformed {
		_, _ = fmt.Fprintf(o.ErrOut, "Warning: ConfigMap %s: %s\n", installation.Exemptions, malformed)
	}
	objects, err := render(o.Args[0], exemptions)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := printer.PrintObj(object, o.Out); err != nil {
			return err
		}
	}
	return nil
}

// inForce returns an error unless nsinit-controller-manager has brought the policies of the API into force.
func (o *Options) inForce(ctx context.Context) error {
	objects, err := gate.NewObjects(o.Clients.Core, o.Clients.InstalledIn(ctx))
	if err != nil {
		return err
	}
	if exists, err := objects.Guard.Exists(ctx); err != nil || exists {
		return err
	}
	return fmt.Errorf("%s does not exist, so nsinit does not work yet, or kubectl nsinit off was run: run kubectl nsinit check first", objects.Guard)
}

// exemptions reads the ConfigMap from the file or from the cluster.
func (o *Options) exemptions(ctx context.Context) (*corev1.ConfigMap, error) {
	if o.Filename == "" {
		if err := o.inForce(ctx); err != nil {
			return nil, err
		}
		configMap, err := o.Clients.ExemptionsConfigMap(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: give their file with --filename", err)
		}
		return configMap, nil
	}
	data, err := os.ReadFile(o.Filename)
	if err != nil {
		return nil, fmt.Errorf("--filename: %w", err)
	}
	configMap := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(data, configMap); err != nil {
		return nil, fmt.Errorf("--filename=%s: %w", o.Filename, err)
	}
	configMap.Namespace = cmp.Or(configMap.Namespace, installation.DefaultNamespace) // a kustomization can add it
	if configMap.Kind != "ConfigMap" || configMap.Name != installation.Exemptions {
		return nil, fmt.Errorf("--filename=%s: it has %s %q, want ConfigMap %q", o.Filename, configMap.Kind, configMap.Name, installation.Exemptions)
	}
	return configMap, nil
}

// kinds are the kinds of policies, each of which kube-apiserver reads from another folder.
func kinds() []string { return []string{"validating", "mutating"} }

// render returns the policies and bindings of a kind as static ones, with these exemptions. The namespace of the ConfigMap is
// that of nsinit.
func render(kind string, exemptions *corev1.ConfigMap) ([]*unstructured.Unstructured, error) {
	objects, err := cmdutil.ReadManifests(exemptions.Namespace, append(artifacts.Policies(true), artifacts.Stamp(), artifacts.GuardCreate())...)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, object := range objects {
		if !strings.HasPrefix(strings.ToLower(object.GetKind()), kind) {
			continue
		}
		if err := renderObject(object, literal(exemptions.Data)); err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return all, nil
}

// renderObject makes a policy or a binding a static one: with another name, and the exemptions in place of a parameter.
func renderObject(object *unstructured.Unstructured, exemptions string) error {
	object.SetName(object.GetName() + suffix)
	if name, found, _ := unstructured.NestedString(object.Object, "spec", "policyName"); found {
		if err := unstructured.SetNestedField(object.Object, name+suffix, "spec", "policyName"); err != nil {
			return err
		}
	}
	unstructured.RemoveNestedField(object.Object, "spec", "paramRef")
	if _, found, _ := unstructured.NestedMap(object.Object, "spec", "paramKind"); found {
		unstructured.RemoveNestedField(object.Object, "spec", "paramKind")
		replaced := 0
		object.Object["spec"] = cmdutil.MapTexts(object.Object["spec"], func(text string) string {
			replaced += strings.Count(text, parameter)
			return strings.ReplaceAll(text, parameter, exemptions+"[?key]")
		})
		if replaced != 1 {
			return fmt.Errorf("%s %s reads its parameter %d times, want once", object.GetKind(), object.GetName(), replaced)
		}
	}
	return nil
}

// literal returns the exemptions as an expression in CEL: a map.
func literal(exemptions map[string]string) string {
	entries := make([]string, 0, len(exemptions))
	for _, key := range slices.Sorted(maps.Keys(exemptions)) {
		entries = append(entries, strconv.QuoteToASCII(key)+": "+strconv.QuoteToASCII(exemptions[key]))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

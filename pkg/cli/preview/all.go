/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package preview

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/cli/progress"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// atOnce is how many namespaces are checked at the same time.
const atOnce = 8

// Counts are numbers of objects by their result.
type Counts struct {
	Created    int `json:"created"`
	Configured int `json:"configured"`
	Deleted    int `json:"deleted"`
	Unchanged  int `json:"unchanged"`
	Conflicts  int `json:"conflicts"`
	Refused    int `json:"refused"`
}

// NamespaceReport is what would become of the manifests in one namespace, and of the objects of removed ones.
type NamespaceReport struct {
	Namespace string `json:"namespace"`
	Counts    `json:",inline"`
	Manifests []Result `json:"manifests"`
}

// Report is what populations with scope All would do in the namespaces that exist.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Totals          Counts            `json:"totals"`
	Items           []NamespaceReport `json:"items"`
}

// all reports on every namespace.
func (o *Options) all(ctx context.Context, applier *population.Applier, populations []*population.Population) error {
	manifests, err := o.manifests(ctx, populations)
	if err != nil {
		return err
	}
	every := populations
	if o.Filename == "" {
		populations = slices.DeleteFunc(slices.Clone(populations), func(p *population.Population) bool { return p.Scope != v1alpha1.ScopeAll })
	}
	namespaces, err := o.namespaces(ctx)
	if err != nil {
		return err
	}
	inventories, err := o.Clients.Nsinit.NsinitV1alpha1().PopulatedNamespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	known := map[types.UID][]v1alpha1.PopulatedObject{}
	for _, inventory := range inventories.Items {
		known[inventory.Spec.NamespaceUID] = inventory.Status.Objects
	}
	report := &Report{TypeMeta: metav1.TypeMeta{Kind: "PopulationReport", APIVersion: cmdutil.APIVersion}, Items: make([]NamespaceReport, len(namespaces))}
	line := progress.New(o.ErrOut, o.Clients.Clock)
	var mu sync.Mutex // guards line and done
	done := 0
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, namespace := range namespaces {
		group.Go(func() error {
			inventory := known[namespace.UID]
			results, _ := applier.Report(groupCtx, &namespace, population.Render(populations, &namespace), population.Existing(inventory, manifests)) // the results have the errors
			wanted := population.Render(every, &namespace)
			for _, p := range populations {
				results = append(results, p.Deletions(wanted, inventory)...)
			}
			report.Items[i] = reportOf(namespace.Name, results)
			mu.Lock()
			defer mu.Unlock()
			done++
			line.Show("checked %d of %d namespaces", done, len(namespaces))
			return groupCtx.Err()
		})
	}
	err = group.Wait()
	line.End()
	if err != nil {
		return err
	}
	report.Items = slices.DeleteFunc(report.Items, func(n NamespaceReport) bool { return len(n.Manifests) == 0 })
	for _, item := range report.Items {
		report.Totals.add(item.Counts)
	}
	if err := o.PrintFlags.Print(o.Out, report, func(out io.Writer) error { return table(out, report, len(populations)) }); err != nil {
		return err
	}
	if report.Totals.Conflicts+report.Totals.Refused > 0 {
		return exitRefused
	}
	return nil
}

// namespaces returns the namespaces that a population with scope All can select.
func (o *Options) namespaces(ctx context.Context) ([]corev1.Namespace, error) {
	list, err := o.Clients.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	exemptions, err := o.Clients.Exemptions(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(namespace corev1.Namespace) bool {
		return !population.IsOpen(&namespace) || exemptions.ExemptName(namespace.Name, namespace.GenerateName) != nil
	}), nil
}

func isOfAll(object population.Object) bool { return object.Scope == v1alpha1.ScopeAll }

// reached returns the objects that populations can put into a namespace that exists, and says why it leaves out others.
func (o *Options) reached(ctx context.Context, namespace *corev1.Namespace, objects []population.Object) ([]population.Object, error) {
	if helper.IsClosed(namespace) || !slices.ContainsFunc(objects, isOfAll) {
		return objects, nil
	}
	reason := ""
	switch {
	case namespace.DeletionTimestamp != nil:
		reason = "is being deleted"
	case metav1.HasLabel(namespace.ObjectMeta, v1alpha1.LabelFrozen):
		reason = "is frozen"
	case !population.IsOpen(namespace):
		reason = "belongs to Kubernetes"
	default:
		exemptions, err := o.Clients.Exemptions(ctx)
		if err != nil {
			return nil, err
		}
		if exemptions.ExemptName(namespace.Name, namespace.GenerateName) == nil {
			return objects, nil
		}
		reason = "is exempt"
	}
	_, _ = fmt.Fprintf(o.ErrOut, "Namespace %q %s: populations with scope All put nothing into it.\n", namespace.Name, reason)
	return slices.DeleteFunc(objects, isOfAll), nil
}

// reportOf returns the report of a namespace.
func reportOf(namespace string, results []population.Result) NamespaceReport {
	report := NamespaceReport{Namespace: namespace}
	for _, result := range results {
		switch result.Outcome {
		case population.Created:
			report.Created++
		case population.Configured:
			report.Configured++
		case population.Deleted:
			report.Deleted++
		case population.Unchanged:
			report.Unchanged++
		case population.Conflict:
			report.Conflicts++
		case population.Refused:
			report.Refused++
		}
		report.Manifests = append(report.Manifests, resultOf(result))
	}
	return report
}

func (c *Counts) add(other Counts) {
	c.Created += other.Created
	c.Configured += other.Configured
	c.Deleted += other.Deleted
	c.Unchanged += other.Unchanged
	c.Conflicts += other.Conflicts
	c.Refused += other.Refused
}

// table prints a line for each namespace and the totals, and then why objects are refused or in conflict.
func table(out io.Writer, report *Report, populations int) error {
	switch {
	case populations == 0:
		_, err := fmt.Fprintln(out, "No population has scope All. To see what one would do in the namespaces that exist, give its file with --filename.")
		return err
	case len(report.Items) == 0:
		_, err := fmt.Fprintln(out, "No population puts anything into a namespace that exists.")
		return err
	}
	w := printers.GetNewTabWriter(out)
	_, _ = fmt.Fprintln(w, "NAMESPACE\tTO CREATE\tTO CHANGE\tTO DELETE\tUNCHANGED\tCONFLICTS\tREFUSED")
	for _, n := range report.Items {
		row(w, n.Namespace, n.Counts)
	}
	row(w, "TOTAL", report.Totals)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, n := range report.Items {
		for _, r := range n.Manifests {
			if r.Message != "" {
				_, _ = fmt.Fprintf(out, "\n%s: %s/%s: %s: %s\n", n.Namespace, r.Population, r.Manifest, r.Result, printable.Line(r.Message))
			}
		}
	}
	return nil
}

func row(w io.Writer, name string, c Counts) {
	_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", name, c.Created, c.Configured, c.Deleted, c.Unchanged, c.Conflicts, c.Refused)
}

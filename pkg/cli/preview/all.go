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
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// Rollout is what a population with scope All has done, or would do, in the namespaces that exist.
type Rollout struct {
	Population string `json:"population"`
	// Reason and Message are those of its condition RolledOut.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Rollout has the counts and the first problems.
	Rollout v1alpha1.PopulationRolloutStatus `json:"rollout"`
}

// all prints what policy-population reports of each population with scope All.
func (o *Options) all(ctx context.Context) error {
	stored, err := o.stored(ctx)
	if err != nil {
		return err
	}
	rollouts, refused, unchecked := []Rollout{}, false, []string{}
	for _, p := range stored {
		if p.Spec.Scope != v1alpha1.ScopeAll {
			continue
		}
		r := Rollout{Population: p.Name, Reason: v1alpha1.ReasonNotObserved, Message: "policy-population has not read this version of the population yet: check that it runs"}
		if condition := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut); condition != nil && condition.ObservedGeneration == p.Generation {
			r.Reason, r.Message = condition.Reason, condition.Message
			if p.Status.Rollout != nil {
				r.Rollout = *p.Status.Rollout
			}
		}
		if p.Status.Rollout == nil || r.Reason == v1alpha1.ReasonNotObserved || r.Rollout.Checked < r.Rollout.Namespaces {
			unchecked = append(unchecked, p.Name)
		}
		rollouts, refused = append(rollouts, r), refused || r.Rollout.Conflicts+r.Rollout.Refused > 0
	}
	if err := o.PrintFlags.Print(o.Out, cmdutil.NewList("PopulationReport", rollouts), func(out io.Writer) error { return table(out, rollouts) }); err != nil {
		return err
	}
	if len(unchecked) > 0 {
		return fmt.Errorf("policy-population has not checked every namespace for %s", strings.Join(unchecked, ", "))
	}
	if refused {
		return exitRefused
	}
	return nil
}

// table prints a line for each population, and then the messages and problems.
func table(out io.Writer, rollouts []Rollout) error {
	if len(rollouts) == 0 {
		_, err := fmt.Fprintln(out, "No population has scope All, so none reaches namespaces that exist.")
		return err
	}
	w := printers.GetNewTabWriter(out)
	_, _ = fmt.Fprintln(w, "POPULATION\tROLLOUT\tNAMESPACES\tCHECKED\tCURRENT\tTO CREATE\tTO CHANGE\tTO DELETE\tUNCHANGED\tCONFLICTS\tREFUSED")
	for _, r := range rollouts {
		s := r.Rollout
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", r.Population, r.Reason, s.Namespaces, s.Checked, s.Current, s.ToCreate, s.ToChange, s.ToDelete, s.Unchanged, s.Conflicts, s.Refused)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rollouts {
		_, _ = fmt.Fprintf(out, "\n%s: %s\n", r.Population, printable.Line(r.Message))
		for _, problem := range r.Rollout.Problems {
			_, _ = fmt.Fprintf(out, "- %s/%s: %s: %s\n", problem.Namespace, problem.Manifest, problem.Result, printable.Line(problem.Message))
		}
	}
	return nil
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
		reason = "is exempt by its name"
	}
	_, _ = fmt.Fprintf(o.ErrOut, "Namespace %q %s: populations with scope All put nothing into it.\n", namespace.Name, reason)
	return slices.DeleteFunc(objects, isOfAll), nil
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// ByInitializer returns the pods, and Jobs or their metadata, that wait for an initializer, the oldest first. Each object counts for the
// first initializer that it waits for.
func ByInitializer(objects []metav1.Object) map[string][]metav1.Object {
	all := map[string][]metav1.Object{}
	for _, object := range objects {
		if pending := helper.PendingOfObject(object); len(pending) > 0 {
			all[pending[0]] = append(all[pending[0]], object)
		}
	}
	for _, waiting := range all {
		slices.SortStableFunc(waiting, func(a, b metav1.Object) int {
			return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
		})
	}
	return all
}

// observeObjects reads the pods and Jobs of the namespace, as far as the user may list them, and the configurations if an object waits.
func (r *round) observeObjects(ctx context.Context, o *Observation) {
	for _, listing := range r.content().namespaced {
		switch {
		case listing.name() == "jobs.batch":
			for _, job := range listing.Objects {
				o.Objects = append(o.Objects, job)
			}
		case listing.name() == "pods" && len(listing.Objects) > 0: // their metadata has no gates
			pods, err := r.Core.CoreV1().Pods(o.Name).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
			if err == nil {
				for i := range pods.Items {
					o.Objects = append(o.Objects, &pods.Items[i])
				}
			} else if !apierrors.IsForbidden(err) {
				o.listErrs = append(o.listErrs, fmt.Errorf("initializers of pods: %w", err))
			}
		}
	}
	if len(ByInitializer(o.Objects)) > 0 {
		list, err := r.Nsinit.NsinitV1alpha1().InitializerConfigurations().List(ctx, metav1.ListOptions{})
		if o.ObjectConfigurations.Err = err; err == nil {
			o.ObjectConfigurations.Object = list.Items
		}
	}
}

// objectConfigurations returns the configurations, or why it is not known which ones exist. Without nsinit, none exists.
func (o Observation) objectConfigurations() ([]v1alpha1.InitializerConfiguration, error) {
	configurations := o.ObjectConfigurations
	if apierrors.IsNotFound(configurations.Err) {
		if api, err := o.API(); err == nil && api.Cause == NsinitUninstalled {
			return nil, nil
		}
	}
	return configurations.Object, configurations.Err
}

// waitingObjects reports each initializer that pods or Jobs wait for.
func waitingObjects(o Observation) []Finding {
	configurations, err := o.objectConfigurations()
	var found []Finding
	for name, objects := range ByInitializer(o.Objects) {
		var names []string
		configuration, report := helper.ObjectRegistration(configurations, name)
		w, since := words{"INITIALIZER": {name}, "CONFIGURATION": {configuration}}, objects[0].GetCreationTimestamp()
		for _, object := range objects {
			word, text := "JOB", "jobs/"+object.GetName()
			if _, isPod := object.(*corev1.Pod); isPod {
				word, text = "POD", "pods/"+object.GetName()
			}
			if names = append(names, text); !w.has(word) {
				w[word] = []string{text}
			}
		}
		state, program := o.overdue(&since), "no program has ever reported that it serves the initializer"
		switch {
		case err != nil:
			program = fmt.Sprintf("it is not known whether a program serves the initializer: %v", err)
			if apierrors.IsForbidden(err) {
				w["TENANT"] = []string{"true"}
			}
		case report == nil:
			state, program, w["UNREGISTERED"] = Stuck, "no InitializerConfiguration registers the initializer", []string{"true"}
		case report.ReportTime != nil:
			program = "no program serves the initializer"
			if apimeta.IsStatusConditionTrue(report.Conditions, v1alpha1.ConditionServed) {
				state, program, w["SERVED"] = Waiting, "a program serves the initializer", []string{"true"}
			}
			program += fmt.Sprintf(": user %q last reported %s ago", report.Reporter, duration.HumanDuration(max(0, o.Time.Sub(report.ReportTime.Time))))
			w["PODS"] = []string{namespaceOf(report.Reporter)}
		}
		found = append(found, o.finding(ObjectInitializerPending, state, &since, fmt.Sprintf("waiting for initializer %q: %s; %s", name, listed(names), program), w))
	}
	return found
}

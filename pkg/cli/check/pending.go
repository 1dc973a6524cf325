/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"errors"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// waiting are the objects that wait for an initializer to act.
type waiting struct {
	count int
	// oldest is the object that was created first.
	oldest metav1.Object
}

// heldObjects checks the optional component objects, if it is installed: whether its policies are in force, and which pods and Jobs wait
// for which initializer. Each object counts for the first initializer that it waits for.
func (i *inspection) heldObjects(ctx context.Context) {
	const check = "PodsAndJobs"
	if _, err := i.Core.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, installation.ObjectsGuard, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return
	}
	i.compareAll(ctx, delivery{check: check, bad: Problem, remedy: installAgain + ", with objects", manifests: []string{artifacts.ObjectsGuard()}})
	configurations, err := i.Nsinit.NsinitV1alpha1().InitializerConfigurations().List(ctx, metav1.ListOptions{})
	pods, podsErr := i.Core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	jobs, jobsErr := i.Core.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err := errors.Join(err, podsErr, jobsErr); err != nil {
		i.unknown(check, err)
		return
	}
	served := map[string]bool{}
	for _, configuration := range configurations.Items {
		if condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionInForce); condition != nil && condition.Status == metav1.ConditionFalse {
			i.add(check, Problem, "read the log of nsinit-controller-manager", "InitializerConfiguration %q is not in force: %s", configuration.Name, condition.Message)
		}
		for _, entry := range configuration.Status.Initializers {
			served[entry.Name] = served[entry.Name] || meta.IsStatusConditionTrue(entry.Conditions, v1alpha1.ConditionServed)
		}
	}
	all := map[string]*waiting{}
	count := func(object metav1.Object) {
		pending := helper.PendingOfObject(object)
		if len(pending) == 0 {
			return
		}
		w := all[pending[0]]
		if w == nil {
			w = &waiting{oldest: object}
			all[pending[0]] = w
		}
		w.count++
		if object.GetCreationTimestamp().Time.Before(w.oldest.GetCreationTimestamp().Time) {
			w.oldest = object
		}
	}
	for n := range pods.Items {
		count(&pods.Items[n])
	}
	for n := range jobs.Items {
		count(&jobs.Items[n])
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w := all[name]
		result, remedy, program := OK, "", "a program serves it"
		if !served[name] {
			result, remedy, program = Problem, "check whether the program of the initializer runs, and read its log", "no program serves it"
		}
		i.add(check, result, remedy, "%d pods and Jobs wait for initializer %q, the first since %s (%s/%s): %s", w.count, name,
			duration.HumanDuration(i.now.Sub(w.oldest.GetCreationTimestamp().Time)), w.oldest.GetNamespace(), w.oldest.GetName(), program)
	}
	if len(all) == 0 {
		i.add(check, OK, "", "no pod or Job waits for an initializer")
	}
}

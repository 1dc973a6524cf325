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
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// heldObjects checks the optional component objects, if it is installed: whether its policies are in force. It also shows which pods and Jobs
// wait for which initializer. Each object counts for the first initializer that it waits for.
func (i *inspection) heldObjects(ctx context.Context) {
	const check, again = "PodsAndJobs", installAgain + ", with objects"
	_, err := i.Core.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, installation.ObjectsGuard, metav1.GetOptions{})
	guarded := !apierrors.IsNotFound(err)
	if guarded {
		i.compareAll(ctx, delivery{check: check, bad: Problem, remedy: again, manifests: []string{artifacts.ObjectsGuard()}})
	}
	configurations, err := i.Nsinit.NsinitV1alpha1().InitializerConfigurations().List(ctx, metav1.ListOptions{})
	pods, podsErr := i.Core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	jobs, jobsErr := i.Core.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err := errors.Join(err, podsErr, jobsErr); err != nil {
		i.unknown(check, err)
		return
	}
	for _, configuration := range configurations.Items {
		if condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionInForce); condition != nil && condition.Status == metav1.ConditionFalse {
			i.add(check, Problem, "read the log of nsinit-controller-manager", "InitializerConfiguration %q is not in force: %s", configuration.Name, condition.Message)
		}
	}
	var objects []metav1.Object
	for n := range pods.Items {
		objects = append(objects, &pods.Items[n])
	}
	for n := range jobs.Items {
		objects = append(objects, &jobs.Items[n])
	}
	all := diagnosis.ByInitializer(objects)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		oldest := all[name][0]
		result, remedy, program := OK, "", "a program serves it"
		if _, report := helper.ObjectRegistration(configurations.Items, name); report == nil || !meta.IsStatusConditionTrue(report.Conditions, v1alpha1.ConditionServed) {
			result, remedy, program = Problem, "check whether the program of the initializer runs, and read its log", "no program serves it"
		}
		i.add(check, result, remedy, "pods and Jobs that wait for initializer %q: %d, the first since %s (%s/%s): %s", name, len(all[name]),
			duration.HumanDuration(i.now.Sub(oldest.GetCreationTimestamp().Time)), oldest.GetNamespace(), oldest.GetName(), program)
	}
	switch {
	case len(all) > 0 && !guarded:
		i.add(check, Problem, again, "policy %s does not exist: pods and Jobs wait, but each user who may update them can start them", installation.ObjectsGuard)
	case len(all) == 0 && guarded:
		i.add(check, OK, "", "no pod or Job waits for an initializer")
	}
}

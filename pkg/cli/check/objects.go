/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const (
	// metadataOnly asks for lists without specs and statuses.
	metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	// onePage is a limit above every number of objects. While the cache of nsinit-apiserver cannot be
	// filled, a list with a limit is answered by etcd, and names the objects that cannot be decoded.
	onePage = "1000000000"
)

// objects lists every kind. A list fails while one object of the kind cannot be decoded, and so do
// the watches of controllers and initializers.
func (i *inspection) objects(ctx context.Context) {
	const check = "Objects"
	resources := []string{"accessiblenamespaces", "initializerconfigurations", "namespaceinitializerconfigurations", "namespacelifecycles", "namespacepopulations", "populatednamespaces"}
	sound := true
	for _, resource := range resources {
		err := i.REST.Get().Resource(resource).Param("limit", onePage).SetHeader("Accept", metadataOnly).MaxRetries(0).Do(ctx).Error()
		if err == nil {
			continue
		}
		sound = false
		keys := undecodable(err)
		switch {
		case apierrors.IsForbidden(err):
			i.unknown(check, err)
		case len(keys) == 0:
			i.add(check, Problem, "kubectl --namespace "+printable.WordOr(i.namespace, "NAMESPACE")+" logs --selector app.kubernetes.io/name="+installation.APIServer, "%s cannot be listed: %v", resource, err)
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			i.add(check, Problem, "if its encryption key was removed, restore the key; otherwise, delete the object: "+deleteCommand(resource, path.Base(key)),
				"%s %q cannot be decoded: %s (key %s)", resource, path.Base(key), keys[key], key)
		}
	}
	if sound {
		i.add(check, OK, "", "%s can be listed", strings.Join(resources, ", "))
	}
}

// undecodable returns the keys of the objects that made a list fail because they cannot be decoded,
// each with the reason.
func undecodable(err error) map[string]string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsStoreReadError(err) || status.Status().Details == nil {
		return nil
	}
	keys := map[string]string{}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse && cause.Field != "" {
			// The message begins with the key, which the finding shows already.
			_, reason, _ := strings.Cut(cause.Message, "AdditionalErrorMsg: ")
			keys[cause.Field] = reason
		}
	}
	return keys
}

// deleteCommand returns the command that deletes an object that cannot be decoded.
func deleteCommand(resource, name string) string {
	path := "/apis/" + v1alpha1.SchemeGroupVersion.String() + "/" + resource + "/" + url.PathEscape(name)
	return "kubectl delete --raw " + printable.WordOr(path+"?ignoreStoreReadErrorWithClusterBreakingPotential=true", "PATH")
}

// served checks whether programs serve the registered initializers. One that never reported is no problem, because
// a person may act as the initializer. The check of the objects reports if the configurations cannot be listed.
func (i *inspection) served(ctx context.Context) {
	const check = "Initializers"
	list, err := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	served, all, overdue := 0, 0, false
	var never, unlimited []string
	for _, configuration := range list.Items {
		all += len(configuration.Initializers)
		for _, initializer := range configuration.Initializers {
			entry := helper.RegistrationStatus(&configuration, initializer.Name)
			switch {
			case entry == nil || entry.ReportTime == nil:
				never = append(never, initializer.Name)
				if initializer.FailurePolicy == nil && ptr.Deref(initializer.Activation, "") != v1alpha1.ActivationWhenServed {
					unlimited = append(unlimited, initializer.Name)
				}
			case meta.IsStatusConditionFalse(entry.Conditions, v1alpha1.ConditionServed):
				overdue = true
				i.add(check, Problem, "check whether the program of the initializer runs, and read its log",
					"initializer %q of configuration %q is not served: user %q last reported %s ago", initializer.Name, configuration.Name, entry.Reporter, duration.HumanDuration(i.now.Sub(entry.ReportTime.Time)))
			default:
				served++
			}
		}
	}
	if overdue || all == 0 {
		return
	}
	message := fmt.Sprintf("%d of %d are served", served, all)
	if len(never) > 0 {
		message += "; no program has ever reported that it serves " + strings.Join(never, ", ")
	}
	if len(unlimited) > 0 {
		message += "; without a failurePolicy, new namespaces wait without limit for " + strings.Join(unlimited, ", ")
	}
	i.add(check, OK, "", "%s", message)
}

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
	pods, podsErr := i.Core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelInitializing, FieldSelector: "spec.nodeName="})
	jobs, jobsErr := i.Core.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelInitializing})
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

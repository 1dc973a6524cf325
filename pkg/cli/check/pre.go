/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const (
	// uninstallFormer removes what a former installation has left.
	uninstallFormer = "uninstall the former installation completely (docs/uninstall.md)"
	// defaultClass is the annotation of the StorageClass of volumes that name none.
	defaultClass = "storageclass.kubernetes.io/is-default-class"
)

// inspectBefore checks what would block an installation, or harm it later.
func inspectBefore(ctx context.Context, clients *cmdutil.Clients) []Result {
	i := &inspection{Clients: clients, namespace: clients.InstalledIn(ctx), now: clients.ServerClock.Now()}
	i.kubernetes()
	for _, check := range []func(context.Context){
		i.kinds, i.aggregation, i.aggregated, i.permissions, i.ownNamespace, i.webhooks, i.policies, i.former, i.volumes,
	} {
		check(ctx)
	}
	return i.results
}

// kinds checks whether kube-apiserver serves the kinds of policies.
func (i *inspection) kinds(context.Context) {
	const check, version = "Policies", "admissionregistration.k8s.io/v1"
	list, err := i.Core.Discovery().ServerResourcesForGroupVersion(version)
	if err != nil && !apierrors.IsNotFound(err) {
		i.unknown(check, err)
		return
	}
	want := []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	message := "the stamp is a webhook: install a file with stamp-webhook in its name, the component stamp-webhook, or the chart"
	if !i.webhookStamps {
		want = append(want, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
		message = "kube-apiserver serves " + strings.Join(want, ", ")
	}
	if list != nil {
		want = slices.DeleteFunc(want, func(name string) bool {
			return slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool { return served.Name == name })
		})
	}
	if len(want) > 0 {
		i.add(check, Problem, "remove these kinds from --runtime-config of kube-apiserver", "kube-apiserver does not serve %s of %s", strings.Join(want, ", "), version)
		return
	}
	i.add(check, OK, "", "%s", message)
}

// aggregation checks whether kube-apiserver can forward requests with the identity of their users.
func (i *inspection) aggregation(ctx context.Context) {
	const check, name, ca = "Aggregation", "extension-apiserver-authentication", "requestheader-client-ca-file"
	configMap, err := i.Core.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		i.unknown(check, err)
		return
	}
	var missing []string
	for _, key := range []string{ca, "requestheader-username-headers", "requestheader-group-headers"} {
		var values []string
		if configMap == nil || configMap.Data[key] == "" || key != ca && (json.Unmarshal([]byte(configMap.Data[key]), &values) != nil || len(values) == 0) {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		i.add(check, Problem, "set these flags and --proxy-client-cert-file of kube-apiserver: https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer",
			"the aggregation layer is not configured: ConfigMap %s/%s has no %s", metav1.NamespaceSystem, name, strings.Join(missing, ", "))
		return
	}
	i.certificate(check, "the front-proxy CA", "renew the front-proxy certificates of kube-apiserver", []byte(configMap.Data[ca]))
}

// aggregated checks the aggregated APIs of others, and what is registered as that of nsinit.
func (i *inspection) aggregated(ctx context.Context) {
	const check = "APIServices"
	list, err := i.APIs.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		i.unknown(check, err)
		return
	}
	others, problems := 0, len(i.results)
	for _, service := range list.Items {
		switch {
		case service.Spec.Group == v1alpha1.GroupName && service.Spec.Service == nil:
			i.add(check, Problem, "delete the CustomResourceDefinitions of the group "+v1alpha1.GroupName, "APIService %s exists, because CustomResourceDefinitions use the group of nsinit", service.Name)
		case service.Spec.Group == v1alpha1.GroupName:
			i.add(check, Warning, "if nsinit does not run: "+uninstallFormer, "APIService %s of service %s/%s exists", service.Name, service.Spec.Service.Namespace, service.Spec.Service.Name)
		case service.Spec.Service == nil:
		case !helper.IsAPIServiceConditionTrue(&service, apiregistrationv1.Available):
			i.add(check, Warning, "kubectl nsinit why --all", "APIService %s is not available, so Kubernetes removes no namespace, with or without nsinit", service.Name)
		default:
			others++
		}
	}
	if len(i.results) == problems {
		i.add(check, OK, "", "the group %s is free, and %d aggregated APIs are available", v1alpha1.GroupName, others)
	}
}

// applied returns the resources that an installation applies. Those that are not in a namespace have none.
func (i *inspection) applied() (all []authorizationv1.ResourceAttributes) {
	for _, of := range []struct {
		namespace, group string
		resources        []string
	}{
		{"", "", []string{"namespaces"}},
		{"", "rbac.authorization.k8s.io", []string{"clusterroles", "clusterrolebindings"}},
		{"", "admissionregistration.k8s.io", []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations"}},
		{i.namespace, "", []string{"configmaps", "resourcequotas", "serviceaccounts", "services"}},
		{i.namespace, "apps", []string{"deployments", "statefulsets"}},
		{i.namespace, "networking.k8s.io", []string{"networkpolicies"}},
		{i.namespace, "policy", []string{"poddisruptionbudgets"}},
		{i.namespace, "rbac.authorization.k8s.io", []string{"roles", "rolebindings"}},
		{metav1.NamespaceSystem, "rbac.authorization.k8s.io", []string{"rolebindings"}},
	} {
		for _, resource := range of.resources {
			all = append(all, authorizationv1.ResourceAttributes{Namespace: of.namespace, Group: of.group, Resource: resource})
		}
	}
	return all
}

// permissions checks whether the user may apply everything, and grant the permissions in the roles of nsinit.
func (i *inspection) permissions(ctx context.Context) {
	const check, every = "Permissions", "*"
	may := func(attributes authorizationv1.ResourceAttributes) (bool, error) {
		review, err := i.Core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	}
	all, err := may(authorizationv1.ResourceAttributes{Verb: every, Group: every, Resource: every})
	if err != nil {
		i.unknown(check, err)
		return
	}
	var missing []string
	for _, attributes := range i.applied() {
		verbs := []string{"create", "patch"}
		if attributes.Resource == "clusterroles" {
			verbs = append(verbs, "escalate", "bind")
		}
		for _, attributes.Verb = range verbs {
			if all {
				continue
			}
			if allowed, err := may(attributes); err != nil || !allowed {
				missing = append(missing, attributes.Verb+" "+attributes.Resource)
			}
		}
	}
	if len(missing) > 0 {
		i.add(check, Problem, "install nsinit as a user with the ClusterRole cluster-admin", "you may not %s", strings.Join(slices.Compact(missing), ", "))
		return
	}
	i.add(check, OK, "", "you may apply every object")
}

// ownNamespace checks whether a policy or a webhook refuses the namespace of nsinit.
func (i *inspection) ownNamespace(ctx context.Context) {
	const check = "Namespace"
	_, err := i.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.namespace}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsAlreadyExists(err):
		i.add(check, OK, "", "namespace %s exists already", i.namespace)
	case i.accepted(check, err, "fix the cause in the message", "namespace "+i.namespace):
		i.add(check, OK, "", "namespace %s can be created", i.namespace)
	}
}

// former checks what an installation of nsinit has left, and whether one exists. The checks of admission have found its policies.
func (i *inspection) former(ctx context.Context) {
	const check = "Leftovers"
	if programs, err := i.rollouts(ctx); err == nil && len(programs) > 0 {
		i.add(check, Warning, "kubectl nsinit check; to install another version, read docs/upgrade.md", "nsinit is installed already, in namespace %s", i.namespace)
		return
	}
	namespaces, err := i.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		i.unknown(check, err)
		return
	}
	for _, namespace := range namespaces.Items {
		if _, closed := namespace.Labels[v1alpha1.LabelInitializing]; closed || slices.Contains(namespace.Finalizers, v1alpha1.NamespaceFinalizer) || slices.Contains(namespace.Finalizers, v1alpha1.ContentFinalizer) {
			i.leftovers = append(i.leftovers, "a label or finalizer of namespace "+namespace.Name)
		}
	}
	for _, name := range []string{"nsinit-storage", installation.Off} {
		if _, err := i.Core.CoreV1().ConfigMaps(i.namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			i.leftovers = append(i.leftovers, "configmap "+i.namespace+"/"+name)
		}
	}
	if len(i.leftovers) == 0 {
		i.add(check, OK, "", "no former installation was found")
		return
	}
	shown := i.leftovers[:min(len(i.leftovers), 5)]
	i.add(check, Warning, uninstallFormer, "a former installation has left %d objects, such as %s", len(i.leftovers), strings.Join(shown, ", "))
}

// volumes checks whether the volume of the overlay embedded can be provisioned.
func (i *inspection) volumes(ctx context.Context) {
	const check = "Storage"
	list, err := i.Core.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		i.unknown(check, err)
		return
	}
	n := slices.IndexFunc(list.Items, func(class storagev1.StorageClass) bool { return class.Annotations[defaultClass] == "true" })
	if n < 0 {
		i.add(check, Warning, fmt.Sprintf("install the overlay ha, or set the annotation %s=true of a StorageClass", defaultClass), "no StorageClass is the default, so the volume of the embedded etcd cannot be provisioned")
		return
	}
	i.add(check, OK, "", "StorageClass %s provisions the volume of the embedded etcd", list.Items[n].Name)
}

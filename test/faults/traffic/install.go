/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package traffic

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/faults/history"
)

// Users of the traffic.
const (
	tenantUser      = NamePrefix + "tenant"
	initializerUser = NamePrefix + "initializer"
	meddlerUser     = NamePrefix + "meddler"
	// The warden freezes namespaces, the portal creates them on behalf of tenants, and the viewer may get those in which the population
	// binds viewRole.
	wardenUser, portalUser, viewerUser, viewRole = NamePrefix + "warden", NamePrefix + "portal", NamePrefix + "viewer", NamePrefix + "view"
)

// The initializers. holder acts after those before it; participant acts at any time. Both act at the end of namespaces, and holder holds
// the content until then. optional is registered only at times, in changing places; ghost does not run, and is skipped at its deadline;
// populator is policy-population, which runs as a program.
const (
	holder      = "one" + history.InitializerDomain
	participant = "two" + history.InitializerDomain
	optional    = "three" + history.InitializerDomain
	ghost       = "ghost" + history.InitializerDomain
	populator   = "policy-population.nsinit.dev"
)

// The initializers of pods and Jobs, in their order. Both act on both kinds.
const (
	scanner  = "scanner" + history.InitializerDomain
	approver = "approver" + history.InitializerDomain
)

// baseConfiguration is the name of the configurations that always exist: one for namespaces, and one for pods and Jobs.
const baseConfiguration = NamePrefix + "base"

// Initializers returns the names of the initializers that run.
func Initializers() []string {
	return append([]string{holder, participant, optional}, objectInitializers()...)
}

func objectInitializers() []string { return []string{scanner, approver} }

// meddlerInitializers are those whose rights the meddler has.
func meddlerInitializers() []string { return []string{holder, participant} }

// Install gives the users of the traffic their rights, and registers the initializers that are always
// there. It returns when both are in force.
func Install(ctx context.Context, config *rest.Config) error {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	nsinit, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	all := []string{"*"}
	for user, rules := range map[string][]rbacv1.PolicyRule{
		tenantUser: {
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "list", "watch", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps", "serviceaccounts", "pods"}, Verbs: all},
			{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: all},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: all},
		},
		initializerUser: {
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "initialize"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"namespacelifecycles"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"namespacelifecycles/initialize", "namespacelifecycles/finalize", "namespacelifecycles/status"}, Verbs: []string{"create", "update", "patch"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.ResourceInitializers}, Verbs: []string{v1alpha1.VerbInitialize, v1alpha1.VerbFinalize}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"namespaceinitializerconfigurations", "initializerconfigurations"}, Verbs: []string{"list"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"namespaceinitializerconfigurations/status", "initializerconfigurations/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "list", "watch", "patch"}},
		},
		meddlerUser: {
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "initialize"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"namespacelifecycles/initialize"}, Verbs: []string{"create", "update"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.ResourceInitializers}, ResourceNames: meddlerInitializers(), Verbs: []string{v1alpha1.VerbInitialize}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods/binding"}, Verbs: []string{"create"}},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs", "jobs/status"}, Verbs: []string{"patch"}},
		},
		wardenUser: {{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "patch", v1alpha1.VerbFreeze}}},
		portalUser: {
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"creators"}, Verbs: []string{v1alpha1.VerbImpersonate}},
		},
		viewerUser: {{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"accessiblenamespaces"}, Verbs: []string{"list", "watch"}}},
		viewRole:   {{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}}},
	} {
		meta := metav1.ObjectMeta{Name: user}
		_, err := core.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if user == viewRole { // the population binds it in namespaces
			continue
		}
		_, err = core.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	_, err = nsinit.NsinitV1alpha1().NamespacePopulations().Create(ctx, population(10000), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot create the population: %w", err)
	}
	_, err = nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: baseConfiguration},
		Initializers: []v1alpha1.RegisteredInitializer{{Name: populator, Ordering: &v1alpha1.InitializerOrdering{}},
			{Name: holder, Finalizer: true, Holds: new(v1alpha1.HoldContent)}, {Name: participant, Finalizer: true, Ordering: &v1alpha1.InitializerOrdering{}}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot register the initializers: %w", err)
	}
	registration := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: baseConfiguration}}
	rules := []v1alpha1.Rule{{APIGroups: []string{"", "batch"}, APIVersions: []string{"v1"}, Resources: []string{"pods", "jobs"}}}
	for _, name := range objectInitializers() {
		registration.Initializers = append(registration.Initializers, v1alpha1.Initializer{Name: name, Rules: rules})
	}
	_, err = nsinit.NsinitV1alpha1().InitializerConfigurations().Create(ctx, registration, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot register the initializers of pods and Jobs: %w", err)
	}
	return nil
}

// DeleteAll deletes every namespace of the traffic, and waits until they are gone.
func DeleteAll(ctx context.Context, core kubernetes.Interface, prefix string) error {
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		left, err := Names(ctx, core, prefix)
		if err != nil {
			return false, nil //nolint:nilerr // tried again
		}
		for _, name := range left {
			_ = core.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		}
		return len(left) == 0, nil
	})
}

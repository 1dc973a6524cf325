//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"maps"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	typed "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestConfinement: a confined initializer with all rights of RBAC writes only the resources that it declares, and only in
// namespaces that are initializing or terminating. Of nsinit's kinds, it writes only its configuration. Other users are not
// confined.
func TestConfinement(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	open, ending := c.CreateNamespace(t, c.Admin).Name, c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, open)
	c.WaitReady(t, ending)
	closed := c.CreateHeld(t, c.Admin).Name
	for _, namespace := range []string{open, closed, ending} {
		meta := metav1.ObjectMeta{Name: "confined"}
		if namespace == ending {
			meta.Finalizers = []string{framework.Holder} // the namespace stays
		}
		if _, err := c.Core.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	rules := []rbacv1.PolicyRule{framework.Everything(), framework.Initialize()}
	user, config := c.ServiceAccount(t, rules...)
	initializer := kubernetes.NewForConfigOrDie(config)
	c.User(t, "e2e-not-confined", rules...)
	own := c.Name("own")
	args := []string{"rbac", "confined.example.com", "--user=" + user, "--configuration=" + own, "--confine-to=configmaps,serviceaccounts"}
	c.ApplyInput(t, c.MustPlugin(t, args...))
	policy := c.MustPlugin(t, append(args, "--output=jsonpath={.spec.policyName}")...)
	says := `initializer confined.example.com may write only in namespaces that are initializing or terminating, and only configmaps, serviceaccounts`
	framework.Eventually(t, "the policy is in force", func(ctx context.Context) error {
		return framework.RefusedBy(policy, framework.WriteConfigMap(ctx, initializer, open), says, `refuses configmaps in namespace "`+open+`"`)
	})
	meta, options := metav1.ObjectMeta{GenerateName: "confined-"}, metav1.CreateOptions{}
	_, otherErr := initializer.CoreV1().Secrets(closed).Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, options)
	_, clusterErr := initializer.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: meta}, options)
	_, leaseErr := initializer.CoordinationV1().Leases(closed).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: meta}, options)
	refused := writes(t, initializer, open, "confined")
	maps.Copy(refused, map[string]error{"another resource": otherErr, "a resource without a namespace": clusterErr, "a Lease of others": leaseErr})
	for what, err := range refused {
		if err := framework.RefusedBy(policy, err, says); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, eventErr := initializer.CoreV1().Events(metav1.NamespaceDefault).Create(t.Context(), &corev1.Event{ObjectMeta: meta,
		InvolvedObject: corev1.ObjectReference{Namespace: metav1.NamespaceDefault}}, options)
	_, ownErr := initializer.CoordinationV1().Leases(metav1.NamespaceDefault).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: meta}, options)
	allowed := writes(t, initializer, closed, "confined")
	maps.Copy(allowed, map[string]error{"an event": eventErr, "its Lease": ownErr,
		"another user": framework.WriteConfigMap(t.Context(), kubernetes.NewForConfigOrDie(c.As("e2e-not-confined")), open)})
	for what, err := range allowed {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	confinedCleansUp(t, initializer, c, ending)
	confinedKinds(t, versioned.NewForConfigOrDie(config).NsinitV1alpha1(), policy, own)
}

// confinedCleansUp: the initializer changes and deletes content of a namespace that is being deleted.
func confinedCleansUp(t *testing.T, initializer kubernetes.Interface, c *framework.Cluster, namespace string) {
	t.Helper()
	c.DeleteNamespace(t, namespace)
	configMaps := initializer.CoreV1().ConfigMaps(namespace)
	framework.Eventually(t, "the initializer writes into a namespace that is being deleted", func(ctx context.Context) error {
		_, err := configMaps.Patch(ctx, "confined", types.MergePatchType, []byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{})
		return err
	})
	done := writes(t, initializer, namespace, "confined")
	delete(done, "create") // Kubernetes refuses it
	delete(done, "token")
	for what, err := range done {
		if err != nil {
			t.Errorf("%s in a namespace that is being deleted: %v", what, err)
		}
	}
	if _, err := configMaps.Patch(t.Context(), "confined", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	c.WaitNoNamespace(t, namespace)
}

// confinedKinds: the initializer registers itself, and writes no other configuration and no population.
func confinedKinds(t *testing.T, initializer typed.NsinitV1alpha1Interface, policy, own string) {
	t.Helper()
	populate := func(ctx context.Context) error {
		_, err := initializer.NamespacePopulations().Create(ctx, &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{GenerateName: "confined-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	framework.Eventually(t, "nsinit-apiserver evaluates the policy", func(ctx context.Context) error {
		return framework.RefusedBy(policy, populate(ctx), "refuses namespacepopulations.nsinit.dev")
	})
	register := func(meta metav1.ObjectMeta) error {
		_, err := initializer.NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: meta,
			Initializers: framework.Initializers("confined.example.com")}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, meta := range []metav1.ObjectMeta{{Name: own + "-not"}, {GenerateName: own}} {
		if err := framework.RefusedBy(policy, register(meta), "refuses namespaceinitializerconfigurations.nsinit.dev"); err != nil {
			t.Errorf("another configuration: %v", err)
		}
	}
	if err := register(metav1.ObjectMeta{Name: own}); err != nil {
		t.Errorf("its configuration: %v", err)
	}
}

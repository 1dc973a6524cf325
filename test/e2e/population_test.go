//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// changePopulation changes the spec of a population.
func changePopulation(t *testing.T, c *framework.Cluster, name string, change func(*v1alpha1.NamespacePopulationSpec)) {
	t.Helper()
	populations := c.Nsinit.NsinitV1alpha1().NamespacePopulations()
	framework.Eventually(t, "changing population "+name, func(ctx context.Context) error {
		population, err := populations.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&population.Spec)
		_, err = populations.Update(ctx, population, metav1.UpdateOptions{})
		return err
	})
}

func repaired(m v1alpha1.PopulationManifest) v1alpha1.PopulationManifest {
	m.DriftPolicy = v1alpha1.DriftRepair
	return m
}

// valueOf returns the key "value" of a ConfigMap.
func valueOf(ctx context.Context, c *framework.Cluster, namespace, name string) (string, error) {
	configMap, err := c.Core.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return configMap.Data["value"], nil
}

// waitValue waits for the value of a ConfigMap. "gone" waits until there is none.
func waitValue(t *testing.T, c *framework.Cluster, namespace, name, want string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("configmap %s/%s is %q", namespace, name, want), func(ctx context.Context) error {
		got, err := valueOf(ctx, c, namespace, name)
		if apierrors.IsNotFound(err) {
			got, err = "gone", nil
		}
		if err == nil && got != want {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
}

// TestPopulation: the content of a namespace when it opens, its authors, and the PopulatedNamespace.
func TestPopulation(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	team := c.User(t, "e2e-alice", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"}})
	c.StartPopulation(t)

	// No population is defined yet.
	waiting := c.CreateNamespace(t, team).Name
	c.WaitCondition(t, waiting, v1alpha1.ConditionInitializing, "there is no NamespacePopulation")

	conditional, skipped := framework.ConfigMapManifest("conditional", "x"), framework.ConfigMapManifest("skipped", "x")
	conditional.When, skipped.When = `creator == "e2e-alice"`, `"system:masters" in creatorGroups`
	c.Populate(t, "20-second", framework.ConfigMapManifest("overridden", "second"))
	c.Populate(t, "10-first", framework.ConfigMapManifest("who", "${creator}"), framework.ConfigMapManifest("where", "${namespaceObject.metadata.name}"), framework.ConfigMapManifest("overridden", "first"), conditional, skipped)
	c.WaitReady(t, waiting)
	namespace := c.CreateNamespace(t, team)
	c.WaitReady(t, namespace.Name)
	for name, want := range map[string]string{"who": "e2e-alice", "where": namespace.Name, "overridden": "second", "conditional": "x", "skipped": "gone"} {
		waitValue(t, c, namespace.Name, name, want)
	}
	for _, object := range []string{"who", "overridden"} {
		configMap, err := c.Core.CoreV1().ConfigMaps(namespace.Name).Get(t.Context(), object, metav1.GetOptions{})
		if err != nil || configMap.ManagedFields[0].Manager != framework.PopulationInitializer || configMap.Labels[v1alpha1.LabelPopulation] == "" {
			t.Errorf("%s: %+v %v", object, configMap, err)
		}
	}

	inventory, err := c.Nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(t.Context(), namespace.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for _, o := range inventory.Status.Objects {
		entries = append(entries, fmt.Sprintf("%s/%s %s", o.Population, o.Manifest, o.State))
		if o.UID == "" || o.LastAppliedTime == nil {
			t.Errorf("recorded %+v", o)
		}
	}
	if want := []string{"10-first/who Applied", "10-first/where Applied", "10-first/overridden Applied", "10-first/conditional Applied", "20-second/overridden Applied"}; !slices.Equal(entries, want) {
		t.Errorf("recorded %q, want %q", entries, want)
	}
	if inventory.Spec.NamespaceUID != namespace.UID || !meta.IsStatusConditionTrue(inventory.Status.Conditions, v1alpha1.ConditionApplied) {
		t.Errorf("the PopulatedNamespace is %+v", inventory)
	}
	waitPopulation(t, c, "10-first", v1alpha1.ConditionApplied, metav1.ConditionTrue, "every manifest could be applied")
	if out, err := c.Kubectl("get", "nspop,popns"); err != nil || !strings.Contains(out, "5/5") {
		t.Errorf("%v\n%s", err, out)
	}

	// The PopulatedNamespace is deleted with the namespace. A new namespace of the same name is populated again.
	if out, err := c.Kubectl("delete", "namespace", namespace.Name); err != nil {
		t.Fatal(err, out)
	}
	again, err := kubernetes.NewForConfigOrDie(team).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.WaitReady(t, again.Name)
	waitValue(t, c, again.Name, "who", "e2e-alice")
	framework.Eventually(t, "the PopulatedNamespace is the new one's", func(ctx context.Context) error {
		inventory, err := c.Nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, again.Name, metav1.GetOptions{})
		if err == nil && inventory.Spec.NamespaceUID != again.UID {
			err = errors.New("it is the former one's")
		}
		return err
	})
}

// waitPopulation waits for a condition of a population.
func waitPopulation(t *testing.T, c *framework.Cluster, name, conditionType string, status metav1.ConditionStatus, says string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the condition %s of population %s", conditionType, name), func(ctx context.Context) error {
		population, err := c.Nsinit.NsinitV1alpha1().NamespacePopulations().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(population.Status.Conditions, conditionType)
		if condition == nil || condition.Status != status || !strings.Contains(condition.Message, says) || condition.ObservedGeneration != population.Generation {
			return fmt.Errorf("the status is %+v", population.Status)
		}
		return nil
	})
}

// TestPopulationEscalation: policy-population cannot grant permissions that it does not have. The API server refuses
// the object, conditions and events report it, and the other objects are applied.
func TestPopulationEscalation(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	c.StartPopulation(t)
	c.Populate(t, "escalating",
		v1alpha1.PopulationManifest{Name: "root", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"root"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"${creator}"}]}`)}},
		v1alpha1.PopulationManifest{Name: "secret", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)}},
		v1alpha1.PopulationManifest{Name: "unknown", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"unknown.example.com/v1","kind":"Nothing","metadata":{"name":"s"}}`)}},
		v1alpha1.PopulationManifest{Name: "cluster", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"e2e-${namespaceObject.metadata.name}"}}`)}},
		framework.ConfigMapManifest("missing", `${namespaceObject.metadata.labels["cost-centre"]}`),
		framework.ConfigMapManifest("good", "good"))
	// Problems that affect every namespace are reported before a namespace is created.
	waitPopulation(t, c, "escalating", v1alpha1.ConditionReady, metav1.ConditionFalse,
		`manifest secret: cannot apply Secret "s": grant the initializer the missing permission cluster-wide: create and patch on secrets (and 2 more, see kubectl nsinit preview)`)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, `escalating/root: cannot apply RoleBinding "root"`)
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "attempting to grant RBAC permissions not currently held")
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "and 4 more, see kubectl get populatednamespace "+namespace)
	waitValue(t, c, namespace, "good", "good")
	if !c.IsClosed(t, namespace) {
		t.Error("the namespace is open")
	}
	framework.Eventually(t, "the PopulatedNamespace reports each", func(ctx context.Context) error {
		inventory, err := c.Nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i, want := range []string{"attempting to grant RBAC permissions", "grant the initializer the missing permission", "the cluster does not know the kind", "--cluster-scoped-resources",
			"no such key: cost-centre", ""} {
			if i >= len(inventory.Status.Objects) || !strings.Contains(inventory.Status.Objects[i].Message, want) || (want == "") != (inventory.Status.Objects[i].State == v1alpha1.PopulatedObjectApplied) {
				return fmt.Errorf("object %d, want %q: %+v", i, want, inventory.Status.Objects)
			}
		}
		return nil
	})
	waitPopulation(t, c, "escalating", v1alpha1.ConditionApplied, metav1.ConditionFalse, "manifest root, in 1 namespaces, of which "+namespace)

	// The population is fixed, and the namespace opens without another action.
	changePopulation(t, c, "escalating", func(spec *v1alpha1.NamespacePopulationSpec) { spec.Manifests = spec.Manifests[5:] })
	c.WaitReady(t, namespace)
	waitPopulation(t, c, "escalating", v1alpha1.ConditionApplied, metav1.ConditionTrue, "every manifest could be applied")
	waitPopulation(t, c, "escalating", v1alpha1.ConditionReady, metav1.ConditionTrue, "the initializer can apply every manifest")
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.population.example.com}
spec:
  group: population.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// TestPopulationLostKind: while the kind of a manifest does not exist, namespaces wait and say why, and other objects are repaired. When
// the kind exists again, the namespaces open.
func TestPopulationLostKind(t *testing.T) {
	c := framework.Connect(t)
	deleteKind := func() {
		t.Helper()
		if out, err := c.Kubectl("delete", "--ignore-not-found", "crd", "widgets.population.example.com"); err != nil {
			t.Fatal(out, err)
		}
	}
	c.ApplyInput(t, widgets)
	c.GrantPopulation(t, framework.ConfigMapRule(), rbacv1.PolicyRule{APIGroups: []string{"population.example.com"}, Resources: []string{"widgets"},
		Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}})
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	c.StartPopulation(t)
	c.Populate(t, "kinds", repaired(framework.ConfigMapManifest("settings", "x")), repaired(v1alpha1.PopulationManifest{Name: "widget",
		Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"population.example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)}}))
	before := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, before)

	deleteKind()
	after := c.CreateNamespace(t, c.Admin).Name
	c.WaitCondition(t, after, v1alpha1.ConditionInitializing, `kinds/widget: cannot apply Widget "w"`)
	waitPopulation(t, c, "kinds", v1alpha1.ConditionApplied, metav1.ConditionFalse, `cannot apply Widget "w"`)
	waitPopulation(t, c, "kinds", v1alpha1.ConditionReady, metav1.ConditionFalse, "manifest widget: ")
	if err := c.Core.CoreV1().ConfigMaps(before).Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitValue(t, c, before, "settings", "x")

	c.ApplyInput(t, widgets)
	c.WaitReady(t, after)
	waitPopulation(t, c, "kinds", v1alpha1.ConditionReady, metav1.ConditionTrue, "the initializer can apply every manifest")
	waitPopulation(t, c, "kinds", v1alpha1.ConditionApplied, metav1.ConditionTrue, "every manifest could be applied")
}

// TestPopulationClusterScoped: a cluster-scoped object belongs to one namespace, and is deleted with it. Objects of
// other owners are kept.
func TestPopulationClusterScoped(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}})
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	c.StartPopulation(t, "--cluster-scoped-resources=clusterroles.rbac.authorization.k8s.io")
	role := func(manifest, name string) v1alpha1.PopulationManifest {
		return v1alpha1.PopulationManifest{Name: manifest, Template: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":%q}}`, name)}}
	}
	foreign := framework.UniqueName("e2e-foreign")
	if out, err := c.Kubectl("create", "clusterrole", foreign, "--verb=get", "--resource=pods"); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() { _, _ = c.Kubectl("delete", "clusterrole", foreign) })
	c.Populate(t, "cluster-scoped", role("own", "e2e:${namespaceObject.metadata.name}"), role("foreign", foreign))
	namespace := c.CreateNamespace(t, c.Admin)
	c.WaitCondition(t, namespace.Name, v1alpha1.ConditionInitializing, "it exists and does not belong to this namespace")
	got, err := c.Core.RbacV1().ClusterRoles().Get(t.Context(), foreign, metav1.GetOptions{})
	if err != nil || len(got.Rules) != 1 || len(got.OwnerReferences) != 0 {
		t.Errorf("the foreign role is %+v, %v", got, err)
	}
	changePopulation(t, c, "cluster-scoped", func(spec *v1alpha1.NamespacePopulationSpec) { spec.Manifests = spec.Manifests[:1] })
	c.WaitReady(t, namespace.Name)
	own := "e2e:" + namespace.Name
	if got, err = c.Core.RbacV1().ClusterRoles().Get(t.Context(), own, metav1.GetOptions{}); err != nil || got.OwnerReferences[0].UID != namespace.UID {
		t.Errorf("the role is %+v, %v", got, err)
	}
	if out, err := c.Kubectl("delete", "namespace", namespace.Name); err != nil {
		t.Fatal(err, out)
	}
	framework.Eventually(t, "the role and the PopulatedNamespace leave with the namespace", func(ctx context.Context) error {
		_, roleErr := c.Core.RbacV1().ClusterRoles().Get(ctx, own, metav1.GetOptions{})
		_, inventoryErr := c.Nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(roleErr) || !apierrors.IsNotFound(inventoryErr) {
			return fmt.Errorf("the role: %w, the PopulatedNamespace: %w", roleErr, inventoryErr)
		}
		return nil
	})
}

// TestPopulationDrift: objects with driftPolicy Repair are repaired, and follow their manifest.
func TestPopulationDrift(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	c.StartPopulation(t)
	c.Populate(t, "drift", repaired(framework.ConfigMapManifest("repaired", "as-it-should-be")), framework.ConfigMapManifest("free", "first"))
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	configMaps := c.Core.CoreV1().ConfigMaps(namespace)
	patch := func(name, patch string) {
		t.Helper()
		if _, err := configMaps.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := configMaps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	patch("free", `{"data":{"value":"mine"}}`)
	patch("repaired", `{"data":{"value":"changed"}}`)
	waitValue(t, c, namespace, "repaired", "as-it-should-be")
	patch("repaired", `{"data":{"value":"changed"},"metadata":{"labels":{"nsinit.dev/population":null}}}`)
	waitValue(t, c, namespace, "repaired", "as-it-should-be")
	remove("repaired")
	waitValue(t, c, namespace, "repaired", "as-it-should-be")

	// The population changes. Objects that follow it change, a new manifest is applied, and the other objects stay the tenant's.
	changePopulation(t, c, "drift", func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Manifests[0] = repaired(framework.ConfigMapManifest("repaired", "better"))
		spec.Manifests[1] = framework.ConfigMapManifest("free", "second")
		spec.Manifests = append(spec.Manifests, repaired(framework.ConfigMapManifest("added", "added")), framework.ConfigMapManifest("for-new-ones", "x"))
	})
	waitValue(t, c, namespace, "repaired", "better")
	waitValue(t, c, namespace, "added", "added")
	for name, want := range map[string]string{"free": "mine", "for-new-ones": "gone"} {
		waitValue(t, c, namespace, name, want)
	}
	remove("free")
	remove("added")
	waitValue(t, c, namespace, "added", "added")
	waitValue(t, c, namespace, "free", "gone")
}

// TestPopulationImmutable: a user makes an object immutable, or creates another one whose fields cannot be changed in its place.
// It is replaced. An object that the population never applied stays.
func TestPopulationImmutable(t *testing.T) {
	c := framework.Connect(t)
	all := []string{"get", "list", "watch", "create", "patch", "delete"}
	c.GrantPopulation(t, framework.ConfigMapRule(), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: all},
		rbacv1.PolicyRule{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"rolebindings"}, Verbs: all},
		rbacv1.PolicyRule{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"}, ResourceNames: []string{"view"}, Verbs: []string{"bind"}})
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	hook := c.StartPopulation(t)
	c.Populate(t, "immutable", repaired(framework.ConfigMapManifest("settings", "first")),
		repaired(v1alpha1.PopulationManifest{Name: "secret", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"type":"Opaque"}`)}}),
		repaired(v1alpha1.PopulationManifest{Name: "binding", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"viewers"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"viewers"}]}`)}}))
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	run := func(args ...string) {
		t.Helper()
		if out, err := c.Kubectl(append(args, "--namespace", namespace)...); err != nil {
			t.Fatal(err, out)
		}
	}
	waitField := func(resource, path, want string) {
		t.Helper()
		framework.Eventually(t, fmt.Sprintf("%s of %s is %s", path, resource, want), func(context.Context) error {
			got, err := c.Kubectl("get", resource, "--namespace", namespace, "--output=jsonpath={"+path+"}")
			if err == nil && got != want {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		})
	}
	run("patch", "configmap", "settings", "--type=merge", "--patch", `{"data":{"value":"changed"},"immutable":true}`)
	waitField("configmap/settings", ".data.value", "first")

	if err := hook.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, replacement := range []string{
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"type":"e2e.example.com/other"}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"viewers"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"tenant"}]}`,
	} {
		if out, err := c.KubectlInput(replacement, "replace", "--force", "--namespace", namespace); err != nil {
			t.Fatal(err, out)
		}
	}
	c.StartPopulation(t)
	waitField("secret/s", ".type", "Opaque")
	waitField("rolebinding/viewers", ".roleRef.name", "view")
	waitField("rolebinding/viewers", ".subjects[*].name", "viewers")

	// An immutable object without drift does not keep a change of its manifest away. The tenant's own object stays.
	run("patch", "configmap", "settings", "--type=merge", "--patch", `{"immutable":true}`)
	run("create", "configmap", "mine", "--from-literal=value=mine")
	run("patch", "configmap", "mine", "--type=merge", "--patch", `{"immutable":true}`)
	changePopulation(t, c, "immutable", func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Manifests[0] = repaired(framework.ConfigMapManifest("settings", "second"))
		spec.Manifests = append(spec.Manifests, repaired(framework.ConfigMapManifest("mine", "x")))
	})
	waitValue(t, c, namespace, "settings", "second")
	waitPopulation(t, c, "immutable", v1alpha1.ConditionApplied, metav1.ConditionFalse, "field is immutable")
	waitValue(t, c, namespace, "mine", "mine")

	// Nor does it keep away the one of another name that the manifest has now.
	changePopulation(t, c, "immutable", func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Manifests[0] = repaired(framework.ConfigMapManifest("settings", "third"))
		spec.Manifests[0].Name = "renamed"
	})
	waitValue(t, c, namespace, "settings", "third")
}

// TestPopulationMetadata: a namespace has its labels and annotations when it opens, whatever its creator set. They are repaired, a rollout
// replaces none of other clients, and those that the population does not have any more are removed.
func TestPopulationMetadata(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"patch"}})
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	const selected = "example.com/metadata" // those of other tests can have as many annotations as nsinit allows
	labelled := func(labels map[string]string) string {
		t.Helper()
		labels[selected] = "true"
		namespace, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Name("ns"), Labels: labels}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.LeaveLater(t, namespace.Name)
		return namespace.Name
	}
	waitLabels := func(name, want string) {
		t.Helper()
		framework.Eventually(t, "namespace "+name+" has "+want, func(ctx context.Context) error {
			namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := fmt.Sprintf("%s %s %s", namespace.Labels["level"], namespace.Labels["team"], namespace.Annotations["example.com/name"]); got != want {
				return fmt.Errorf("it has %q", got)
			}
			return nil
		})
	}
	c.Populate(t, "a")
	c.StartPopulation(t)
	existing := labelled(map[string]string{"level": "low"})
	c.WaitReady(t, existing)
	c.PopulateWith(t, "metadata", v1alpha1.NamespacePopulationSpec{Scope: v1alpha1.ScopeAll, Rollout: v1alpha1.RolloutApply,
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "level", Operator: metav1.LabelSelectorOpExists}}},
		NamespaceMetadata: &v1alpha1.PopulationNamespaceMetadata{Labels: map[string]string{"team": "x"}, DriftPolicy: v1alpha1.DriftRepair}})
	c.PopulateWith(t, "metadata-b", v1alpha1.NamespacePopulationSpec{Scope: v1alpha1.ScopeAll, Rollout: v1alpha1.RolloutApply,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{selected: "true"}},
		NamespaceMetadata: &v1alpha1.PopulationNamespaceMetadata{Labels: map[string]string{"level": "high"}, Annotations: map[string]string{"example.com/name": "${namespaceObject.metadata.name}"}, DriftPolicy: v1alpha1.DriftRepair}})
	waitLabels(existing, "low x ")
	waitPopulation(t, c, "metadata-b", v1alpha1.ConditionApplied, metav1.ConditionFalse, `conflict with "`)

	name := labelled(map[string]string{"level": "low", "team": "y"})
	c.WaitReady(t, name)
	waitLabels(name, "high x "+name)
	for _, change := range [][]string{{"label", "namespace", name, "level=none", "--overwrite"}, {"annotate", "namespace", name, "example.com/name-"}} {
		if out, err := c.Kubectl(change...); err != nil {
			t.Fatal(err, out)
		}
		waitLabels(name, "high x "+name)
	}

	// With the policy, users without the verb initialize change only what no population owns.
	applyArtifact(t, c, "policies", "namespace-metadata.yaml")
	labeller := kubernetes.NewForConfigOrDie(c.User(t, "e2e-labeller", framework.Everything())).CoreV1().Namespaces()
	patch := func(metadata string) error {
		_, err := labeller.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":`+metadata+`}`), metav1.PatchOptions{})
		return err
	}
	framework.Eventually(t, "changes are refused", func(context.Context) error {
		return framework.RefusedBy("nsinit-namespace-metadata", patch(`{"labels":{"level":"none","team":null,"other":"x"},"annotations":{"example.com/name":"x"}}`),
			`of namespace "`+name+`": `, "level", "team", "example.com/name", "; change the population instead")
	})
	if err := framework.RefusedBy("nsinit-namespace-metadata", patch(`{"managedFields":[{}]}`), "managedFields"); err != nil {
		t.Error(err)
	}
	const belong = "belong to NamespacePopulations"
	forged := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Name("ns"), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "policy-population.nsinit.dev/x", Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:x":{}}}}`)}}}}
	if _, err := labeller.Create(t.Context(), forged, metav1.CreateOptions{}); framework.RefusedBy("nsinit-namespace-metadata", err, belong) != nil {
		t.Error(framework.RefusedBy("nsinit-namespace-metadata", err, belong))
	}
	if _, err := labeller.Patch(t.Context(), name, types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`","labels":{"mine":"x"}}}`),
		metav1.PatchOptions{FieldManager: "policy-population.nsinit.dev/x"}); framework.RefusedBy("nsinit-namespace-metadata", err, belong) != nil {
		t.Error(framework.RefusedBy("nsinit-namespace-metadata", err, belong))
	}
	if err := patch(`{"labels":{"other":"x"},"annotations":{"other":"x"}}`); err != nil {
		t.Error(err)
	}
	changePopulation(t, c, "metadata-b", func(spec *v1alpha1.NamespacePopulationSpec) { spec.NamespaceMetadata.Annotations = nil })
	waitLabels(name, "high x ")
	if err := c.Nsinit.NsinitV1alpha1().NamespacePopulations().Delete(t.Context(), "metadata", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitLabels(name, "high  ")
	waitLabels(existing, "low  ")
}

// TestPopulationLabels: a manifest that a changed label selects is applied immediately if its drift is repaired.
func TestPopulationLabels(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	c.StartPopulation(t)
	selected := c.Populate(t, "labels", repaired(framework.ConfigMapManifest("followed", `${namespaceObject.metadata.labels["tier"]}`)), framework.ConfigMapManifest("for-new-ones", "x"))
	changePopulation(t, c, selected.Name, func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpExists}}}
	})
	c.Populate(t, "marker", repaired(framework.ConfigMapManifest("marker", `${namespaceObject.metadata.labels[?"round"].orValue("none")}`)))
	created := c.CreateNamespace(t, c.Admin)
	namespace := created.Name
	c.WaitReady(t, namespace)
	waitValue(t, c, namespace, "followed", "gone")
	for _, tier := range []string{"first", "second"} {
		if out, err := c.Kubectl("label", "namespace", namespace, "tier="+tier, "--overwrite"); err != nil {
			t.Fatal(err, out)
		}
		waitValue(t, c, namespace, "followed", tier)
	}
	// A namespace that is not selected any more keeps its objects, and gets none of a population that is newer. The first round has ended when
	// the effect of the second one shows.
	time.Sleep(time.Until(created.CreationTimestamp.Add(2 * time.Second))) // the time of the population, in whole seconds, is later
	c.Populate(t, "newer", repaired(framework.ConfigMapManifest("newer", "x")))
	for _, round := range []string{"first", "second"} {
		if out, err := c.Kubectl("label", "namespace", namespace, "tier-", "round="+round, "--overwrite"); err != nil {
			t.Fatal(err, out)
		}
		waitValue(t, c, namespace, "marker", round)
	}
	for name, want := range map[string]string{"followed": "second", "for-new-ones": "gone", "newer": "gone"} {
		waitValue(t, c, namespace, name, want)
	}
}

// TestPopulationPrune: an object that is removed from a population is deleted from the namespaces, unless the
// population keeps it or it has another owner.
func TestPopulationPrune(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	hook := c.StartPopulation(t)
	orphan := framework.ConfigMapManifest("orphan", "x")
	orphan.PrunePolicy = v1alpha1.PruneOrphan
	renamed := repaired(framework.ConfigMapManifest("renamed", "x"))
	c.Populate(t, "prune", framework.ConfigMapManifest("pruned", "x"), orphan, framework.ConfigMapManifest("replaced", "x"), framework.ConfigMapManifest("moved", "x"), renamed, framework.ConfigMapManifest("last", "x"))
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)

	// A user replaces the object, and the hook does not run while the population is changed.
	if err := hook.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"delete", "configmap", "replaced", "--namespace", namespace},
		{"create", "configmap", "replaced", "--from-literal=value=mine", "--namespace", namespace},
	} {
		if out, err := c.Kubectl(command...); err != nil {
			t.Fatal(err, out)
		}
	}
	other := renamed
	other.Template.Raw = []byte(strings.Replace(string(renamed.Template.Raw), `"renamed"`, `"another-name"`, 1))
	changePopulation(t, c, "prune", func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Manifests = []v1alpha1.PopulationManifest{other, framework.ConfigMapManifest("last", "x")}
	})
	c.Populate(t, "other", repaired(framework.ConfigMapManifest("moved", "x")))
	c.StartPopulation(t)
	for name, want := range map[string]string{"pruned": "gone", "renamed": "gone", "another-name": "x", "last": "x", "orphan": "x", "replaced": "mine", "moved": "x"} {
		waitValue(t, c, namespace, name, want)
	}

	// The population is deleted.
	if out, err := c.Kubectl("delete", "namespacepopulation", "prune"); err != nil {
		t.Fatal(err, out)
	}
	for name, want := range map[string]string{"last": "gone", "another-name": "gone", "orphan": "x", "moved": "x"} {
		waitValue(t, c, namespace, name, want)
	}
	framework.Eventually(t, "the PopulatedNamespace holds what is left", func(ctx context.Context) error {
		inventory, err := c.Nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && (len(inventory.Status.Objects) != 1 || inventory.Status.Objects[0].Name != "moved" || inventory.Status.Objects[0].Population != "other") {
			err = fmt.Errorf("it holds %+v", inventory.Status.Objects)
		}
		return err
	})
}

// TestPreview: preview prints the objects that populations put into a namespace, and stores none.
func TestPreview(t *testing.T) {
	c := framework.Connect(t)
	c.Populate(t, "10-preview", framework.ConfigMapManifest("who", "${creator} of ${creatorGroups[0]}"), framework.ConfigMapManifest("team", `${namespaceObject.metadata.labels["team"]}`))
	c.Populate(t, "20-preview", v1alpha1.PopulationManifest{Name: "secret", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)}})
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)

	stdout, _, code := c.Plugin(t, "preview", namespace)
	if code != 2 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"10-preview   who        ConfigMap/who   created", "10-preview   team                       refused", "20-preview   secret     Secret/s        created", `10-preview/team: spec.manifests[1].template.data.value: Invalid value`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in:\n%s", want, stdout)
		}
	}
	waitValue(t, c, namespace, "who", "gone")
	if out, err := c.Kubectl("--namespace", namespace, "create", "configmap", "who", "--from-literal=value=other"); err != nil {
		t.Fatal(err, out)
	}
	if stdout, _, _ := c.Plugin(t, "preview", namespace); !strings.Contains(stdout, "ConfigMap/who   configured") {
		t.Errorf("a ConfigMap with another value is not configured:\n%s", stdout)
	}
	waitValue(t, c, namespace, "who", "other")
	if _, _, code := c.Plugin(t, "preview", namespace, "--as="+framework.PopulationUser, "--output=json"); code != 2 {
		t.Errorf("exit code %d", code)
	}
	c.RefusedPlugin(t, "exists: --creator", "preview", namespace, "--creator=alice")

	out := c.MustPlugin(t, "preview", "a-new-one", "--creator=alice", "--groups=team-a", "--labels=team=a", "--output=yaml")
	for _, want := range []string{"value: alice of team-a", "value: a\n", "result: rendered", "nsinit.dev/population: 10-preview"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	if out := c.MustPlugin(t, "preview", "a-new-one", "--filename="+filepath.Join(c.Root, "artifacts", "examples", "policy-population.yaml")); !strings.Contains(out, `If kubernetes-admin creates it, it gets:`) ||
		!strings.Contains(out, "RoleBinding/namespace-admin") {
		t.Errorf("printed:\n%s", out)
	}
	file := filepath.Join(t.TempDir(), "unknown.yaml")
	unknown := `{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespacePopulation","metadata":{"name":"unknown"},"spec":{"manifests":[
		{"name":"unknown","template":{"apiVersion":"unknown.example.com/v1","kind":"Nothing","metadata":{"name":"n"}}}]}}`
	if err := os.WriteFile(file, []byte(unknown), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"the cluster does not know the kind":                                                     {"--filename=" + file},
		"grant the initializer the missing permission cluster-wide: create and patch on secrets": {"--as=" + framework.PopulationUser, "--labels=team=a"},
	} {
		if stdout, _, code := c.Plugin(t, append([]string{"preview", "a-new-one"}, args...)...); code != 2 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %q is missing in:\n%s", code, want, stdout)
		}
	}
	c.RefusedPlugin(t, `the path "/nowhere" does not exist`, "preview", "a-new-one", "--filename=/nowhere")
	c.RefusedPlugin(t, "there is no NamespacePopulation in it", "preview", "a-new-one", "--filename="+filepath.Join(c.Root, "artifacts", "examples", "kep.yaml"))
}

// TestPopulationReplicas: one of two replicas acts. When it is killed, the other one continues its work.
func TestPopulationReplicas(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	c.Populate(t, "replicas", repaired(framework.ConfigMapManifest("made", "x")))
	holder := func(ctx context.Context) (string, error) {
		lease, err := c.Core.CoordinationV1().Leases("nsinit-system").Get(ctx, "policy-population", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return "", errors.Join(err, errors.New("the lease has no holder"))
		}
		return *lease.Spec.HolderIdentity, nil
	}
	leader := c.StartPopulation(t, "--leader-elect")
	var first string
	framework.Eventually(t, "one leads", func(ctx context.Context) (err error) {
		first, err = holder(ctx)
		return err
	})
	c.StartPopulation(t, "--leader-elect")
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	if now, err := holder(t.Context()); err != nil || now != first {
		t.Errorf("%q leads instead of %q: %v", now, first, err)
	}
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	second := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, second)
	if now, err := holder(t.Context()); err != nil || now == first {
		t.Errorf("%q still leads: %v", now, err)
	}
	// It also repairs the namespaces of the former leader.
	if err := c.Core.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "made", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitValue(t, c, namespace, "made", "x")
}

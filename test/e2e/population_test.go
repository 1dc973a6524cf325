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

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

const populationInitializer = "policy-population.nsinit.dev"

// startPopulation starts policy-population with the rights that it is delivered with.
func (c *cluster) startPopulation(t *testing.T, args ...string) *os.Process {
	t.Helper()
	return c.run(t, "policy-population", append([]string{"--kubeconfig=" + filepath.Join(c.dir, "policy-population.kubeconfig"), "--v=2"}, args...)...)
}

// populationMay gives policy-population more rights.
func (c *cluster) populationMay(t *testing.T, rules ...rbacv1.PolicyRule) {
	t.Helper()
	const user = "system:serviceaccount:nsinit-system:policy-population"
	c.grant(t, user, kubernetes.NewForConfigOrDie(c.as(user)), rules...)
}

func configMapRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}}
}

// populated makes a NamespacePopulation, and removes it when the test ends.
func (c *cluster) populated(t *testing.T, name string, manifests ...v1alpha1.PopulationManifest) *v1alpha1.NamespacePopulation {
	t.Helper()
	populations := c.nsinit.NsinitV1alpha1().NamespacePopulations()
	population, err := populations.Create(t.Context(), &v1alpha1.NamespacePopulation{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NamespacePopulationSpec{Manifests: manifests},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := populations.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return population
}

// populatedAsInExample registers policy-population and populates namespaces as the example does, until the
// test ends.
func (c *cluster) populatedAsInExample(t *testing.T) {
	t.Helper()
	example := filepath.Join(c.root, "artifacts", "examples", "policy-population.yaml")
	if out, err := c.kubectl("apply", "-f", example); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if out, err := c.kubectl("delete", "-f", example); err != nil {
			t.Error(err, out)
		}
		c.waitInForce(t)
	})
}

// change changes the spec of a population.
func (c *cluster) change(t *testing.T, name string, change func(*v1alpha1.NamespacePopulationSpec)) {
	t.Helper()
	populations := c.nsinit.NsinitV1alpha1().NamespacePopulations()
	eventually(t, "changing population "+name, func(ctx context.Context) error {
		population, err := populations.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&population.Spec)
		_, err = populations.Update(ctx, population, metav1.UpdateOptions{})
		return err
	})
}

// configMapManifest is a manifest of a ConfigMap whose key "value" holds a value.
func configMapManifest(name, value string) v1alpha1.PopulationManifest {
	return v1alpha1.PopulationManifest{Name: name, Template: runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"value":%q}}`, name, value)}}
}

func repaired(m v1alpha1.PopulationManifest) v1alpha1.PopulationManifest {
	m.DriftPolicy = v1alpha1.DriftRepair
	return m
}

// valueOf returns the key "value" of a ConfigMap.
func (c *cluster) valueOf(ctx context.Context, namespace, name string) (string, error) {
	configMap, err := c.core.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return configMap.Data["value"], nil
}

// waitValue waits for the value of a ConfigMap. "gone" waits until there is none.
func (c *cluster) waitValue(t *testing.T, namespace, name, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("configmap %s/%s is %q", namespace, name, want), func(ctx context.Context) error {
		got, err := c.valueOf(ctx, namespace, name)
		if apierrors.IsNotFound(err) {
			got, err = "gone", nil
		}
		if err == nil && got != want {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
}

// TestPopulation: what is in a namespace when it opens, who made it, and what is told of it.
func TestPopulation(t *testing.T) {
	c := connect(t)
	c.populationMay(t, configMapRule())
	c.configure(t, named(populationInitializer)...)
	team := c.user(t, "e2e-alice", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"}})
	c.startPopulation(t)

	// Nobody knows what to put into it.
	waiting := c.createNamespace(t, team).Name
	c.waitCondition(t, waiting, v1alpha1.ConditionInitializing, "there is no NamespacePopulation")

	conditional, skipped := configMapManifest("conditional", "x"), configMapManifest("skipped", "x")
	conditional.When, skipped.When = `creator == "e2e-alice"`, `"system:masters" in creatorGroups`
	c.populated(t, "20-second", configMapManifest("overridden", "second"))
	c.populated(t, "10-first", configMapManifest("who", "${creator}"), configMapManifest("where", "${namespaceObject.metadata.name}"), configMapManifest("overridden", "first"), conditional, skipped)
	c.waitReady(t, waiting)
	namespace := c.createNamespace(t, team)
	c.waitReady(t, namespace.Name)
	for name, want := range map[string]string{"who": "e2e-alice", "where": namespace.Name, "overridden": "second", "conditional": "x", "skipped": "gone"} {
		c.waitValue(t, namespace.Name, name, want)
	}
	for _, object := range []string{"who", "overridden"} {
		configMap, err := c.core.CoreV1().ConfigMaps(namespace.Name).Get(t.Context(), object, metav1.GetOptions{})
		if err != nil || configMap.ManagedFields[0].Manager != populationInitializer || configMap.Labels[v1alpha1.LabelPopulation] == "" {
			t.Errorf("%s: %+v %v", object, configMap, err)
		}
	}

	record, err := c.nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(t.Context(), namespace.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for _, o := range record.Status.Objects {
		entries = append(entries, fmt.Sprintf("%s/%s %s", o.Population, o.Manifest, o.State))
		if o.UID == "" || o.LastAppliedTime == nil {
			t.Errorf("recorded %+v", o)
		}
	}
	if want := []string{"10-first/who Applied", "10-first/where Applied", "10-first/overridden Applied", "10-first/conditional Applied", "20-second/overridden Applied"}; !slices.Equal(entries, want) {
		t.Errorf("recorded %q, want %q", entries, want)
	}
	if record.Spec.NamespaceUID != namespace.UID || !meta.IsStatusConditionTrue(record.Status.Conditions, v1alpha1.ConditionApplied) {
		t.Errorf("the record is %+v", record)
	}
	c.waitPopulation(t, "10-first", v1alpha1.ConditionApplied, metav1.ConditionTrue, "every manifest could be applied")
	if out, err := c.kubectl("get", "nspop,popns"); err != nil || !strings.Contains(out, "5/5") {
		t.Errorf("%v\n%s", err, out)
	}

	// The record goes with the namespace; a new one of the same name gets everything anew.
	if out, err := c.kubectl("delete", "namespace", namespace.Name); err != nil {
		t.Fatal(err, out)
	}
	again, err := kubernetes.NewForConfigOrDie(team).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.waitReady(t, again.Name)
	c.waitValue(t, again.Name, "who", "e2e-alice")
	eventually(t, "the record is the new one's", func(ctx context.Context) error {
		record, err := c.nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, again.Name, metav1.GetOptions{})
		if err == nil && record.Spec.NamespaceUID != again.UID {
			err = errors.New("it is the former one's")
		}
		return err
	})
}

// waitPopulation waits for a condition of a population.
func (c *cluster) waitPopulation(t *testing.T, name, conditionType string, status metav1.ConditionStatus, says string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the condition %s of population %s", conditionType, name), func(ctx context.Context) error {
		population, err := c.nsinit.NsinitV1alpha1().NamespacePopulations().Get(ctx, name, metav1.GetOptions{})
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

// TestPopulationEscalation: policy-population grants nothing that it may not grant; the API server
// refuses, everybody is told, and the rest is applied.
func TestPopulationEscalation(t *testing.T) {
	c := connect(t)
	c.populationMay(t, configMapRule())
	c.configure(t, named(populationInitializer)...)
	c.startPopulation(t)
	c.populated(t, "escalating",
		v1alpha1.PopulationManifest{Name: "root", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"root"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"${creator}"}]}`)}},
		v1alpha1.PopulationManifest{Name: "secret", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)}},
		v1alpha1.PopulationManifest{Name: "unknown", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"nobody.example.com/v1","kind":"Nothing","metadata":{"name":"s"}}`)}},
		v1alpha1.PopulationManifest{Name: "cluster", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"e2e-${namespaceObject.metadata.name}"}}`)}},
		configMapManifest("missing", `${namespaceObject.metadata.labels["cost-centre"]}`),
		configMapManifest("good", "good"))
	// What concerns every namespace is known before there is one.
	c.waitPopulation(t, "escalating", v1alpha1.ConditionReady, metav1.ConditionFalse,
		`manifest secret: cannot apply Secret "s": grant the initializer the missing permission cluster-wide: create and patch on secrets (and 2 more, see kubectl nsinit preview)`)
	namespace := c.createNamespace(t, c.admin).Name
	c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, `escalating/root: cannot apply RoleBinding "root"`)
	c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, "attempting to grant RBAC permissions not currently held")
	c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, "and 4 more, see kubectl get populatednamespace "+namespace)
	c.waitValue(t, namespace, "good", "good")
	if !c.isClosed(t, namespace) {
		t.Error("the namespace is open")
	}
	eventually(t, "the record tells of each", func(ctx context.Context) error {
		record, err := c.nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i, want := range []string{"attempting to grant RBAC permissions", "give the initializer the rights that are missing", "the cluster does not know the kind", "--cluster-scoped-resources",
			"no such key: cost-centre", ""} {
			if i >= len(record.Status.Objects) || !strings.Contains(record.Status.Objects[i].Message, want) || (want == "") != (record.Status.Objects[i].State == v1alpha1.PopulatedObjectApplied) {
				return fmt.Errorf("object %d, want %q: %+v", i, want, record.Status.Objects)
			}
		}
		return nil
	})
	c.waitPopulation(t, "escalating", v1alpha1.ConditionApplied, metav1.ConditionFalse, "manifest root, in 1 namespaces, of which "+namespace)

	// The population is mended, and the namespace opens by itself.
	c.change(t, "escalating", func(spec *v1alpha1.NamespacePopulationSpec) { spec.Manifests = spec.Manifests[5:] })
	c.waitReady(t, namespace)
	c.waitPopulation(t, "escalating", v1alpha1.ConditionApplied, metav1.ConditionTrue, "every manifest could be applied")
	c.waitPopulation(t, "escalating", v1alpha1.ConditionReady, metav1.ConditionTrue, "the initializer can apply every manifest")
}

// TestPopulationClusterScoped: an object outside of namespaces belongs to one namespace, and leaves
// with it. What is somebody else's is left alone.
func TestPopulationClusterScoped(t *testing.T) {
	c := connect(t)
	c.populationMay(t, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}})
	c.configure(t, named(populationInitializer)...)
	c.startPopulation(t, "--cluster-scoped-resources=clusterroles.rbac.authorization.k8s.io")
	role := func(manifest, name string) v1alpha1.PopulationManifest {
		return v1alpha1.PopulationManifest{Name: manifest, Template: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":%q}}`, name)}}
	}
	foreign := uniqueName("e2e-foreign")
	if out, err := c.kubectl("create", "clusterrole", foreign, "--verb=get", "--resource=pods"); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() { _, _ = c.kubectl("delete", "clusterrole", foreign) })
	c.populated(t, "cluster-scoped", role("own", "e2e:${namespaceObject.metadata.name}"), role("foreign", foreign))
	namespace := c.createNamespace(t, c.admin)
	c.waitCondition(t, namespace.Name, v1alpha1.ConditionInitializing, "it exists, and is not of this namespace")
	got, err := c.core.RbacV1().ClusterRoles().Get(t.Context(), foreign, metav1.GetOptions{})
	if err != nil || len(got.Rules) != 1 || len(got.OwnerReferences) != 0 {
		t.Errorf("the foreign role is %+v, %v", got, err)
	}
	c.change(t, "cluster-scoped", func(spec *v1alpha1.NamespacePopulationSpec) { spec.Manifests = spec.Manifests[:1] })
	c.waitReady(t, namespace.Name)
	own := "e2e:" + namespace.Name
	if got, err = c.core.RbacV1().ClusterRoles().Get(t.Context(), own, metav1.GetOptions{}); err != nil || got.OwnerReferences[0].UID != namespace.UID {
		t.Errorf("the role is %+v, %v", got, err)
	}
	if out, err := c.kubectl("delete", "namespace", namespace.Name); err != nil {
		t.Fatal(err, out)
	}
	eventually(t, "the role and the record leave with the namespace", func(ctx context.Context) error {
		_, roleErr := c.core.RbacV1().ClusterRoles().Get(ctx, own, metav1.GetOptions{})
		_, recordErr := c.nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(roleErr) || !apierrors.IsNotFound(recordErr) {
			return fmt.Errorf("the role: %w, the record: %w", roleErr, recordErr)
		}
		return nil
	})
}

// TestPopulationDrift: what asks for it is repaired, and follows its manifest.
func TestPopulationDrift(t *testing.T) {
	c := connect(t)
	c.populationMay(t, configMapRule())
	c.configure(t, named(populationInitializer)...)
	c.startPopulation(t)
	c.populated(t, "drift", repaired(configMapManifest("repaired", "as-it-should-be")), configMapManifest("free", "first"))
	namespace := c.createNamespace(t, c.admin).Name
	c.waitReady(t, namespace)
	configMaps := c.core.CoreV1().ConfigMaps(namespace)
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
	c.waitValue(t, namespace, "repaired", "as-it-should-be")
	patch("repaired", `{"data":{"value":"changed"},"metadata":{"labels":{"nsinit.dev/population":null}}}`)
	c.waitValue(t, namespace, "repaired", "as-it-should-be")
	remove("repaired")
	c.waitValue(t, namespace, "repaired", "as-it-should-be")

	// The population changes: what is to follow does, a new manifest, too, and the rest is the tenant's.
	c.change(t, "drift", func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Manifests[0] = repaired(configMapManifest("repaired", "better"))
		spec.Manifests[1] = configMapManifest("free", "second")
		spec.Manifests = append(spec.Manifests, repaired(configMapManifest("added", "added")), configMapManifest("for-new-ones", "x"))
	})
	c.waitValue(t, namespace, "repaired", "better")
	c.waitValue(t, namespace, "added", "added")
	for name, want := range map[string]string{"free": "mine", "for-new-ones": "gone"} {
		c.waitValue(t, namespace, name, want)
	}
	remove("free")
	remove("added")
	c.waitValue(t, namespace, "added", "added")
	c.waitValue(t, namespace, "free", "gone")
}

// TestPopulationPrune: what is taken out of a population leaves the namespaces, unless it is to
// stay, or is somebody else's by now.
func TestPopulationPrune(t *testing.T) {
	c := connect(t)
	c.populationMay(t, configMapRule())
	c.configure(t, named(populationInitializer)...)
	hook := c.startPopulation(t)
	orphan := configMapManifest("orphan", "x")
	orphan.PrunePolicy = v1alpha1.PruneOrphan
	renamed := repaired(configMapManifest("renamed", "x"))
	c.populated(t, "prune", configMapManifest("pruned", "x"), orphan, configMapManifest("replaced", "x"), configMapManifest("moved", "x"), renamed, configMapManifest("last", "x"))
	namespace := c.createNamespace(t, c.admin).Name
	c.waitReady(t, namespace)

	// Somebody makes their own in its place, and the hook is away while the population shrinks.
	if err := hook.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"delete", "configmap", "replaced", "--namespace", namespace},
		{"create", "configmap", "replaced", "--from-literal=value=mine", "--namespace", namespace},
	} {
		if out, err := c.kubectl(command...); err != nil {
			t.Fatal(err, out)
		}
	}
	other := renamed
	other.Template.Raw = []byte(strings.Replace(string(renamed.Template.Raw), `"renamed"`, `"another-name"`, 1))
	c.change(t, "prune", func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Manifests = []v1alpha1.PopulationManifest{other, configMapManifest("last", "x")}
	})
	c.populated(t, "other", repaired(configMapManifest("moved", "x")))
	c.startPopulation(t)
	for name, want := range map[string]string{"pruned": "gone", "renamed": "gone", "another-name": "x", "last": "x", "orphan": "x", "replaced": "mine", "moved": "x"} {
		c.waitValue(t, namespace, name, want)
	}

	// The whole population goes.
	if out, err := c.kubectl("delete", "namespacepopulation", "prune"); err != nil {
		t.Fatal(err, out)
	}
	for name, want := range map[string]string{"last": "gone", "another-name": "gone", "orphan": "x", "moved": "x"} {
		c.waitValue(t, namespace, name, want)
	}
	eventually(t, "the record holds what is left", func(ctx context.Context) error {
		record, err := c.nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && (len(record.Status.Objects) != 1 || record.Status.Objects[0].Name != "moved" || record.Status.Objects[0].Population != "other") {
			err = fmt.Errorf("it holds %+v", record.Status.Objects)
		}
		return err
	})
}

// TestPreview: what populations put into a namespace is shown, and nothing is stored.
func TestPreview(t *testing.T) {
	c := connect(t)
	c.populated(t, "10-preview", configMapManifest("who", "${creator} of ${creatorGroups[0]}"), configMapManifest("team", `${namespaceObject.metadata.labels["team"]}`))
	c.populated(t, "20-preview", v1alpha1.PopulationManifest{Name: "secret", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)}})
	namespace := c.createNamespace(t, c.admin).Name
	c.waitReady(t, namespace)

	stdout, _, code := c.plugin(t, "preview", namespace)
	if code != 2 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"10-preview   who        ConfigMap/who   created", "10-preview   team                       refused", "20-preview   secret     Secret/s        created", `10-preview/team: spec.manifests[1].template.data.value: Invalid value`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in:\n%s", want, stdout)
		}
	}
	c.waitValue(t, namespace, "who", "gone")
	if _, _, code := c.plugin(t, "preview", namespace, "--as=system:serviceaccount:nsinit-system:policy-population", "--output=json"); code != 2 {
		t.Errorf("exit code %d", code)
	}
	c.refusedPlugin(t, "exists: --creator", "preview", namespace, "--creator=alice")

	out := c.mustPlugin(t, "preview", "a-new-one", "--creator=alice", "--group=team-a", "--labels=team=a", "--output=yaml")
	for _, want := range []string{"value: alice of team-a", "value: a\n", "result: rendered", "nsinit.dev/population: 10-preview"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	if out := c.mustPlugin(t, "preview", "a-new-one", "--filename="+filepath.Join(c.root, "artifacts", "examples", "policy-population.yaml")); !strings.Contains(out, `If kubernetes-admin creates it, it gets:`) ||
		!strings.Contains(out, "RoleBinding/namespace-admin") {
		t.Errorf("printed:\n%s", out)
	}
	file := filepath.Join(t.TempDir(), "unknown.yaml")
	unknown := `{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespacePopulation","metadata":{"name":"unknown"},"spec":{"manifests":[
		{"name":"unknown","template":{"apiVersion":"nobody.example.com/v1","kind":"Nothing","metadata":{"name":"n"}}}]}}`
	if err := os.WriteFile(file, []byte(unknown), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"the cluster does not know the kind": {"--filename=" + file},
		"grant the initializer the missing permission cluster-wide: create and patch on secrets": {"--as=system:serviceaccount:nsinit-system:policy-population", "--labels=team=a"},
	} {
		if stdout, _, code := c.plugin(t, append([]string{"preview", "a-new-one"}, args...)...); code != 2 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %q is missing in:\n%s", code, want, stdout)
		}
	}
	c.refusedPlugin(t, "no such file", "preview", "a-new-one", "--filename=/nowhere")
	c.refusedPlugin(t, "there is no NamespacePopulation in it", "preview", "a-new-one", "--filename="+filepath.Join(c.root, "artifacts", "examples", "kep.yaml"))
}

// TestPopulationReplicas: of two replicas one acts, and the other goes on where it was killed.
func TestPopulationReplicas(t *testing.T) {
	c := connect(t)
	c.populationMay(t, configMapRule())
	c.configure(t, named(populationInitializer)...)
	c.populated(t, "replicas", repaired(configMapManifest("made", "x")))
	t.Cleanup(func() {
		_ = c.core.CoordinationV1().Leases("nsinit-system").Delete(context.Background(), "policy-population", metav1.DeleteOptions{})
	})
	holder := func(ctx context.Context) (string, error) {
		lease, err := c.core.CoordinationV1().Leases("nsinit-system").Get(ctx, "policy-population", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return "", errors.Join(err, errors.New("nobody holds the lease"))
		}
		return *lease.Spec.HolderIdentity, nil
	}
	leader := c.startPopulation(t, "--leader-elect")
	var first string
	eventually(t, "one leads", func(ctx context.Context) (err error) {
		first, err = holder(ctx)
		return err
	})
	c.startPopulation(t, "--leader-elect")
	namespace := c.createNamespace(t, c.admin).Name
	c.waitReady(t, namespace)
	if now, err := holder(t.Context()); err != nil || now != first {
		t.Errorf("%q leads instead of %q: %v", now, first, err)
	}
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	second := c.createNamespace(t, c.admin).Name
	c.waitReady(t, second)
	if now, err := holder(t.Context()); err != nil || now == first {
		t.Errorf("%q still leads: %v", now, err)
	}
	// It looks after the namespaces of the former one, too.
	if err := c.core.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "made", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitValue(t, namespace, "made", "x")
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// existingNamespaces creates open namespaces with the label rollout of the test, and returns their names in order.
func existingNamespaces(t *testing.T, c *framework.Cluster, count int) (names []string) {
	t.Helper()
	for range count {
		names = append(names, c.CreateNamespace(t, c.Admin).Name)
	}
	slices.Sort(names)
	for _, name := range names {
		c.WaitReady(t, name)
		c.LabelNamespace(t, name, "rollout="+t.Name())
	}
	return names
}

// populateAll creates a population of the namespaces with the label rollout of the test, also of existing ones.
func populateAll(t *testing.T, c *framework.Cluster, name string, rollout v1alpha1.PopulationRolloutType, manifests ...v1alpha1.PopulationManifest) {
	t.Helper()
	population := c.PopulateWith(t, name, v1alpha1.NamespacePopulationSpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rollout": t.Name()}}, Scope: v1alpha1.ScopeAll, Rollout: rollout, Manifests: manifests,
	})
	if population.Spec.Scope != v1alpha1.ScopeAll {
		t.Fatalf("the spec is %+v", population.Spec)
	}
}

// TestRollout: a population with scope All reports what it would do in namespaces that exist, and then does it. It changes
// nothing of other clients.
func TestRollout(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	names := existingNamespaces(t, c, 4)
	free, taken, refusing, unknown := names[0], names[1], names[2], names[3]
	if out, err := c.Kubectl("create", "configmap", "made", "--from-literal=value=mine", "--namespace", taken); err != nil {
		t.Fatal(err, out)
	}
	if out, err := c.Kubectl("annotate", "namespace", unknown, v1alpha1.AnnotationCreatedBy+"-"); err != nil {
		t.Fatal(err, out)
	}
	// It is exempt, so no count has it.
	c.LabelNamespace(t, metav1.NamespaceDefault, "rollout="+t.Name())
	t.Cleanup(func() { c.LabelNamespace(t, metav1.NamespaceDefault, "rollout-") })
	secret := framework.SecretManifest()
	secret.When = fmt.Sprintf("namespaceObject.metadata.name == %q", refusing)
	creator := framework.ConfigMapManifest("creator", "${creator}")
	creator.When = fmt.Sprintf("namespaceObject.metadata.name == %q", unknown)
	populateAll(t, c, "all", "", repaired(framework.ConfigMapManifest("made", "x")), framework.ConfigMapManifest("once", "x"), secret, creator)
	hook := c.StartPopulation(t)

	reported := c.WaitRollout(t, "all", v1alpha1.ReasonRolloutReported, "0/4 7 0 0 1 2")
	problems := framework.JSON(t, reported.Status.Rollout.Problems)
	for _, want := range []string{taken, `kubectl-create`, refusing, "grant the initializer the missing permission", unknown, "the creator of the namespace is unknown"} {
		if !strings.Contains(problems, want) {
			t.Errorf("%q is missing in %s", want, problems)
		}
	}
	out, _, code := c.Plugin(t, "preview", "--all")
	if code != 2 || !strings.Contains(strings.Join(strings.Fields(out), " "), reported.Name+" Reported 4 4 0 7 0 0 0 1 2") || !strings.Contains(out, "the creator of the namespace is unknown") {
		t.Errorf("exit code %d, printed:\n%s", code, out)
	}
	t.Logf("the report:\n%s\n%s", meta.FindStatusCondition(reported.Status.Conditions, v1alpha1.ConditionRolledOut).Message, out)
	for _, name := range names {
		if value, err := valueOf(t.Context(), c, name, "once"); err == nil {
			t.Errorf("the report created %q", value)
		}
	}

	// Tenants write all the time.
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	writes := framework.Repeat(ctx, &work, func(ctx context.Context) error { return framework.WriteConfigMap(ctx, c.Core, free) })
	changePopulation(t, c, "all", func(spec *v1alpha1.NamespacePopulationSpec) { spec.Rollout = v1alpha1.RolloutApply })
	c.WaitRollout(t, "all", v1alpha1.ReasonRolloutIncomplete, "1/4 0 0 7 1 2")
	for _, name := range names {
		waitValue(t, c, name, "once", "x")
	}
	waitValue(t, c, taken, "made", "mine")
	cancel()
	work.Wait()
	writes.None(t, "writes of tenants", 1)

	// Another process continues, when the problems are solved.
	if err := hook.Kill(); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl("delete", "configmap", "made", "--namespace", taken); err != nil {
		t.Fatal(err, out)
	}
	c.StartPopulation(t)
	changePopulation(t, c, "all", func(spec *v1alpha1.NamespacePopulationSpec) { spec.Manifests = spec.Manifests[:2] })
	c.WaitRollout(t, "all", v1alpha1.ReasonRolloutComplete, "4/4 0 0 8 0 0")
	if out, err := c.Kubectl("get", "namespacepopulation", "all"); err != nil || !strings.Contains(out, "Complete 4/4") {
		t.Errorf("printed %s, %v", out, err)
	}

	// What was created is repaired, and follows the labels.
	if out, err := c.Kubectl("delete", "configmap", "made", "once", "--namespace", taken); err != nil {
		t.Fatal(err, out)
	}
	waitValue(t, c, taken, "made", "x")
	later := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, later)
	waitValue(t, c, later, "once", "gone")
	c.LabelNamespace(t, later, "rollout="+t.Name())
	waitValue(t, c, later, "once", "x")
	c.WaitRollout(t, "all", v1alpha1.ReasonRolloutComplete, "5/5 0 0 10 0 0")
	waitValue(t, c, taken, "once", "gone") // it is the tenant's

	// Without the scope, the objects stay.
	changePopulation(t, c, "all", func(spec *v1alpha1.NamespacePopulationSpec) { spec.Scope, spec.Rollout = v1alpha1.ScopeNew, "" })
	framework.Eventually(t, "the status has no rollout", func(ctx context.Context) error {
		population, err := c.Nsinit.NsinitV1alpha1().NamespacePopulations().Get(ctx, "all", metav1.GetOptions{})
		if err == nil && (population.Status.Rollout != nil || meta.FindStatusCondition(population.Status.Conditions, v1alpha1.ConditionRolledOut) != nil) {
			err = fmt.Errorf("it is %+v", population.Status)
		}
		return err
	})
	waitValue(t, c, free, "made", "x")
}

// TestRolloutPauses: when several namespaces refuse objects, a rollout waits and says why. Another replica waits, too. When
// the missing permission is granted, the rollout continues.
func TestRolloutPauses(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	names := existingNamespaces(t, c, 6)
	populateAll(t, c, "pausing", v1alpha1.RolloutApply, framework.ConfigMapManifest("made", "x"), framework.SecretManifest())
	reached := func(want int) {
		t.Helper()
		framework.Eventually(t, fmt.Sprintf("the rollout has reached %d namespaces", want), func(ctx context.Context) error {
			inventories, err := c.Nsinit.NsinitV1alpha1().PopulatedNamespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			got := 0
			for _, inventory := range inventories.Items {
				if slices.ContainsFunc(inventory.Status.Objects, func(o v1alpha1.PopulatedObject) bool { return o.Population == "pausing" }) {
					got++
				}
			}
			if got != want {
				err = fmt.Errorf("it has reached %d", got)
			}
			return err
		})
	}
	leader := c.StartPopulation(t, "--leader-elect")
	c.WaitRollout(t, "pausing", v1alpha1.ReasonRolloutPaused, "0/6 0 0 3 0 3")
	if out, err := c.Kubectl("get", "namespacepopulation", "pausing", "--output=wide"); err != nil || !strings.Contains(out, "Paused 0/6") {
		t.Errorf("printed %s, %v", out, err)
	} else {
		t.Logf("while it waits:\n%s", out)
	}
	reached(3)
	waitValue(t, c, names[2], "made", "x")
	waitValue(t, c, names[3], "made", "gone")
	framework.Eventually(t, "an event says that it waits", func(ctx context.Context) error {
		events, err := c.Core.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=NamespacePopulation,reason=RolloutPaused"})
		if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == "pausing" && strings.Contains(e.Message, "3 namespaces refused objects, such as manifest secret in namespace "+names[0])
		}) {
			err = fmt.Errorf("the events are %+v", events.Items)
		}
		return err
	})

	// The next leader counts one more namespace, and gives objects to none.
	c.StartPopulation(t, "--leader-elect")
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	c.DeleteLease(t, "policy-population")
	existingNamespaces(t, c, 1)
	c.WaitRollout(t, "pausing", v1alpha1.ReasonRolloutPaused, "0/7 0 0 3 0 3")
	reached(3)
	waitValue(t, c, names[3], "made", "gone")

	c.GrantPopulation(t, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "create", "patch"}})
	c.WaitRollout(t, "pausing", v1alpha1.ReasonRolloutComplete, "7/7 0 0 14 0 0")
	reached(7)
}

// TestRolloutChanges: a report shows what a rollout would change and delete, and changes nothing. The rollout brings it to open
// namespaces, and drift is repaired in the new state. A frozen namespace gets it when it is unfrozen.
func TestRolloutChanges(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	names := existingNamespaces(t, c, 3)
	populateAll(t, c, "changing", v1alpha1.RolloutApply, repaired(framework.ConfigMapManifest("made", "x")), framework.ConfigMapManifest("old", "x"))
	c.StartPopulation(t)
	c.WaitRollout(t, "changing", v1alpha1.ReasonRolloutComplete, "3/3 0 0 6 0 0")

	changePopulation(t, c, "changing", func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Rollout, spec.Manifests = v1alpha1.RolloutReport, []v1alpha1.PopulationManifest{repaired(framework.ConfigMapManifest("made", "new"))}
	})
	if reported := c.WaitRollout(t, "changing", v1alpha1.ReasonRolloutReported, "0/3 0 3 0 0 0"); reported.Status.Rollout.ToDelete != 3 {
		t.Errorf("to delete: %d", reported.Status.Rollout.ToDelete)
	}
	if out, _, code := c.Plugin(t, "preview", "--all"); code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), "Reported 3 3 0 0 3 3 0 0 0") {
		t.Errorf("exit code %d, printed:\n%s", code, out)
	}
	for _, name := range names {
		waitValue(t, c, name, "made", "x")
		waitValue(t, c, name, "old", "x")
	}

	frozen, open := names[0], names[1:]
	c.MustPlugin(t, "freeze", frozen, "--reason=evidence")
	changePopulation(t, c, "changing", func(spec *v1alpha1.NamespacePopulationSpec) { spec.Rollout = v1alpha1.RolloutApply })
	c.WaitRollout(t, "changing", v1alpha1.ReasonRolloutComplete, "2/2 0 0 2 0 0")
	waitValue(t, c, frozen, "made", "x")
	waitValue(t, c, frozen, "old", "x")
	c.MustPlugin(t, "unfreeze", frozen)
	c.WaitRollout(t, "changing", v1alpha1.ReasonRolloutComplete, "3/3 0 0 3 0 0")
	for _, name := range names {
		waitValue(t, c, name, "made", "new")
		waitValue(t, c, name, "old", "gone")
	}
	if out, err := c.Kubectl("delete", "configmap", "made", "--namespace", open[0]); err != nil {
		t.Fatal(err, out)
	}
	waitValue(t, c, open[0], "made", "new")
}

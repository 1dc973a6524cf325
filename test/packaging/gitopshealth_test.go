//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package packaging

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// seen is what the tools see of an object. Kstatus is what Flux and Helm see, and Flux what Flux sees with the health checks
// that nsinit ships.
type seen struct{ Kstatus, Flux, ArgoCD string }

// progress is an object of nsinit that is not ready yet. terminating is one that is being deleted. The second group is for
// NamespacePopulations, for which nsinit ships health checks for Flux.
func progress() seen    { return seen{"InProgress", "", "Progressing"} }
func current() seen     { return seen{"Current", "", "Healthy"} }
func stalledKind() seen { return seen{"Failed", "", "Degraded"} }
func terminating() seen { return seen{"Terminating", "", "Progressing"} }

func unready() seen { return seen{"InProgress", "InProgress", "Progressing"} }
func applied() seen { return seen{"Current", "Current", "Healthy"} }
func rolling() seen { return seen{"Current", "InProgress", "Progressing"} }
func refused() seen { return seen{"Current", "Failed", "Degraded"} }

// see returns what the tools see of an object. Each condition of an object of nsinit must have observedGeneration.
func (g *gitops) see(ctx context.Context, object *unstructured.Unstructured) (seen, error) {
	if object.GroupVersionKind().Group == v1alpha1.GroupName {
		if err := haveGenerations(object.Object); err != nil {
			return seen{}, err
		}
	}
	data, err := object.MarshalJSON()
	if err != nil {
		return seen{}, err
	}
	out, err := g.run(ctx, string(data), "status", g.argocd, g.kustomization)
	if err != nil {
		return seen{}, err
	}
	var result seen
	return result, json.Unmarshal(out, &result)
}

// haveGenerations checks the conditions of an object, and those inside of its lists.
func haveGenerations(value any) error {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			if err := haveGenerations(item); err != nil {
				return err
			}
		}
	case map[string]any:
		conditions, _ := v["conditions"].([]any)
		for _, condition := range conditions {
			if generation, _ := condition.(map[string]any)["observedGeneration"].(int64); generation == 0 {
				return fmt.Errorf("a condition without observedGeneration: %v", condition)
			}
		}
		for _, item := range v {
			if err := haveGenerations(item); err != nil {
				return err
			}
		}
	}
	return nil
}

// check checks what the tools see of the object that a request returned.
func (g *gitops) check(t *testing.T, step string, gvk schema.GroupVersionKind, object any, want seen) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	if got, err := g.see(t.Context(), u); err != nil || got != want {
		t.Errorf("%s: %s %s is %+v, want %+v (%v)\n%s", step, gvk.Kind, u.GetName(), got, want, err, framework.JSON(t, content["status"]))
	}
}

// becomes waits until the tools see an object as it should be.
func (g *gitops) becomes(t *testing.T, step, resource, name string, want seen) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%s: %s %s is %+v", step, resource, name, want), func(ctx context.Context) error {
		out, err := g.Kubectl("get", resource, name, "--output=json")
		if err != nil {
			return err
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(out)); err != nil {
			return err
		}
		got, err := g.see(ctx, object)
		if err == nil && got != want {
			err = fmt.Errorf("it is %+v: %v", got, object.Object["status"])
		}
		return err
	})
}

func namespaceKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Namespace") }

func kindOf(kind string) schema.GroupVersionKind {
	return v1alpha1.SchemeGroupVersion.WithKind(kind)
}

const (
	lifecycles     = "namespacelifecycles"
	configurations = "namespaceinitializerconfigurations"
	populations    = "namespacepopulations"
	inventories    = "populatednamespaces"
)

// fail lets the initialization of a namespace fail, and returns the NamespaceLifecycle.
func (g *gitops) fail(t *testing.T, namespace string) (failed *v1alpha1.NamespaceLifecycle) {
	t.Helper()
	framework.Eventually(t, "setting the result", func(ctx context.Context) (err error) {
		lifecycle := g.WaitCurrent(t, namespace, gitopsInitializer)
		lifecycle.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "the team has no quota left"}
		failed, err = g.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Initialize(ctx, namespace, lifecycle, metav1.UpdateOptions{})
		return err
	})
	return failed
}

// TestGitOpsHealth: at each step of their lives, Flux, Helm and Argo CD see whether a namespace and each kind of nsinit are
// ready.
func TestGitOpsHealth(t *testing.T) {
	g := newGitOps(t)
	g.patchArgoCD(t)
	t.Run("namespace", g.testNamespaceHealth)
	t.Run("configuration", g.testConfigurationHealth)
	t.Run("population", g.testPopulationHealth)
	t.Run("rollout", g.testRolloutHealth)
}

// patchArgoCD adds the health checks to the ConfigMap of Argo CD with the documented command. They are read from there.
func (g *gitops) patchArgoCD(t *testing.T) {
	t.Helper()
	namespace := g.CreateNamespace(t, g.Admin).Name
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "argocd-cm"}, Data: map[string]string{"url": "https://argocd.example.com"}}
	if _, err := g.Core.CoreV1().ConfigMaps(namespace).Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, err := g.Shell(t, g.Documented(t, framework.GitOpsGuide, "Argo CD")[0], map[string]string{"--namespace argocd": "--namespace " + namespace}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	patched, err := g.Kubectl("get", "configmap", "argocd-cm", "--namespace="+namespace, "--output=yaml")
	if err != nil {
		t.Fatal(err)
	}
	g.argocd = filepath.Join(t.TempDir(), "argocd-cm.yaml")
	if err := os.WriteFile(g.argocd, []byte(patched), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (g *gitops) testNamespaceHealth(t *testing.T) {
	g.Configure(t, v1alpha1.RegisteredInitializer{Name: gitopsInitializer, Finalizer: true})
	create := func() string {
		namespace := g.CreateNamespace(t, g.Admin)
		// Without the health checks of nsinit, kstatus takes a namespace without conditions for ready.
		g.check(t, "closed", namespaceKind(), namespace, seen{"Current", "InProgress", "Progressing"})
		g.WaitCurrent(t, namespace.Name, gitopsInitializer)
		return namespace.Name
	}
	name := create()
	g.becomes(t, "initializing", "namespaces", name, seen{"InProgress", "InProgress", "Progressing"})
	g.becomes(t, "initializing", lifecycles, name, progress())
	g.becomes(t, "stalled", "namespaces", name, seen{"Failed", "Failed", "Degraded"})
	g.becomes(t, "stalled", lifecycles, name, stalledKind())
	g.RemoveFirst(t, name)
	g.becomes(t, "ready", "namespaces", name, seen{"Current", "Current", "Healthy"})
	g.becomes(t, "ready", lifecycles, name, current())
	g.MustPlugin(t, "freeze", name, "--reason=incident 4711")
	g.becomes(t, "frozen", "namespaces", name, seen{"Current", "Current", "Suspended"})
	g.MustPlugin(t, "unfreeze", name)
	g.DeleteNamespace(t, name)
	g.becomes(t, "terminating", "namespaces", name, seen{"Terminating", "InProgress", "Progressing"})
	g.becomes(t, "terminating", lifecycles, name, terminating())
	g.ReleaseParticipant(t, name, gitopsInitializer)
	g.WaitNoNamespace(t, name)

	name = create()
	g.check(t, "failed", kindOf("NamespaceLifecycle"), g.fail(t, name), stalledKind())
	g.becomes(t, "failed", "namespaces", name, seen{"Terminating", "Failed", "Progressing"})
	g.becomes(t, "failed, terminating", lifecycles, name, terminating())
	g.ReleaseParticipant(t, name, gitopsInitializer)
	g.WaitNoNamespace(t, name)
}

func (g *gitops) testConfigurationHealth(t *testing.T) {
	first, second := g.Configure(t, framework.Initializers(gitopsInitializer)...), g.Configure(t, framework.Initializers(gitopsInitializer)...)
	g.check(t, "new", kindOf("NamespaceInitializerConfiguration"), first, progress())
	g.becomes(t, "ready", configurations, first.Name, current())
	g.becomes(t, "the name is taken", configurations, second.Name, stalledKind())
	namespace := g.CreateNamespace(t, g.Admin).Name
	g.WaitCurrent(t, namespace, gitopsInitializer)
	if err := g.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.becomes(t, "terminating", configurations, first.Name, terminating())
	g.RemoveFirst(t, namespace)
	framework.Eventually(t, "the configuration is deleted", func(ctx context.Context) error {
		_, err := g.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, first.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %w", err)
		}
		return nil
	})
	g.becomes(t, "the name is free", configurations, second.Name, current())
}

func (g *gitops) testPopulationHealth(t *testing.T) {
	g.GrantPopulation(t, framework.ConfigMapRule())
	g.Configure(t, framework.Initializers(framework.PopulationInitializer)...)
	population := g.Populate(t, "healthy", framework.ConfigMapManifest("inside", "x"))
	g.check(t, "new", kindOf("NamespacePopulation"), population, unready())
	g.StartPopulation(t)
	g.becomes(t, "ready", populations, population.Name, applied())
	namespace := g.CreateNamespace(t, g.Admin).Name
	g.WaitReady(t, namespace)
	g.becomes(t, "ready", inventories, namespace, current())

	g.manifest(t, population.Name, "add", "/spec/manifests/-", invalidManifest())
	g.becomes(t, "the change is applicable", populations, population.Name, applied())
	namespace = g.CreateNamespace(t, g.Admin).Name
	g.becomes(t, "an object is refused", populations, population.Name, refused())
	g.manifest(t, population.Name, "replace", "/spec/manifests/1", framework.ConfigMapManifest("valid", "x"))
	g.WaitReady(t, namespace)
	g.becomes(t, "the object is applied", populations, population.Name, applied())

	changed := g.manifest(t, population.Name, "replace", "/spec/manifests/1", framework.SecretManifest())
	g.check(t, "changed", kindOf("NamespacePopulation"), changed, unready())
	framework.Eventually(t, "the status describes the change", func(ctx context.Context) (err error) {
		changed, err = g.Nsinit.NsinitV1alpha1().NamespacePopulations().Get(ctx, population.Name, metav1.GetOptions{})
		if err == nil && changed.Status.ObservedGeneration != changed.Generation {
			err = fmt.Errorf("it describes generation %d of %d", changed.Status.ObservedGeneration, changed.Generation)
		}
		return err
	})
	g.becomes(t, "policy-population has no permission", populations, population.Name, unready())
}

// invalidManifest returns a manifest that policy-population may apply, and kube-apiserver refuses.
func invalidManifest() v1alpha1.PopulationManifest {
	return v1alpha1.PopulationManifest{Name: "invalid", Template: runtime.RawExtension{Raw: []byte(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"invalid"},"data":{"not a key":"x"}}`)}}
}

// manifest adds or replaces a manifest of a population, and returns the population.
func (g *gitops) manifest(t *testing.T, population, operation, path string, manifest v1alpha1.PopulationManifest) *v1alpha1.NamespacePopulation {
	t.Helper()
	patch := framework.JSON(t, []map[string]any{{"op": operation, "path": path, "value": manifest}})
	changed, err := g.Nsinit.NsinitV1alpha1().NamespacePopulations().Patch(t.Context(), population, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// testRolloutHealth: a rollout that pauses is a failure, and one that leaves objects of other clients alone is none.
func (g *gitops) testRolloutHealth(t *testing.T) {
	g.GrantPopulation(t, framework.ConfigMapRule())
	var namespace string
	for range 4 {
		namespace = g.CreateNamespace(t, g.Admin).Name
		g.WaitReady(t, namespace)
		g.LabelNamespace(t, namespace, "rollout=health")
	}
	if out, err := g.Kubectl("create", "configmap", "taken", "--from-literal=value=mine", "--namespace", namespace); err != nil {
		t.Fatal(err, out)
	}
	const name = "rollout"
	population := g.PopulateWith(t, name, v1alpha1.NamespacePopulationSpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rollout": "health"}}, Scope: v1alpha1.ScopeAll, Rollout: v1alpha1.RolloutApply,
		Manifests: []v1alpha1.PopulationManifest{invalidManifest()},
	})
	g.check(t, "new", kindOf("NamespacePopulation"), population, unready())
	g.StartPopulation(t)
	g.WaitRollout(t, name, v1alpha1.ReasonRolloutPaused, "0/4 0 0 0 0 3")
	g.becomes(t, "paused", populations, name, refused())
	paused, err := g.Nsinit.NsinitV1alpha1().NamespacePopulations().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for reason, want := range map[string]seen{
		v1alpha1.ReasonRolloutProgressing: rolling(), v1alpha1.ReasonRolloutExemptionsUnknown: refused(), v1alpha1.ReasonRolloutIncomplete: refused(),
	} {
		rollout := paused.DeepCopy() // as if no object had been refused while namespaces were closed
		meta.RemoveStatusCondition(&rollout.Status.Conditions, v1alpha1.ConditionApplied)
		meta.FindStatusCondition(rollout.Status.Conditions, v1alpha1.ConditionRolledOut).Reason = reason
		g.check(t, reason, kindOf("NamespacePopulation"), rollout, want)
		rollout.Generation++
		rollout.Status.ObservedGeneration++
		g.check(t, reason+" of the former generation", kindOf("NamespacePopulation"), rollout, rolling())
	}

	g.manifest(t, name, "replace", "/spec/manifests/0", framework.ConfigMapManifest("taken", "x"))
	g.WaitRollout(t, name, v1alpha1.ReasonRolloutIncomplete, "3/4 0 0 3 1 0")
	g.becomes(t, "in conflict", populations, name, applied())
}

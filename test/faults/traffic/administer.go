/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/faults/history"
)

// freeze freezes namespaces for a while until crashes end. Then it unfreezes all of them.
func (t *Traffic) freeze(ctx, crashing context.Context) {
	core, err := kubernetes.NewForConfig(t.user(t.options.Servers[0], "warden", history.RoleAdmin, wardenUser))
	if err != nil {
		return
	}
	mark := func(name string, change map[string]any) {
		if data, err := json.Marshal(map[string]any{"metadata": change}); err == nil {
			_, _ = core.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
		}
	}
	for t.sleep(ctx, 200*time.Millisecond, time.Second) {
		list, err := core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		list.Items = slices.DeleteFunc(list.Items, func(namespace corev1.Namespace) bool { return !strings.HasPrefix(namespace.Name, t.options.Prefix) })
		frozen := false
		for _, namespace := range list.Items {
			if _, is := namespace.Labels[v1alpha1.LabelFrozen]; !is {
				continue
			}
			frozen = true
			if crashing.Err() != nil || t.chance(0.05) {
				mark(namespace.Name, map[string]any{"labels": map[string]any{v1alpha1.LabelFrozen: nil}, "annotations": map[string]any{v1alpha1.AnnotationUnfrozenBy: wardenUser}})
			}
		}
		if t.chance(0.8) {
			list.Items = slices.DeleteFunc(list.Items, func(namespace corev1.Namespace) bool { return !ready(&namespace) })
		}
		switch {
		case crashing.Err() == nil && len(list.Items) > 0 && t.chance(0.4):
			mark(list.Items[t.pick(len(list.Items))].Name, map[string]any{"labels": map[string]any{v1alpha1.LabelFrozen: "true"}, "annotations": map[string]any{
				v1alpha1.AnnotationFrozenBy: wardenUser, v1alpha1.AnnotationFrozenReason: "on purpose", v1alpha1.AnnotationUnfrozenBy: nil}})
		case crashing.Err() != nil && !frozen:
			return
		}
	}
}

const (
	populationName = NamePrefix + "base"
	// sees matches the namespaces that the viewer may get: those of even slots.
	sees = `^f-[0-9]+-[0-9]*[02468](-|$)`
)

// population returns the population: a quota, and a RoleBinding in some namespaces.
func population(configMaps int) *v1alpha1.NamespacePopulation {
	template := func(object map[string]any) runtime.RawExtension {
		data, _ := json.Marshal(object) //nolint:errchkjson // strings and numbers
		return runtime.RawExtension{Raw: data}
	}
	const group = "rbac.authorization.k8s.io"
	return &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: populationName}, Spec: v1alpha1.NamespacePopulationSpec{
		Scope: v1alpha1.ScopeAll, Rollout: v1alpha1.RolloutApply,
		Manifests: []v1alpha1.PopulationManifest{
			{Name: "quota", DriftPolicy: v1alpha1.DriftRepair, ReadyWhen: `"count/configmaps" in object.status.used`, Template: template(map[string]any{
				"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": history.QuotaName}, "spec": map[string]any{"hard": map[string]any{"count/configmaps": fmt.Sprint(configMaps)}}})},
			{Name: "viewer", When: `namespaceObject.metadata.name.matches("` + sees + `")`, Template: template(map[string]any{
				"apiVersion": group + "/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": history.ViewName},
				"roleRef":  map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": viewRole},
				"subjects": []any{map[string]any{"apiGroup": group, "kind": "User", "name": viewerUser}}})},
		},
	}}
}

// rollOut changes the population at times.
func (t *Traffic) rollOut(ctx context.Context) {
	admin, err := t.admin("rollouts")
	if err != nil {
		return
	}
	for t.sleep(ctx, 3*time.Second, 10*time.Second) {
		populations := admin.NsinitV1alpha1().NamespacePopulations()
		if stored, err := populations.Get(ctx, populationName, metav1.GetOptions{}); err == nil {
			stored.Spec = population(10000 + t.pick(1000)).Spec
			_, _ = populations.Update(ctx, stored, metav1.UpdateOptions{})
		}
	}
}

// rolledOut reports whether every namespace has the last version of the population. A status that a snapshot restored can be that of a
// former version.
func rolledOut(ctx context.Context, core kubernetes.Interface, nsinit versioned.Interface) (bool, error) {
	stored, err := nsinit.NsinitV1alpha1().NamespacePopulations().Get(ctx, populationName, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	quotas, err := core.CoreV1().ResourceQuotas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + history.QuotaName})
	if err != nil {
		return false, err
	}
	wanted := history.QuotaOf(stored)
	outdated := func(quota corev1.ResourceQuota) bool { return !equality.Semantic.DeepEqual(quota.Spec.Hard, wanted) }
	condition := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionRolledOut)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == stored.Generation &&
		!slices.ContainsFunc(quotas.Items, outdated), nil
}

// view lists and watches the namespaces that the viewer may get, and records each one that the viewer sees.
func (t *Traffic) view(ctx context.Context) {
	viewer, err := versioned.NewForConfig(t.user(t.options.Servers[0], "viewer", history.RoleTenant, viewerUser))
	if err != nil {
		return
	}
	namespaces := viewer.NsinitV1alpha1().AccessibleNamespaces()
	see := func(namespace *v1alpha1.AccessibleNamespace) {
		operation := t.options.Recorder.Begin("viewer", history.RoleTenant)
		operation.Verb, operation.Resource, operation.Name, operation.UID = history.VerbSee, "accessiblenamespaces", namespace.Name, namespace.UID
		operation.Outcome = history.Acknowledged
		t.options.Recorder.End(operation)
	}
	for t.sleep(ctx, 100*time.Millisecond, time.Second) {
		list, err := namespaces.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range list.Items {
			see(&list.Items[i])
		}
		watching, cancel := context.WithTimeout(ctx, t.between(time.Second, 20*time.Second))
		if events, err := namespaces.Watch(watching, metav1.ListOptions{ResourceVersion: list.ResourceVersion}); err == nil {
			for event := range events.ResultChan() {
				if namespace, ok := event.Object.(*v1alpha1.AccessibleNamespace); ok {
					see(namespace)
				}
			}
		}
		cancel()
	}
}

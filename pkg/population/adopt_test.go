/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// liveAs is the ConfigMap m of a population, which a manager applied.
func liveAs(version, population, manager string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m", "namespace": "shop", "uid": "u", "resourceVersion": version}}}
	if population != "" {
		u.SetLabels(map[string]string{v1alpha1.LabelPopulation: population})
	}
	now := metav1.Now()
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Time: &now}, {Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate}})
	return u
}

// adopter returns an Applier in a cluster with a ConfigMap, which answers an apply with stored and an error.
func adopter(t *testing.T, live, stored *unstructured.Unstructured, getErr, applyErr error) (a *Applier, applied *[]clienttesting.PatchActionImpl) {
	t.Helper()
	a, applied = applier(), &[]clienttesting.PatchActionImpl{}
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		switch {
		case getErr != nil:
			return true, nil, getErr
		case live == nil:
			return true, nil, apierrors.NewNotFound(corev1.Resource("configmaps"), "m")
		}
		return true, live, nil
	})
	client.PrependReactor("patch", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		*applied = append(*applied, action.(clienttesting.PatchActionImpl))
		if applyErr != nil {
			return true, nil, applyErr
		}
		return true, stored, nil
	})
	a.Client, a.FieldManager = client, "hook"
	return a, applied
}

// TestAdopt: a namespace that exists gets an object that no other client has, and nothing of another client changes.
func TestAdopt(t *testing.T) {
	fieldConflict := apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: ".data.a", Message: "conflict with \"kubectl\""}}, "Apply failed with 1 conflict: conflict with \"kubectl\": .data.a")
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "m", errors.New("no rights"))
	for name, test := range map[string]struct {
		live, stored     *unstructured.Unstructured
		getErr, applyErr error
		want             Outcome
		says             string
		applies          bool
	}{
		"no object":                     {nil, liveAs("1", "p", "hook"), nil, nil, Created, "", true},
		"its own":                       {liveAs("1", "p", "hook"), liveAs("1", "p", "hook"), nil, nil, Unchanged, "", true},
		"its own, changed":              {liveAs("1", "p", "hook"), liveAs("2", "p", "hook"), nil, nil, Configured, "", true},
		"of an earlier population":      {liveAs("1", "a", "hook"), liveAs("2", "p", "hook"), nil, nil, Configured, "", true},
		"of a later population":         {liveAs("1", "q", "hook"), nil, nil, nil, Unchanged, "", false},
		"of another client":             {liveAs("1", "", "helm"), nil, nil, nil, Conflict, `it exists, and "helm", "kubectl" created or changed it: change the name in the manifest, or delete the object`, false},
		"of another client, with label": {liveAs("1", "p", "helm"), nil, nil, nil, Conflict, `"helm"`, false},
		"it lost its label":             {liveAs("1", "", "hook"), nil, nil, nil, Conflict, "it exists", false},
		"a field of another client":     {liveAs("1", "p", "hook"), nil, nil, fieldConflict, Conflict, `conflict with "kubectl"`, true},
		"changed meanwhile":             {liveAs("1", "p", "hook"), nil, nil, apierrors.NewConflict(corev1.Resource("configmaps"), "m", errors.New("modified")), Refused, "modified", true},
		"not readable":                  {nil, nil, forbidden, nil, Refused, `cannot apply ConfigMap "m": grant the initializer the missing permission: `, false},
		"not permitted":                 {nil, nil, nil, forbidden, Refused, `cannot apply ConfigMap "m": grant the initializer the missing permission: `, true},
		"rejected":                      {nil, nil, nil, errors.New("denied by a policy"), Refused, "denied by a policy", true},
	} {
		t.Run(name, func(t *testing.T) {
			a, applied := adopter(t, test.live, test.stored, test.getErr, test.applyErr)
			content := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m", "labels": map[string]any{v1alpha1.LabelPopulation: "p"}}}}
			_, outcome, err := a.Adopt(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "n"}}, content)
			if outcome != test.want || (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s, %v", outcome, err)
			}
			if len(*applied) > 0 != test.applies {
				t.Fatalf("applied %v", *applied)
			}
			for _, action := range *applied {
				if options := action.PatchOptions; options.Force != nil && *options.Force || options.FieldManager != "hook" || len(options.DryRun) > 0 {
					t.Errorf("applied with %+v", options)
				}
				// An object that another client creates instead is not taken over.
				if hasVersion := strings.Contains(string(action.Patch), `"resourceVersion":"1"`); hasVersion != (test.live != nil) {
					t.Errorf("applied %s", action.Patch)
				}
			}
			if content.GetNamespace() != "" || content.GetResourceVersion() != "" {
				t.Errorf("the caller's content has changed: %v", content)
			}
		})
	}
}

// TestReport: a report stores nothing, and compares nothing that is in the inventory.
func TestReport(t *testing.T) {
	a, applied := adopter(t, nil, liveAs("1", "p", "hook"), nil, nil)
	a.DryRun = true
	objectAs := func(manifest, name string) Object {
		return Object{Key: Key{"p", manifest}, Content: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}}
	}
	inventory := []v1alpha1.PopulatedObject{
		{Population: "p", Manifest: "known", APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "u"},
		{Population: "p", Manifest: "failed", APIVersion: "v1", Kind: "ConfigMap", Name: "y"},
		{Population: "q", Manifest: "other", APIVersion: "v1", Kind: "ConfigMap", Name: "z", UID: "u"},
		{Population: "p", Manifest: "unrendered", APIVersion: "v1", Kind: "ConfigMap", Name: "w", UID: "u"},
	}
	var got []string
	for _, r := range a.Report(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, []Object{objectAs("known", "x"), objectAs("known", "renamed"), objectAs("failed", "y"), objectAs("other", "z"),
		{Key: Key{"p", "broken"}, Err: errors.New("it is broken\n")}, {Key: Key{"p", "unrendered"}, Err: errors.New("it is broken")}}, inventory) {
		got = append(got, fmt.Sprintf("%s %s %s", r.Manifest, r.Outcome, r.Message))
	}
	want := "known unchanged ,known created ,failed created ,other created ,broken refused it is broken,unrendered unchanged "
	if text := strings.Join(got, ","); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	for _, action := range *applied {
		if len(action.PatchOptions.DryRun) != 1 {
			t.Errorf("applied with %+v", action.PatchOptions)
		}
	}
}

// TestIsOpen: other namespaces get no objects after their creation.
func TestIsOpen(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		namespace metav1.ObjectMeta
		want      bool
	}{
		"open":          {metav1.ObjectMeta{Name: "shop"}, true},
		"closed":        {metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}, false},
		"frozen":        {metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelFrozen: "true"}}, false},
		"being deleted": {metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &now}, false},
		"of Kubernetes": {metav1.ObjectMeta{Name: "kube-system"}, false},
	} {
		if got := IsOpen(&test.namespace); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// liveAs is the ConfigMap m of a population, which a manager applied, and others changed.
func liveAs(version, population, manager string, others ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m", "namespace": "shop", "uid": "u", "resourceVersion": version}}}
	if population != "" {
		u.SetLabels(map[string]string{v1alpha1.LabelPopulation: population})
	}
	now := metav1.Now()
	managers := []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Time: &now}, {Manager: "controller", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status"}}
	for _, other := range others {
		managers = append(managers, metav1.ManagedFieldsEntry{Manager: other, Operation: metav1.ManagedFieldsOperationUpdate})
	}
	u.SetManagedFields(managers)
	return u
}

// entriesOf is an inventory with the ConfigMap m of a population.
func entriesOf(population string, uid types.UID) []v1alpha1.PopulatedObject {
	return []v1alpha1.PopulatedObject{{Population: population, Manifest: "m", APIVersion: "v1", Kind: "ConfigMap", Name: "m", UID: uid}}
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
		if len(*applied) > 1 { // what was applied first is removed
			released := stored.DeepCopy()
			released.SetManagedFields(slices.DeleteFunc(released.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == "hook" }))
			return true, released, nil
		}
		return true, stored, nil
	})
	a.Client, a.FieldManager = client, "hook"
	return a, applied
}

// TestAdopt: a namespace that exists gets an object that no other client has, and nothing of another client changes.
func TestAdopt(t *testing.T) {
	fieldConflict := apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: ".data.a", Message: "conflict with \"kubectl\""}}, "Apply failed with 1 conflict: conflict with \"kubectl\": .data.a")
	deleted := liveAs("1", "p", "hook")
	deleted.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	foreign := liveAs("1", "p", "helm")
	foreign.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "m", errors.New(`User "hook" cannot get resource "configmaps" in API group "" in the namespace "shop"`))
	escalation := apierrors.NewForbidden(corev1.Resource("configmaps"), "m", errors.New(`user "hook" (groups=["g"]) is attempting to grant RBAC permissions not currently held`))
	quota := apierrors.NewForbidden(corev1.Resource("configmaps"), "m", errors.New("exceeded quota: q"))
	for name, test := range map[string]struct {
		live, stored     *unstructured.Unstructured
		getErr, applyErr error
		want             Outcome
		says             string
		applies          bool
		known            []v1alpha1.PopulatedObject
		temporary        bool
	}{
		"no object":                     {stored: liveAs("1", "p", "hook"), want: Created, applies: true},
		"its own":                       {live: liveAs("1", "p", "hook"), stored: liveAs("1", "p", "hook"), want: Unchanged, applies: true},
		"its own, changed":              {live: liveAs("1", "p", "hook"), stored: liveAs("2", "p", "hook"), want: Configured, applies: true},
		"of an earlier population":      {live: liveAs("1", "a", "hook"), stored: liveAs("2", "p", "hook"), want: Configured, applies: true},
		"of a later population":         {live: liveAs("1", "q", "hook"), want: Unchanged, known: entriesOf("q", "u")},
		"which never applied it":        {live: liveAs("1", "q", "hook"), stored: liveAs("2", "p", "hook"), want: Configured, applies: true},
		"which applied another object":  {live: liveAs("1", "q", "hook"), stored: liveAs("2", "p", "hook"), want: Configured, applies: true, known: entriesOf("q", "former")},
		"which was not applied yet":     {live: liveAs("1", "q", "hook"), stored: liveAs("2", "p", "hook"), want: Configured, applies: true, known: entriesOf("q", "")},
		"of another population again":   {live: liveAs("1", "q", "hook"), stored: liveAs("2", "p", "hook"), want: Configured, applies: true, known: entriesOf("r", "u")},
		"of another client, deleted":    {live: foreign, want: Conflict, says: `"helm"`},
		"created meanwhile":             {stored: liveAs("1", "p", "hook", "kubectl"), want: Conflict, says: `it exists, and "kubectl" created or changed it`, applies: true},
		"being deleted":                 {live: deleted, want: Refused, says: "it is being deleted"},
		"of another client":             {live: liveAs("1", "", "helm", "kubectl"), want: Conflict, says: `it exists, and "helm", "kubectl" created or changed it: change the name in the manifest, or delete the object`},
		"of another client, with label": {live: liveAs("1", "p", "helm"), want: Conflict, says: `"helm"`},
		"it lost its label":             {live: liveAs("1", "", "hook"), want: Conflict, says: "it exists"},
		"a field of another client":     {live: liveAs("1", "p", "hook"), applyErr: fieldConflict, want: Conflict, says: `conflict with "kubectl"`, applies: true},
		"changed each time":             {live: liveAs("1", "p", "hook"), applyErr: apierrors.NewConflict(corev1.Resource("configmaps"), "m", errors.New("modified")), want: Refused, says: "modified", applies: true, temporary: true},
		"too many requests":             {live: liveAs("1", "p", "hook"), applyErr: apierrors.NewTooManyRequests("slow down", 1), want: Refused, says: "slow down", applies: true, temporary: true},
		"not readable now":              {getErr: apierrors.NewServiceUnavailable("no etcd"), want: Refused, says: "no etcd", temporary: true},
		"a timeout":                     {getErr: apierrors.NewTimeoutError("too slow", 1), want: Refused, says: "too slow", temporary: true},
		"a timeout of the server":       {getErr: apierrors.NewServerTimeout(corev1.Resource("configmaps"), "get", 1), want: Refused, says: "could not be completed", temporary: true},
		"an internal error":             {getErr: apierrors.NewInternalError(errors.New("etcd")), want: Refused, says: "etcd", temporary: true},
		"no connection":                 {getErr: &url.Error{Op: "Get", URL: "x", Err: errors.New("refused")}, want: Refused, says: "refused", temporary: true},
		"a webhook fails":               {applyErr: apierrors.NewInternalError(errors.New("failed calling webhook \"x\"")), want: Refused, says: "webhook", applies: true},
		"not readable":                  {getErr: forbidden, want: Refused, says: `cannot apply ConfigMap "m": grant the initializer the missing permission: `},
		"not permitted":                 {applyErr: forbidden, want: Refused, says: `cannot apply ConfigMap "m": grant the initializer the missing permission: `, applies: true},
		"would grant more":              {applyErr: escalation, want: Refused, says: `cannot apply ConfigMap "m": grant the initializer the missing permission: `, applies: true},
		"a full quota":                  {applyErr: quota, want: Refused, says: `cannot apply ConfigMap "m": kube-apiserver's admission rejects it: configmaps "m" is forbidden: exceeded quota: q`, applies: true},
		"rejected":                      {applyErr: errors.New("denied by a policy"), want: Refused, says: "denied by a policy", applies: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, applied := adopter(t, test.live, test.stored, test.getErr, test.applyErr)
			content := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m", "labels": map[string]any{v1alpha1.LabelPopulation: "p"}}}}
			_, outcome, err := a.Adopt(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "n"}}, content, test.known)
			if got := IsTemporary(err); got != test.temporary {
				t.Errorf("temporary: %t: %v", got, err)
			}
			if outcome != test.want || (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s, %v", outcome, err)
			}
			if len(*applied) > 0 != test.applies {
				t.Fatalf("applied %v", *applied)
			}
			if applied := *applied; (len(applied) == 2) != (name == "created meanwhile") && !test.temporary || len(applied) == 2 && strings.Contains(string(applied[1].Patch), "labels") {
				t.Errorf("applied %v", applied)
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

// TestAdoptRetries: an object that changes after it was read is read again.
func TestAdoptRetries(t *testing.T) {
	a, _ := adopter(t, liveAs("1", "p", "hook"), liveAs("2", "p", "hook"), nil, nil)
	failures := 2
	a.Client.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, apierrors.NewConflict(corev1.Resource("configmaps"), "m", errors.New("modified"))
	})
	content := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m"}}}
	if _, outcome, err := a.Adopt(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, content, nil); outcome != Configured || err != nil {
		t.Errorf("%s, %v", outcome, err)
	}
}

// TestReportOfOwn: a dry run returns the resource version that is stored, so a report compares the content. It returns
// an error that is temporary.
func TestReportOfOwn(t *testing.T) {
	changed := liveAs("1", "p", "hook")
	changed.Object["data"] = map[string]any{"a": "b"}
	applied := liveAs("1", "p", "hook")
	applied.SetManagedFields(nil)
	for name, test := range map[string]struct {
		stored *unstructured.Unstructured
		err    error
		want   Outcome
	}{
		"the same": {applied, nil, Unchanged},
		"changed":  {changed, nil, Configured},
		"an error": {nil, apierrors.NewServiceUnavailable("no etcd"), Refused},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := adopter(t, liveAs("1", "p", "hook"), test.stored, nil, test.err)
			a.DryRun = true
			results, err := a.Report(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, RollOut, "p", nil, []Object{wantedAs("m", "m")}, nil)
			if len(results) != 1 || results[0].Outcome != test.want || (err != nil) != (test.err != nil) {
				t.Errorf("%+v, %v", results, err)
			}
		})
	}
}

// TestReport: a report stores nothing, and compares nothing that is current.
func TestReport(t *testing.T) {
	stored := liveAs("1", "p", "hook")
	a, applied := adopter(t, nil, stored, nil, nil)
	a.DryRun = true
	objectAs := func(manifest, name, hash string) Object { return wantedAs(manifest, name, hashed(hash)) }
	populations := []*Population{populationOf("p", v1alpha1.ScopeAll, "known", "failed", "unrendered"), populationOf("q", "", "other")}
	inventory := []v1alpha1.PopulatedObject{
		{Population: "p", Manifest: "known", APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "u", ContentHash: "h"},
		{Population: "p", Manifest: "failed", APIVersion: "v1", Kind: "ConfigMap", Name: "y"},
		{Population: "q", Manifest: "other", APIVersion: "v1", Kind: "ConfigMap", Name: "z", UID: "u"},
		{Population: "p", Manifest: "unrendered", APIVersion: "v1", Kind: "ConfigMap", Name: "w", UID: "u"},
	}
	check := func(want string, objects ...Object) {
		t.Helper()
		var got []string
		results, err := a.Report(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, RollOut, "p", populations, objects, inventory)
		if err != nil {
			t.Error(err)
		}
		for _, r := range results {
			got = append(got, fmt.Sprintf("%s %s %s", r.Manifest, r.Outcome, r.Message))
		}
		if text := strings.Join(got, ","); text != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
	check("known unchanged ", objectAs("known", "x", ""))
	check("known unchanged ", objectAs("known", "x", "h"))
	if len(*applied) > 0 {
		t.Errorf("applied %v", *applied)
	}
	check("known created ", objectAs("known", "renamed", ""))
	check("failed created ,other created ,broken refused it is broken,unrendered unchanged ",
		objectAs("failed", "y", ""), objectAs("other", "z", ""),
		Object{Key: Key{"p", "broken"}, Err: errors.New("it is broken\n")}, Object{Key: Key{"p", "unrendered"}, Err: errors.New("it is broken")})
	for _, action := range *applied {
		if len(action.PatchOptions.DryRun) != 1 || action.PatchOptions.Force != nil && *action.PatchOptions.Force {
			t.Errorf("applied with %+v", action.PatchOptions)
		}
	}

	// What was applied is changed with force.
	a, applied = adopter(t, liveAs("1", "p", "hook", "kubectl"), stored, nil, nil)
	a.DryRun = true
	check("known unchanged ", objectAs("known", "x", "changed"))
	stored.Object["data"] = map[string]any{"a": "b"}
	check("known configured ", objectAs("known", "x", "changed"))
	for _, action := range *applied {
		if len(action.PatchOptions.DryRun) != 1 || !*action.PatchOptions.Force {
			t.Errorf("applied with %+v", action.PatchOptions)
		}
	}
}

// TestDeletions: a rollout deletes the objects of removed manifests, and those that their manifest does not follow any more.
func TestDeletions(t *testing.T) {
	entry := func(manifest, name string, change ...func(*v1alpha1.PopulatedObject)) v1alpha1.PopulatedObject {
		o := v1alpha1.PopulatedObject{Population: "p", Manifest: manifest, APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "u", PrunePolicy: v1alpha1.PruneDelete, State: v1alpha1.PopulatedObjectApplied}
		for _, c := range change {
			c(&o)
		}
		return o
	}
	object := func(population, manifest, name, hash string) Object {
		return wantedAs(manifest, name, hashed(hash), func(o *Object) { o.Population = population })
	}
	ofQ := func(o *v1alpha1.PopulatedObject) { o.Population = "q" }
	for name, test := range map[string]struct {
		objects   []Object
		inventory []v1alpha1.PopulatedObject
		want      string
	}{
		"a removed manifest":               {nil, []v1alpha1.PopulatedObject{entry("old", "x")}, "old x deleted"},
		"one that was about to be applied": {nil, []v1alpha1.PopulatedObject{entry("old", "x", func(o *v1alpha1.PopulatedObject) { o.UID = "" })}, "old x deleted"},
		"one that another client has":      {nil, []v1alpha1.PopulatedObject{entry("old", "x", func(o *v1alpha1.PopulatedObject) { o.UID, o.State = "", v1alpha1.PopulatedObjectConflict })}, ""},
		"one that is to stay":              {nil, []v1alpha1.PopulatedObject{entry("old", "x", func(o *v1alpha1.PopulatedObject) { o.PrunePolicy = v1alpha1.PruneOrphan })}, ""},
		"of a manifest without an object":  {nil, []v1alpha1.PopulatedObject{{Population: "p", Manifest: "old", PrunePolicy: v1alpha1.PruneDelete}}, ""},
		"of another population":            {nil, []v1alpha1.PopulatedObject{entry("old", "x", ofQ)}, ""},
		"a manifest that is not selected":  {nil, []v1alpha1.PopulatedObject{entry("m", "x")}, ""},
		"the object of a manifest":         {[]Object{object("p", "m", "x", "h")}, []v1alpha1.PopulatedObject{entry("m", "x")}, ""},
		"its former object":                {[]Object{object("p", "m", "x", "h")}, []v1alpha1.PopulatedObject{entry("m", "y")}, "m y deleted"},
		"which is the tenants'":            {[]Object{object("p", "m", "x", "")}, []v1alpha1.PopulatedObject{entry("m", "y")}, ""},
		"another manifest has it":          {nil, []v1alpha1.PopulatedObject{entry("old", "x"), entry("m", "x")}, ""},
		"another population has it":        {nil, []v1alpha1.PopulatedObject{entry("old", "x"), entry("m", "x", ofQ)}, ""},
		"two removed manifests had it":     {nil, []v1alpha1.PopulatedObject{entry("old", "x"), entry("older", "x")}, "old x deleted,older x deleted"},
		"another manifest is to get it":    {[]Object{object("q", "m", "x", "")}, []v1alpha1.PopulatedObject{entry("old", "x")}, "old x unchanged"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, task := range Plan(RollOut, "p", []*Population{populationOf("p", v1alpha1.ScopeAll, "m"), populationOf("q", "", "m")}, test.objects, test.inventory) {
				if task.Obsolete {
					got = append(got, fmt.Sprintf("%s %s %s", task.Entry.Manifest, task.Entry.Name, map[Action]string{Keep: "unchanged", Prune: "deleted"}[task.Action]))
				}
			}
			if text := strings.Join(got, ","); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
}

// TestAwait: between two objects, a namespace can be frozen, deleted, or created again.
func TestAwait(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*unstructured.Unstructured)
		gone   bool
		want   error
	}{
		"it is open": {change: func(*unstructured.Unstructured) {}},
		"frozen":     {change: func(n *unstructured.Unstructured) { n.SetLabels(map[string]string{v1alpha1.LabelFrozen: "true"}) }, want: ErrChanged},
		"another":    {change: func(n *unstructured.Unstructured) { n.SetUID("another") }, want: ErrChanged},
		"gone":       {gone: true, want: ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
			client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				if test.gone {
					return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
				}
				n := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop", "uid": "u"}}}
				test.change(n)
				return true, n, nil
			})
			a := &Applier{Client: client, Pace: flowcontrol.NewFakeAlwaysRateLimiter()}
			err := a.Await(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u"}})
			if !errors.Is(err, test.want) || IsTemporary(err) != (test.want != nil) {
				t.Error(err)
			}
		})
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

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const guard = "nsinit-guard"

// change is a change of a namespace's labels and annotations. A nil value
// removes a key.
type change struct {
	labels, annotations map[string]*string
}

func label(key string, value *string) change { return change{labels: map[string]*string{key: value}} }

func annotation(key string, value *string) change {
	return change{annotations: map[string]*string{key: value}}
}

// makeTo makes the change to an object.
func (c change) makeTo(namespace *corev1.Namespace) {
	for to, values := range map[*map[string]string]map[string]*string{&namespace.Labels: c.labels, &namespace.Annotations: c.annotations} {
		for key, value := range values {
			if value == nil {
				delete(*to, key)
				continue
			}
			if *to == nil {
				*to = map[string]string{}
			}
			(*to)[key] = *value
		}
	}
}

// mergePatch returns the change as a merge patch, which is a strategic one, too.
func (c change) mergePatch(string) any {
	metadata := map[string]any{}
	if c.labels != nil {
		metadata["labels"] = c.labels
	}
	if c.annotations != nil {
		metadata["annotations"] = c.annotations
	}
	return map[string]any{"metadata": metadata}
}

// jsonPatch returns the change as a JSON patch.
func (c change) jsonPatch(string) any {
	var operations []any
	for field, values := range map[string]map[string]*string{"labels": c.labels, "annotations": c.annotations} {
		for key, value := range values {
			path := "/metadata/" + field + "/" + strings.ReplaceAll(key, "/", "~1")
			if value == nil {
				operations = append(operations, map[string]any{"op": "remove", "path": path})
			} else {
				operations = append(operations, map[string]any{"op": "add", "path": path, "value": *value})
			}
		}
	}
	return operations
}

// apply returns the change for server-side apply, which cannot remove fields of other managers.
func (c change) apply(name string) any {
	for _, values := range []map[string]*string{c.labels, c.annotations} {
		for _, value := range values {
			if value == nil {
				return nil
			}
		}
	}
	configuration, _ := c.mergePatch(name).(map[string]any)
	metadata, _ := configuration["metadata"].(map[string]any)
	metadata["name"] = name
	configuration["apiVersion"], configuration["kind"] = "v1", "Namespace"
	return configuration
}

// way is a way to write a namespace. It returns false if it cannot make a change.
type way func(ctx context.Context, client typedcorev1.NamespaceInterface, name string, c change, dryRun []string) (bool, error)

// put reads, changes and writes back, through one of the client's functions.
func put(write func(context.Context, typedcorev1.NamespaceInterface, *corev1.Namespace, metav1.UpdateOptions) (*corev1.Namespace, error)) way {
	return func(ctx context.Context, client typedcorev1.NamespaceInterface, name string, c change, dryRun []string) (bool, error) {
		return true, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			namespace, err := client.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			c.makeTo(namespace)
			_, err = write(ctx, client, namespace, metav1.UpdateOptions{DryRun: dryRun})
			return err
		})
	}
}

func patch(kind types.PatchType, body func(change, string) any, subresources ...string) way {
	return func(ctx context.Context, client typedcorev1.NamespaceInterface, name string, c change, dryRun []string) (bool, error) {
		content := body(c, name)
		if content == nil {
			return false, nil
		}
		data, err := json.Marshal(content)
		if err != nil {
			return true, err
		}
		options := metav1.PatchOptions{DryRun: dryRun}
		if kind == types.ApplyPatchType {
			force := true
			options.FieldManager, options.Force = "e2e", &force
		}
		_, err = client.Patch(ctx, name, kind, data, options, subresources...)
		return true, err
	}
}

// ways returns every way in which labels and annotations of a namespace can be written.
func ways() map[string]way {
	all := map[string]way{
		"PUT namespaces": put(func(ctx context.Context, client typedcorev1.NamespaceInterface, n *corev1.Namespace, o metav1.UpdateOptions) (*corev1.Namespace, error) {
			return client.Update(ctx, n, o)
		}),
		"PUT namespaces/status": put(func(ctx context.Context, client typedcorev1.NamespaceInterface, n *corev1.Namespace, o metav1.UpdateOptions) (*corev1.Namespace, error) {
			return client.UpdateStatus(ctx, n, o)
		}),
		"PUT namespaces/finalize": put(func(ctx context.Context, client typedcorev1.NamespaceInterface, n *corev1.Namespace, o metav1.UpdateOptions) (*corev1.Namespace, error) {
			return client.Finalize(ctx, n, o)
		}),
	}
	for subresource, path := range map[string][]string{"namespaces": nil, "namespaces/status": {"status"}} {
		all["merge patch "+subresource] = patch(types.MergePatchType, change.mergePatch, path...)
		all["strategic patch "+subresource] = patch(types.StrategicMergePatchType, change.mergePatch, path...)
		all["JSON patch "+subresource] = patch(types.JSONPatchType, change.jsonPatch, path...)
		all["server-side apply "+subresource] = patch(types.ApplyPatchType, change.apply, path...)
	}
	return all
}

// TestGuard: a user who may write namespaces, namespaces/status and namespaces/finalize cannot change the label and
// the annotations of the stamp.
func TestGuard(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	writer := kubernetes.NewForConfigOrDie(c.User(t, "e2e-writer", framework.Everything()))
	namespace := c.CreateHeld(t, c.As("e2e-writer"))
	empty, other, forged := "", "false", "other-user"
	changes := map[string]change{
		"label removed":            label(v1alpha1.LabelInitializing, nil),
		"label emptied":            label(v1alpha1.LabelInitializing, &empty),
		"label with another value": label(v1alpha1.LabelInitializing, &other),
		"creator removed":          annotation(v1alpha1.AnnotationCreatedBy, nil),
		"creator forged":           annotation(v1alpha1.AnnotationCreatedBy, &forged),
		"groups removed":           annotation(v1alpha1.AnnotationCreatedByGroups, nil),
		"groups forged":            annotation(v1alpha1.AnnotationCreatedByGroups, &forged),
		"another user named":       annotation(v1alpha1.AnnotationOnBehalfOf, &forged),
	}
	stamped := stampOf(namespace)
	dryRun := []string{metav1.DryRunAll}
	for way, write := range ways() {
		t.Run(way, func(t *testing.T) {
			ctx := t.Context()
			for name, change := range changes {
				made, err := write(ctx, writer.CoreV1().Namespaces(), namespace.Name, change, nil)
				if !made {
					continue
				}
				if err := framework.RefusedBy(guard, err, fmt.Sprintf("namespace %q", namespace.Name), "verb open"); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if _, err := write(ctx, writer.CoreV1().Namespaces(), namespace.Name, change, dryRun); framework.RefusedBy(guard, err) != nil {
					t.Errorf("%s, dry run: %v", name, framework.RefusedBy(guard, err))
				}
				// An administrator holds every verb. An apply is refused all the same. This is a dry run.
				_, err = write(ctx, c.Core.CoreV1().Namespaces(), namespace.Name, change, dryRun)
				if applies := strings.HasPrefix(way, "server-side apply"); applies && framework.RefusedBy(guard, err, "applied") != nil || !applies && err != nil {
					t.Errorf("%s, by a holder of the verb open: %v", name, err)
				}
			}
			// Other labels and annotations can be changed in each of these ways.
			value := strings.NewReplacer(" ", "-", "/", "-").Replace(way)
			if _, err := write(ctx, writer.CoreV1().Namespaces(), namespace.Name, label("e2e", &value), nil); err != nil {
				t.Errorf("a label of the user's own: %v", err)
			}
			live, err := c.Core.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(stamped, stampOf(live)); diff != "" {
				t.Errorf("what the stamp wrote has changed (-before +after):\n%s", diff)
			}
			if live.Labels["e2e"] != value {
				t.Errorf("the user's own label is %q, want %q", live.Labels["e2e"], value)
			}
		})
	}
}

// TestGuardAPI: no CustomResourceDefinition can serve the API of nsinit.
func TestGuardAPI(t *testing.T) {
	c := framework.Share(t)
	for group, admitted := range map[string]bool{"nsinit.dev": false, "nsinit.example.com": true} {
		_, err := c.KubectlInput(definition(group, "NamespaceLifecycle"), "create", "--dry-run=server")
		if (err == nil) != admitted || !admitted && !strings.Contains(err.Error(), "nsinit-guard-api") {
			t.Errorf("%s: %v", group, err)
		}
	}
}

// TestGuardApplied: a field manager that owns the label by server-side apply cannot remove it. No field manager
// owns a label that the stamp wrote.
func TestGuardApplied(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	c.Configure(t, framework.Initializers("hold.example.com")...)
	client := kubernetes.NewForConfigOrDie(c.User(t, "e2e-writer", framework.Everything())).CoreV1().Namespaces()
	apply := func(name, metadata string) (*corev1.Namespace, error) {
		t.Cleanup(func() { _ = c.Core.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) })
		return client.Patch(t.Context(), name, types.ApplyPatchType,
			fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q%s}}`, name, metadata), metav1.PatchOptions{FieldManager: "e2e"})
	}
	owned := c.Name("ns")
	if _, err := apply(owned, `,"labels":{"nsinit.dev/initializing":"true"}`); err != nil {
		t.Fatal(err)
	}
	switch namespace, err := apply(owned, ``); {
	case c.StampsByPolicy(t) && (err != nil || namespace.Labels[v1alpha1.LabelInitializing] != "true"):
		t.Errorf("%v, %+v", err, namespace)
	case !c.StampsByPolicy(t) && framework.RefusedBy(guard, err) != nil:
		t.Error(framework.RefusedBy(guard, err))
	}
	stamped := c.Name("ns")
	for _, value := range []string{"one", "two"} {
		namespace, err := apply(stamped, `,"labels":{"e2e":"`+value+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		if namespace.Labels[v1alpha1.LabelInitializing] != "true" || namespace.Labels["e2e"] != value {
			t.Errorf("labels are %v", namespace.Labels)
		}
	}
}

// stampOf returns what the stamp writes.
func stampOf(namespace *corev1.Namespace) map[string]string {
	written := maps.Clone(namespace.Annotations)
	maps.DeleteFunc(written, func(key, _ string) bool {
		return !slices.Contains([]string{v1alpha1.AnnotationCreatedBy, v1alpha1.AnnotationCreatedByGroups, v1alpha1.AnnotationOnBehalfOf}, key)
	})
	if value, ok := namespace.Labels[v1alpha1.LabelInitializing]; ok {
		written[v1alpha1.LabelInitializing] = value
	}
	return written
}

// TestGuardOfOthers: no user can close the gate of an open namespace, or set a creator that it does not have. No name
// is exempt.
func TestGuardOfOthers(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	client := kubernetes.NewForConfigOrDie(c.User(t, "e2e-writer", framework.Everything())).CoreV1().Namespaces()
	yes, empty, zero := "true", "", "\x00"
	for name, change := range map[string]change{
		"label":              label(v1alpha1.LabelInitializing, &yes),
		"label, empty":       label(v1alpha1.LabelInitializing, &empty),
		"creator":            annotation(v1alpha1.AnnotationCreatedBy, &yes),
		"creator, empty":     annotation(v1alpha1.AnnotationCreatedBy, &empty),
		"creator, zero byte": annotation(v1alpha1.AnnotationCreatedBy, &zero),
		"groups":             annotation(v1alpha1.AnnotationCreatedByGroups, &yes),
	} {
		for _, namespace := range []string{"kube-system", "nsinit-system", "default"} {
			for way, write := range ways() {
				if strings.HasPrefix(way, "JSON") {
					continue // needs a parent, which these may not have
				}
				if _, err := write(t.Context(), client, namespace, change, []string{metav1.DryRunAll}); framework.RefusedBy(guard, err) != nil {
					t.Errorf("%s of %s by %s: %v", name, namespace, way, framework.RefusedBy(guard, err))
				}
			}
		}
	}
}

// TestGuardFinalizer: other clients cannot remove nsinit's finalizer, so a namespace is not removed before its
// participants have cleaned up.
func TestGuardFinalizer(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "hold.example.com", Finalizer: true})
	client := kubernetes.NewForConfigOrDie(c.User(t, "e2e-writer", framework.Everything())).CoreV1().Namespaces()
	name := c.CreateNamespace(t, c.Admin).Name
	t.Cleanup(func() { c.ReleaseParticipant(t, name, "hold.example.com") })
	t.Cleanup(func() { _ = c.Core.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	c.WaitCurrent(t, name, "hold.example.com")
	type write func(typedcorev1.NamespaceInterface, *corev1.Namespace, metav1.UpdateOptions) (*corev1.Namespace, error)
	change := func(client typedcorev1.NamespaceInterface, write write, change func(*corev1.Namespace)) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			namespace, err := client.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(namespace)
			_, err = write(client, namespace, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	}
	writes := map[string]write{
		"namespaces": func(client typedcorev1.NamespaceInterface, n *corev1.Namespace, options metav1.UpdateOptions) (*corev1.Namespace, error) {
			return client.Update(t.Context(), n, options)
		},
		"namespaces/status": func(client typedcorev1.NamespaceInterface, n *corev1.Namespace, options metav1.UpdateOptions) (*corev1.Namespace, error) {
			return client.UpdateStatus(t.Context(), n, options)
		},
		"namespaces/finalize": func(client typedcorev1.NamespaceInterface, n *corev1.Namespace, options metav1.UpdateOptions) (*corev1.Namespace, error) {
			return client.Finalize(t.Context(), n, options)
		},
	}
	for resource, write := range writes {
		drop := func(n *corev1.Namespace) { n.Finalizers = nil }
		if err := framework.RefusedBy(guard, change(client, write, drop), v1alpha1.NamespaceFinalizer); err != nil {
			t.Errorf("a write to %s: %v", resource, err)
		}
		if err := change(c.Core.CoreV1().Namespaces(), write, drop); err != nil {
			t.Errorf("a write to %s: a holder of the verb open was refused: %v", resource, err)
		}
	}
	controller := kubernetes.NewForConfigOrDie(c.As("system:serviceaccount:kube-system:namespace-controller")).CoreV1().Namespaces()
	if err := change(controller, writes["namespaces/finalize"], func(n *corev1.Namespace) { n.Spec.Finalizers = nil }); err != nil {
		t.Errorf("removing the finalizer of Kubernetes, as its namespace controller does: %v", err)
	}
}

// TestGuardContentFinalizer: no client but the namespace controller of Kubernetes can remove "kubernetes" from spec.finalizers
// of a namespace while it has content, which would stay in storage.
func TestGuardContentFinalizer(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	name := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, name)
	configMaps := c.Core.CoreV1().ConfigMaps(name)
	if _, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{framework.Holder}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	finalize := func(config *rest.Config, dryRun []string, finalizers ...corev1.FinalizerName) error {
		client := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces()
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			namespace, err := c.Core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			namespace.Spec.Finalizers = finalizers
			_, err = client.Finalize(t.Context(), namespace, metav1.UpdateOptions{DryRun: dryRun})
			return err
		})
	}
	dryRun := []string{metav1.DryRunAll}
	if err := framework.RefusedBy(guard, finalize(c.Admin, nil), "spec.finalizers"); err != nil {
		t.Errorf("a namespace that is not terminating: %v", err)
	}
	c.DeleteNamespace(t, name)
	c.WaitCondition(t, name, corev1.NamespaceFinalizersRemaining, "True/SomeFinalizersRemain")
	for title, finalizers := range map[string][]corev1.FinalizerName{"none": nil, "another one": {origin}} {
		for _, dryRun := range [][]string{nil, dryRun} {
			if err := framework.RefusedBy(guard, finalize(c.Admin, dryRun, finalizers...), "spec.finalizers", "kubectl nsinit why "+name); err != nil {
				t.Errorf("finalizers: %s, dry run %v: %v", title, dryRun, err)
			}
		}
	}
	if err := finalize(c.Admin, nil, corev1.FinalizerKubernetes, origin); err != nil {
		t.Errorf("another finalizer is added: %v", err)
	}
	if err := finalize(c.Admin, nil, corev1.FinalizerKubernetes); err != nil {
		t.Errorf("another finalizer is removed: %v", err)
	}
	// Every other way to write a namespace keeps spec.finalizers, or is not served.
	for _, subresource := range []string{"", "status", "finalize"} {
		for kind, patch := range map[types.PatchType]string{
			types.MergePatchType: `{"spec":{"finalizers":null}}`, types.StrategicMergePatchType: `{"spec":{"finalizers":null}}`,
			types.JSONPatchType: `[{"op":"remove","path":"/spec/finalizers"}]`,
		} {
			_, _ = c.Core.CoreV1().Namespaces().Patch(t.Context(), name, kind, []byte(patch), metav1.PatchOptions{}, strings.Fields(subresource)...)
		}
	}
	if live, err := c.Core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil || !slices.Contains(live.Spec.Finalizers, corev1.FinalizerKubernetes) {
		t.Fatalf("after the patches, spec.finalizers are %v, %v", live.Spec.Finalizers, err)
	}
	for _, controller := range []*rest.Config{c.As("system:serviceaccount:kube-system:namespace-controller"), c.As("system:kube-controller-manager", "system:masters")} {
		if err := finalize(controller, dryRun); err != nil {
			t.Errorf("%s was refused: %v", controller.Impersonate.UserName, err)
		}
	}
	if _, err := configMaps.Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.WaitNoNamespace(t, name)
}

// TestApplyKeepsStamp: a manifest without the stamp that a privileged user applies changes neither the label nor the creator, whatever the
// managed fields or the last applied configuration say. Otherwise a tenant could make an administrator open a namespace.
func TestApplyKeepsStamp(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	c.Configure(t, framework.Initializers("hold.example.com")...)
	tenant := c.User(t, "e2e-applier", framework.Everything())
	tenants, admins := kubernetes.NewForConfigOrDie(tenant).CoreV1().Namespaces(), c.Core.CoreV1().Namespaces()
	manifest := func(name, metadata string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q%s}}`, name, metadata)
	}
	apply := func(client typedcorev1.NamespaceInterface, name, metadata string) error {
		_, err := client.Patch(t.Context(), name, types.ApplyPatchType, []byte(manifest(name, metadata)), metav1.PatchOptions{FieldManager: "deployer", Force: new(true)})
		return err
	}
	create := func(name, metadata string) {
		t.Helper()
		if err := kubernetes.NewForConfigOrDie(tenant).CoreV1().RESTClient().Post().Resource("namespaces").SetHeader("Content-Type", "application/json").Body([]byte(manifest(name, metadata))).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		c.LeaveLater(t, name)
	}
	const forged = `,"managedFields":[{"manager":"deployer","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":
		{"f:metadata":{"f:labels":{"f:nsinit.dev/initializing":{}},"f:annotations":{"f:nsinit.dev/created-by":{},"f:nsinit.dev/created-by-groups":{}}}}}]`
	const last = `,"annotations":{"kubectl.kubernetes.io/last-applied-configuration":` +
		`"{\"metadata\":{\"labels\":{\"nsinit.dev/initializing\":\"true\"},\"annotations\":{\"nsinit.dev/created-by\":\"x\"}}}"}`
	for what, test := range map[string]struct {
		create func(name string)
		apply  func(name string) error
	}{
		"server-side": {func(name string) {
			if err := apply(tenants, name, `,"labels":{"a":"b"},"annotations":{"a":"b"}`); err != nil {
				t.Fatal(err)
			}
			c.LeaveLater(t, name)
		}, func(name string) error { return apply(admins, name, "") }},
		"forged managed fields": {func(name string) { create(name, forged) }, func(name string) error { return apply(admins, name, "") }},
		"client-side, forged": {func(name string) { create(name, last) }, func(name string) error {
			_, err := c.KubectlInput(manifest(name, ""), "apply")
			return err
		}},
		"a name that the stamp removed": {func(name string) { create(name, "") }, func(name string) error {
			return framework.RefusedBy(guard, apply(admins, name, `,"annotations":{"nsinit.dev/on-behalf-of":"e2e-bob"}`), "remove them from a manifest")
		}},
	} {
		t.Run(what, func(t *testing.T) {
			name := c.Name("ns")
			test.create(name)
			err := test.apply(name)
			namespace, getErr := admins.Get(t.Context(), name, metav1.GetOptions{})
			if getErr != nil {
				t.Fatal(getErr)
			}
			if !c.StampsByPolicy(t) { // the guard refuses what no policy corrects
				if namespace.Labels[v1alpha1.LabelInitializing] != "true" {
					t.Errorf("the namespace is open: %v", err)
				}
				return
			}
			if diff := cmp.Diff(wantStamp("e2e-applier"), stampOf(namespace)); err != nil || diff != "" {
				t.Errorf("%v; the stamp (-want +got):\n%s", err, diff)
			}
			if out, err := c.Kubectl("label", "namespace", name, v1alpha1.LabelInitializing+"-"); err != nil || c.IsClosed(t, name) {
				t.Errorf("an administrator cannot open it by hand: %v %s", err, out)
			}
		})
	}

	// An entry without a manager does not make the requests of nsinit an apply.
	name := c.Name("ns")
	create(name, `,"managedFields":[{"operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:nsinit.dev/initializing":{}}}}}]`)
	c.WaitCurrent(t, name, "hold.example.com")
	c.RemoveFirst(t, name)
	c.WaitReady(t, name)
}

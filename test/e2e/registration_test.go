//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestNameBelongsToSomebody: a user with every right of RBAC on configurations, and with those that kubectl nsinit rbac
// prints, registers its own initializer. It cannot add, change or remove the entry of another one, with any kind of request.
func TestNameBelongsToSomebody(t *testing.T) {
	const own, victim = "own.registration.example.com", "victim.registration.example.com"
	c := framework.Share(t)
	user := c.Name("e2e-configures")
	config := c.User(t, user, framework.Everything())
	name, others := c.Name("own"), c.Configure(t, framework.Initializers(victim)...).Name
	c.ApplyInput(t, c.MustPlugin(t, "rbac", own, "--user="+user, "--configuration="+name))
	client := versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceInitializerConfigurations()
	ignored := fmt.Sprintf(`{"name":%q,"failurePolicy":"Ignore","timeoutSeconds":1}`, victim)
	create := func(name string, options metav1.CreateOptions, initializers ...v1alpha1.RegisteredInitializer) error {
		_, err := client.Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: initializers}, options)
		return err
	}
	patch := func(configuration string, kind types.PatchType, patch string) error {
		options := metav1.PatchOptions{}
		if kind == types.ApplyPatchType {
			options = metav1.PatchOptions{FieldManager: "e2e", Force: new(true)}
		}
		_, err := client.Patch(t.Context(), configuration, kind, []byte(patch), options)
		return err
	}
	update := func(configuration string, change func(*v1alpha1.NamespaceInitializerConfiguration)) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			stored, err := client.Get(t.Context(), configuration, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			change(stored)
			_, err = client.Update(t.Context(), stored, metav1.UpdateOptions{})
			return err
		})
	}
	mine := selecting(own, "none", "false")
	framework.Eventually(t, "the user registers its own initializer", func(context.Context) error {
		err := create(name, metav1.CreateOptions{}, mine)
		if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), own) {
			t.Error(err)
		}
		return err
	})
	t.Cleanup(func() { _ = client.Delete(context.Background(), name, metav1.DeleteOptions{}) })

	apply := func(name string) error {
		return patch(name, types.ApplyPatchType, `{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespaceInitializerConfiguration","metadata":{"name":"`+name+`"},"initializers":[`+ignored+`]}`)
	}
	for what, err := range map[string]error{
		"POST":                   create(c.Name("a"), metav1.CreateOptions{}, framework.Initializers(own, victim)...),
		"a dry run":              create(c.Name("a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, framework.Initializers(victim)...),
		"apply that creates":     apply(c.Name("a")),
		"apply":                  apply(name),
		"a merge patch":          patch(name, types.MergePatchType, `{"initializers":[`+ignored+`]}`),
		"a strategic patch":      patch(name, types.StrategicMergePatchType, `{"initializers":[`+ignored+`]}`),
		"a JSON patch":           patch(name, types.JSONPatchType, `[{"op":"add","path":"/initializers/0","value":`+ignored+`}]`),
		"PUT":                    update(name, func(n *v1alpha1.NamespaceInitializerConfiguration) { n.Initializers[0].Name = victim }),
		"a change of its entry":  patch(others, types.StrategicMergePatchType, `{"initializers":[`+ignored+`]}`),
		"a removal of its entry": patch(others, types.MergePatchType, `{"initializers":null}`),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"`+victim+`"`) || !strings.Contains(err.Error(), `needs verb "initialize" on initializers.nsinit.dev`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"a label, and nothing else":   patch(others, types.MergePatchType, `{"metadata":{"labels":{"e2e":"labelled"}}}`),
		"its own entry, with another": update(others, func(n *v1alpha1.NamespaceInitializerConfiguration) { n.Initializers = append(n.Initializers, mine) }),
		"changing its own entry":      patch(name, types.StrategicMergePatchType, `{"initializers":[{"name":"`+own+`","finalizer":true}]}`),
		"removing its own entry":      patch(name, types.MergePatchType, `{"initializers":[]}`),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	c.Grant(t, user, c.Core, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbOpen}})
	framework.Eventually(t, "a user with the verb open registers every name", func(context.Context) error {
		return create(c.Name("a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, framework.Initializers(victim)...)
	})
}

// TestTooManyInitializers: a configuration with which the NamespaceLifecycle of a namespace could become too large to store is
// refused. A namespace that gets as many initializers as possible opens.
func TestTooManyInitializers(t *testing.T) {
	c := framework.Connect(t)
	var all []v1alpha1.RegisteredInitializer
	for i := range 192 {
		label := strings.Repeat("x", 60)
		all = append(all, v1alpha1.RegisteredInitializer{Name: fmt.Sprintf("i%03d.%s.%s.%s.example.com", i, label, label, label), Ordering: &v1alpha1.InitializerOrdering{}})
	}
	c.Configure(t, all[:64]...)
	last := c.Configure(t, all[64:128]...)
	client := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	create := func(initializers ...v1alpha1.RegisteredInitializer) error {
		created, err := client.Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("more")}, Initializers: initializers}, metav1.CreateOptions{})
		if err == nil {
			t.Cleanup(func() { _ = client.Delete(context.Background(), created.Name, metav1.DeleteOptions{}) })
		}
		return err
	}
	for what, err := range map[string]error{"names that are registered already": create(all[:64]...), "a few more": create(all[128:136]...)} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	const says, next = "a namespace can get %d initializers, which take ", " bytes, and may take 1048576: remove initializers, or names in ordering.after"
	refused := func(err error, count int) {
		t.Helper()
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `initializers: Invalid value: "64 initializers": with those of all configurations, `+fmt.Sprintf(says, count)) || !strings.Contains(err.Error(), next) {
			t.Error(err)
		}
	}
	refused(create(all[128:]...), 192)
	framework.Eventually(t, "long lists of predecessors are refused", func(ctx context.Context) error {
		stored, err := client.Get(ctx, last.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range stored.Initializers {
			for _, initializer := range all[:64] {
				stored.Initializers[i].Ordering.After = append(stored.Initializers[i].Ordering.After, initializer.Name)
			}
		}
		if _, err = client.Update(ctx, stored, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
			return err
		}
		refused(err, 136)
		return nil
	})

	namespace, lifecycles := c.CreateNamespace(t, c.Admin).Name, c.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	framework.Eventually(t, "all initializers are skipped", func(ctx context.Context) error {
		lifecycle, err := lifecycles.Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(lifecycle.Spec.Plan) != 136 {
			t.Errorf("the plan has %d initializers", len(lifecycle.Spec.Plan))
		}
		lifecycle.Spec.Initializers.Pending = nil
		_, err = lifecycles.Initialize(ctx, namespace, lifecycle, metav1.UpdateOptions{})
		return err
	})
	c.WaitReady(t, namespace)
}

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

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
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
		stored, err := client.Get(t.Context(), configuration, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(stored)
		_, err = client.Update(t.Context(), stored, metav1.UpdateOptions{})
		return err
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
		"a change of its own entry":   patch(name, types.StrategicMergePatchType, `{"initializers":[{"name":"`+own+`","finalizer":true}]}`),
		"a removal of its own entry":  patch(name, types.MergePatchType, `{"initializers":[]}`),
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

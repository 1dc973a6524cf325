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
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	installed "github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const (
	installNamespace = "nsinit-system"
	exemptions       = "nsinit-exemptions"
)

// TestExemptions: the list in the ConfigMap exempts namespaces. Only users with the verb open can change it.
func TestExemptions(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	config := c.User(t, "e2e-creator", framework.Everything())
	client := kubernetes.NewForConfigOrDie(config)
	name := framework.UniqueName("exempt")
	exempt(t, c, name)
	c.LeaveLater(t, name)
	create := func(ctx context.Context, meta metav1.ObjectMeta, dryRun ...string) (*corev1.Namespace, error) {
		return client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{DryRun: dryRun})
	}
	framework.Eventually(t, "a namespace on the list is not stamped", func(ctx context.Context) error {
		namespace, err := create(ctx, metav1.ObjectMeta{Name: name}, metav1.DryRunAll)
		if err == nil && len(stampOf(namespace)) > 0 {
			err = fmt.Errorf("it carries %v", stampOf(namespace))
		}
		return err
	})
	for what, meta := range map[string]metav1.ObjectMeta{
		"the label":   {Labels: map[string]string{v1alpha1.LabelInitializing: ""}},
		"the creator": {Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "e2e-creator"}},
		"the groups":  {Annotations: map[string]string{v1alpha1.AnnotationCreatedByGroups: "team-a"}},
	} {
		meta.Name = name
		if _, err := create(t.Context(), meta); framework.RefusedBy(guardCreator, err, "create it without them") != nil {
			t.Errorf("an exempt namespace with %s: %v", what, framework.RefusedBy(guardCreator, err, "create it without them"))
		}
	}
	if _, err := create(t.Context(), metav1.ObjectMeta{Name: name}); err != nil {
		t.Fatal(err)
	}
	if err := framework.WriteConfigMap(t.Context(), client, name); err != nil {
		t.Errorf("a write into an exempt namespace: %v", err)
	}
}

// exempt puts a name on the list until the test ends.
func exempt(t *testing.T, c *framework.Cluster, name string) {
	t.Helper()
	addExemptions(t, c, map[string]string{installed.KeyNamespaces: name + "\n"})
}

// addExemptions adds lines to keys of the list until the test ends.
func addExemptions(t *testing.T, c *framework.Cluster, lines map[string]string) {
	t.Helper()
	ctx := context.Background()
	configMaps := c.Core.CoreV1().ConfigMaps(installNamespace)
	list, err := configMaps.Get(ctx, exemptions, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(list.Data)
	for key, more := range lines {
		list.Data[key] += more
	}
	if _, err := configMaps.Update(ctx, list, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		list.Data, list.ResourceVersion = before, ""
		if _, err := configMaps.Update(ctx, list, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestExemptionsGuarded: the permission to write ConfigMaps does not suffice to change the list, or to turn nsinit off.
func TestExemptionsGuarded(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	client := kubernetes.NewForConfigOrDie(c.User(t, "e2e-creator", framework.Everything())).CoreV1().ConfigMaps(installNamespace)
	list, err := client.Get(t.Context(), exemptions, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list.Data["namespaces"] += "mine\n"
	dryRun := []string{metav1.DryRunAll} // so that a failure harms no other test
	for name, write := range map[string]func(ctx context.Context) error{
		"update": func(ctx context.Context) error {
			_, err := client.Update(ctx, list, metav1.UpdateOptions{DryRun: dryRun})
			return err
		},
		"apply": func(ctx context.Context) error {
			_, err := client.Patch(ctx, exemptions, types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+exemptions+`"},"data":{"users":"e2e-creator"}}`),
				metav1.PatchOptions{DryRun: dryRun, FieldManager: "e2e"})
			return err
		},
		"patch": func(ctx context.Context) error {
			_, err := client.Patch(ctx, exemptions, types.MergePatchType, []byte(`{"data":{"namespaces":"mine"}}`), metav1.PatchOptions{DryRun: dryRun})
			return err
		},
		"off": func(ctx context.Context) error {
			_, err := client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: installed.Off}}, metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		"delete": func(ctx context.Context) error {
			return client.Delete(ctx, exemptions, metav1.DeleteOptions{DryRun: dryRun})
		},
		"delete a collection": func(ctx context.Context) error {
			return client.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{FieldSelector: "metadata.name=" + exemptions})
		},
	} {
		if err := framework.RefusedBy("nsinit-guard-configmaps", write(t.Context())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("another ConfigMap of the namespace: %v", err)
	}
}

// TestWithoutExemptions: without the list, no namespace can be created, and the error names the list. Existing
// namespaces work, and the list can be restored.
func TestWithoutExemptions(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	configMaps := c.Core.CoreV1().ConfigMaps(installNamespace)
	list, err := configMaps.Get(t.Context(), exemptions, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	restore := func(ctx context.Context) error {
		list.ResourceVersion, list.UID = "", ""
		_, err := configMaps.Create(ctx, list, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	t.Cleanup(func() {
		if err := restore(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := configMaps.Delete(t.Context(), exemptions, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, name string) error {
		_, err := c.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	missing := "configmap-" + exemptions
	if !c.StampsByPolicy(t) {
		missing = "ConfigMap " + installNamespace + "/" + exemptions
	}
	framework.Eventually(t, "a namespace is refused, and the refusal names the list", func(ctx context.Context) error {
		err := create(ctx, "refused")
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), missing) {
			return errors.Join(err, errors.New("want a refusal that names the ConfigMap"))
		}
		return nil
	})
	// The namespace that holds the list exists, so the creation fails with AlreadyExists.
	if err := create(t.Context(), installNamespace); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating the namespace that holds the list: want AlreadyExists, got %v", err)
	}
	value := "x"
	put := ways()["PUT namespaces"]
	if _, err := put(t.Context(), c.Core.CoreV1().Namespaces(), "default", label("e2e", &value), []string{metav1.DryRunAll}); err != nil {
		t.Errorf("an update of a namespace: %v", err)
	}
	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "namespaces are created again", func(ctx context.Context) error { return create(ctx, "accepted") })
}

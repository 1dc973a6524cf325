/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// PopulationInitializer is the initializer that policy-population acts as.
const PopulationInitializer = "policy-population.nsinit.dev"

// PopulationUser is the user that policy-population acts as.
const PopulationUser = "system:serviceaccount:nsinit-system:policy-population"

// StartPopulation runs policy-population with the rights that nsinit installs for it, until the test ends. Nothing leads after
// that.
func (c *Cluster) StartPopulation(t *testing.T, args ...string) *os.Process {
	t.Helper()
	t.Cleanup(func() { c.DeleteLease(t, "policy-population") }) // after the program was killed
	return c.Run(t, "policy-population", append([]string{"--kubeconfig=" + filepath.Join(c.Dir, "policy-population.kubeconfig"), "--v=2"}, args...)...)
}

// GrantPopulation grants rights to policy-population until the test ends.
func (c *Cluster) GrantPopulation(t *testing.T, rules ...rbacv1.PolicyRule) {
	t.Helper()
	c.Grant(t, PopulationUser, kubernetes.NewForConfigOrDie(c.As(PopulationUser)), rules...)
}

// ConfigMapRule allows what policy-population needs for ConfigMaps.
func ConfigMapRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}}
}

// Populate creates a NamespacePopulation until the test ends.
func (c *Cluster) Populate(t *testing.T, name string, manifests ...v1alpha1.PopulationManifest) *v1alpha1.NamespacePopulation {
	t.Helper()
	return c.PopulateWith(t, name, v1alpha1.NamespacePopulationSpec{Manifests: manifests})
}

// PopulateWith creates a NamespacePopulation with a spec until the test ends.
func (c *Cluster) PopulateWith(t *testing.T, name string, spec v1alpha1.NamespacePopulationSpec) *v1alpha1.NamespacePopulation {
	t.Helper()
	populations := c.Nsinit.NsinitV1alpha1().NamespacePopulations()
	population, err := populations.Create(t.Context(), &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
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

// PopulateAsInExample applies artifacts/examples/policy-population.yaml until the test ends.
func (c *Cluster) PopulateAsInExample(t *testing.T) {
	t.Helper()
	example := filepath.Join(c.Root, "artifacts", "examples", "policy-population.yaml")
	if out, err := c.Kubectl("apply", "-f", example); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if out, err := c.Kubectl("delete", "--wait=false", "-f", example); err != nil {
			t.Error(err, out)
		}
	})
}

// ConfigMapManifest returns a manifest of a ConfigMap with a value under the key "value".
func ConfigMapManifest(name, value string) v1alpha1.PopulationManifest {
	return v1alpha1.PopulationManifest{Name: name, Template: runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"value":%q}}`, name, value)}}
}

// SecretManifest returns a manifest of a Secret.
func SecretManifest() v1alpha1.PopulationManifest {
	return v1alpha1.PopulationManifest{Name: "secret", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)}}
}

// WaitRollout waits until a population has a state of its rollout: the reason of the condition RolledOut, and the counts
// "current/namespaces created changed unchanged conflicts refused".
func (c *Cluster) WaitRollout(t *testing.T, name, reason, counts string) (population *v1alpha1.NamespacePopulation) {
	t.Helper()
	Eventually(t, fmt.Sprintf("the rollout of %s is %s, %s", name, reason, counts), func(ctx context.Context) (err error) {
		if population, err = c.Nsinit.NsinitV1alpha1().NamespacePopulations().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(population.Status.Conditions, v1alpha1.ConditionRolledOut)
		if condition == nil || population.Status.Rollout == nil {
			return fmt.Errorf("the status is %+v", population.Status)
		}
		s := population.Status.Rollout
		got := fmt.Sprintf("%d/%d %d %d %d %d %d", s.Current, s.Namespaces, s.ToCreate, s.ToChange, s.Unchanged, s.Conflicts, s.Refused)
		if condition.Reason != reason || got != counts || s.ObservedGeneration != population.Generation || condition.ObservedGeneration != population.Generation {
			return fmt.Errorf("it is %s, %s: %s", condition.Reason, got, condition.Message)
		}
		return nil
	})
	return population
}

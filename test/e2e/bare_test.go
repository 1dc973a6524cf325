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
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// brokenAPI is an API without a server.
const brokenAPI = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.broken.example.com}
spec:
  group: broken.example.com
  version: v1
  groupPriorityMinimum: 1
  versionPriority: 1
  insecureSkipTLSVerify: true
  service: {namespace: default, name: missing}
`

// flunders is a version of the API of the sample API server of Kubernetes.
const flunders = `
apiVersion: v1
kind: Service
metadata: {name: flunders-VERSION, namespace: default}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: VERSION.wardle.example.com}
spec:
  group: wardle.example.com
  version: VERSION
  groupPriorityMinimum: 1
  versionPriority: 1
  insecureSkipTLSVerify: true
  service: {namespace: default, name: flunders-VERSION, port: PORT}
`

// origin is a finalizer of a namespace that a controller other than those of Kubernetes and nsinit removes.
const origin = "openshift.com/origin"

// serveFlunders runs another aggregated API server, whose resource is namespaced, until the
// test ends: one for each version, with separate arguments.
func serveFlunders(t *testing.T, c *framework.Cluster, versions map[string][]string) {
	t.Helper()
	etcd, _ := c.StartEtcd(t)
	for version, args := range versions {
		port := framework.FreePort(t)
		c.Run(t, "sample-apiserver", append([]string{"--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + t.TempDir(), "--etcd-servers=" + etcd,
			"--kubeconfig=" + c.Kubeconfig(), "--authentication-kubeconfig=" + c.Kubeconfig(), "--authorization-kubeconfig=" + c.Kubeconfig()}, args...)...)
		c.ApplyInput(t, strings.NewReplacer("VERSION", version, "PORT", port).Replace(flunders))
	}
}

// TestNamespaceTermination: on a control plane without kube-controller-manager, nsinit empties and finalizes
// namespaces.
func TestNamespaceTermination(t *testing.T) {
	framework.Environment(t)
	const objects = 1500
	c := framework.Another(t, "--bare")
	namespaces := c.Core.CoreV1().Namespaces()
	create := func(spec corev1.NamespaceSpec) string {
		t.Helper()
		namespace, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("bare")}, Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.WaitReady(t, namespace.Name)
		return namespace.Name
	}
	remove := func(name string) {
		t.Helper()
		if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("many objects", func(t *testing.T) {
		name, untouched := create(corev1.NamespaceSpec{}), create(corev1.NamespaceSpec{})
		var group errgroup.Group
		group.SetLimit(16)
		for i := range objects {
			group.Go(func() error {
				_, err := c.Core.CoreV1().ConfigMaps(name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)}}, metav1.CreateOptions{})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := framework.WriteConfigMap(t.Context(), c.Core, untouched); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		remove(name)
		c.WaitCondition(t, name, v1alpha1.ConditionReady, "False/Terminating")
		c.WaitNoNamespace(t, name)
		t.Logf("%d objects were deleted in %.1f s", objects, time.Since(began).Seconds())
		if list, err := c.Core.CoreV1().ConfigMaps(untouched).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
			t.Errorf("another namespace has lost its content: %v %v", list.Items, err)
		}
		remove(untouched)
		c.WaitNoNamespace(t, untouched)
	})

	t.Run("custom resources, and finalizers", func(t *testing.T) {
		if _, err := c.KubectlInput(thingDefinition(), "apply", "--server-side"); err != nil {
			t.Fatal(err)
		}
		name := create(corev1.NamespaceSpec{})
		framework.Eventually(t, "custom resources are served", func(context.Context) error {
			_, err := c.KubectlInput("apiVersion: e2e.example.com/v1\nkind: Thing\nmetadata: {name: free}\n---\napiVersion: e2e.example.com/v1\nkind: Thing\nmetadata: {name: held, finalizers: ["+framework.Holder+"]}\n",
				"apply", "--server-side", "--namespace", name)
			return err
		})
		if err := framework.WriteConfigMap(t.Context(), c.Core, name); err != nil {
			t.Fatal(err)
		}
		remove(name)
		c.WaitCondition(t, name, corev1.NamespaceContentRemaining, "True/SomeResourcesRemain", "things.e2e.example.com has 1 resource instances")
		c.WaitCondition(t, name, corev1.NamespaceFinalizersRemaining, "True/SomeFinalizersRemain", framework.Holder+" in 1 resource instances")
		if list, err := c.Core.CoreV1().ConfigMaps(name).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
			t.Errorf("what is not held is left: %v %v", list.Items, err)
		}
		if out, err := c.Kubectl("patch", "thing/held", "--namespace", name, "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`); err != nil {
			t.Fatal(err, out)
		}
		c.WaitNoNamespace(t, name)
	})

	t.Run("an API without a server", func(t *testing.T) {
		if _, err := c.KubectlInput(brokenAPI, "apply", "--server-side"); err != nil {
			t.Fatal(err)
		}
		name := create(corev1.NamespaceSpec{})
		if err := framework.WriteConfigMap(t.Context(), c.Core, name); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the API is broken", func(context.Context) error {
			if _, err := c.Core.Discovery().ServerPreferredNamespacedResources(); err == nil || !strings.Contains(err.Error(), "broken.example.com") {
				return fmt.Errorf("discovery says %w", err)
			}
			return nil
		})
		remove(name)
		c.WaitCondition(t, name, corev1.NamespaceDeletionDiscoveryFailure, "True/DiscoveryFailed", "broken.example.com/v1")
		// The other namespaces are deleted.
		c.WaitCondition(t, name, corev1.NamespaceContentRemaining, "False/ContentRemoved")
		if _, err := c.Kubectl("delete", "apiservice", "v1.broken.example.com"); err != nil {
			t.Fatal(err)
		}
		c.WaitNoNamespace(t, name)
	})

	t.Run("an aggregated API", func(t *testing.T) {
		serveFlunders(t, c, map[string][]string{"v1beta1": nil})
		name, untouched := create(corev1.NamespaceSpec{}), create(corev1.NamespaceSpec{})
		for namespace, finalizers := range map[string]string{name: "[" + framework.Holder + "]", untouched: "[]"} {
			framework.Eventually(t, "objects of the aggregated API are served", func(context.Context) error {
				_, err := c.KubectlInput("apiVersion: wardle.example.com/v1beta1\nkind: Flunder\nmetadata: {name: free}\n---\napiVersion: wardle.example.com/v1beta1\nkind: Flunder\nmetadata: {name: held, finalizers: "+finalizers+"}\n",
					"apply", "--namespace", namespace)
				return err
			})
		}
		remove(name)
		c.WaitCondition(t, name, corev1.NamespaceContentRemaining, "True/SomeResourcesRemain", "flunders.wardle.example.com has 1 resource instances")
		if out, err := c.Kubectl("patch", "flunder/held", "--namespace", name, "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`); err != nil {
			t.Fatal(err, out)
		}
		c.WaitNoNamespace(t, name)
		if out, err := c.Kubectl("get", "flunders", "--all-namespaces", "--output=jsonpath={.items[*].metadata.namespace}"); err != nil || out != untouched+" "+untouched {
			t.Errorf("flunders are in %q, %v", out, err)
		}
		remove(untouched)
		c.WaitNoNamespace(t, untouched)
	})

	t.Run("finalizers that were empty before", func(t *testing.T) {
		name := create(corev1.NamespaceSpec{})
		setFinalizers(t, c, name)
		if err := framework.WriteConfigMap(t.Context(), c.Core, name); err != nil {
			t.Fatal(err)
		}
		remove(name)
		c.WaitNoNamespace(t, name)
		if list, err := c.Core.CoreV1().ConfigMaps(name).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
			t.Errorf("left behind: %v %v", list.Items, err)
		}
	})

	t.Run("beside another finalizer, and a participant", func(t *testing.T) {
		if _, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "one"}, Initializers: []v1alpha1.RegisteredInitializer{{Name: "one.example.com", Finalizer: true}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.ActAs(t, "one.example.com")
		name := create(corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{origin}})
		if err := framework.WriteConfigMap(t.Context(), c.Core, name); err != nil {
			t.Fatal(err)
		}
		remove(name)
		c.ReleaseParticipant(t, name, "one.example.com")
		c.WaitNoLifecycle(t, name)
		framework.Eventually(t, "only the other is left", func(ctx context.Context) error {
			namespace, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			if err == nil && fmt.Sprint(namespace.Spec.Finalizers) != "["+origin+"]" {
				err = fmt.Errorf("the finalizers are %v", namespace.Spec.Finalizers)
			}
			if err != nil {
				return err
			}
			namespace.Spec.Finalizers = nil
			_, err = namespaces.Finalize(ctx, namespace, metav1.UpdateOptions{})
			return err
		})
		c.WaitNoNamespace(t, name)
	})
}

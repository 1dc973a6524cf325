//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// deployment is an initializer, deployed as by an administrator.
const deployment = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: initializer}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: initializer}
spec:
  selector: {matchLabels: {app: initializer}}
  template:
    metadata: {labels: {app: initializer}}
    spec: {serviceAccountName: initializer, containers: [{name: initializer, image: initializer}]}
`

// TestInitializerInItsOwnNamespace: an initializer can be deployed into a namespace that waits for it, whether its
// configuration is created before or after. There is no node, so the test runs the program of the pod, with the
// token of its service account, once the pod exists.
func TestInitializerInItsOwnNamespace(t *testing.T) {
	c := framework.Connect(t)
	for _, order := range []string{"the configuration first", "the configuration last"} {
		t.Run(order, func(t *testing.T) {
			name := framework.UniqueName("own") + ".example.com"
			if order == "the configuration first" {
				c.Configure(t, framework.Initializers(name)...)
			}
			home := c.CreateNamespace(t, c.Admin).Name
			if order == "the configuration first" {
				c.WaitCurrent(t, home, name)
			} else {
				c.WaitReady(t, home)
			}
			if _, err := c.KubectlInput(deployment, "apply", "--namespace", home); err != nil {
				t.Fatal(err)
			}
			framework.Eventually(t, "the pod exists", func(ctx context.Context) error {
				pods, err := c.Core.CoreV1().Pods(home).List(ctx, metav1.ListOptions{LabelSelector: "app=initializer"})
				if err == nil && len(pods.Items) != 1 {
					err = fmt.Errorf("there are %d", len(pods.Items))
				}
				return err
			})
			initialized := runInitializer(t, c, home, name)
			if order == "the configuration first" {
				c.WaitReady(t, home)
				if got := <-initialized; got != home {
					t.Errorf("%s was initialized", got)
				}
			} else {
				c.Configure(t, framework.Initializers(name)...)
			}
			other := c.CreateNamespace(t, c.Admin).Name
			c.WaitReady(t, other)
			if got := <-initialized; got != other {
				t.Errorf("%s was initialized", got)
			}
		})
	}
}

// runInitializer runs an initializer as the service account of a namespace, until the test
// ends. It returns the names of the namespaces that it initialized.
func runInitializer(t *testing.T, c *framework.Cluster, home, name string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	account := "system:serviceaccount:" + home + ":initializer"
	token, err := c.Core.CoreV1().ServiceAccounts(home).CreateToken(ctx, "initializer", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Admin)
	config.BearerToken = token.Status.Token
	core := kubernetes.NewForConfigOrDie(config)
	c.Grant(t, account, core,
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.ResourceInitializers}, ResourceNames: []string{name}, Verbs: []string{v1alpha1.VerbInitialize}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"namespacelifecycles"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"namespacelifecycles/initialize", "namespacelifecycles/status"}, Verbs: []string{"update", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", v1alpha1.VerbInitialize}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update"}})
	initialized := make(chan string, 10)
	runner, err := initializer.New(initializer.Options{
		Name: name, Core: core, Nsinit: versioned.NewForConfigOrDie(config),
		Initialize: func(ctx context.Context, namespace *corev1.Namespace) error {
			err := framework.WriteConfigMap(ctx, core, namespace.Name)
			if err == nil {
				initialized <- namespace.Name
			}
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = runner.Run(ctx) }()
	return initialized
}

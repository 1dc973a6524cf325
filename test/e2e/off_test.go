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
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/nsinit/nsinit/pkg/controller/gate"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// waitStamped waits until a new namespace is closed, or is not.
func waitStamped(t *testing.T, c *framework.Cluster, closed bool) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("a new namespace is closed: %t", closed), func(ctx context.Context) error {
		namespace, err := c.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-off-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && helper.IsClosed(namespace) != closed {
			err = fmt.Errorf("it has the labels %v", namespace.Labels)
		}
		return err
	})
}

// waitGateEvent waits for an event on the policy of the guard.
func waitGateEvent(t *testing.T, c *framework.Cluster, reason, says string) {
	t.Helper()
	framework.Eventually(t, "an event "+reason, func(ctx context.Context) error {
		list, err := c.Core.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: fields.SelectorFromSet(fields.Set{"involvedObject.name": installation.GuardCreate, "reason": reason}).String()})
		if err != nil {
			return err
		}
		err = errors.New("there is none")
		for _, event := range list.Items {
			if strings.Contains(event.Message, says) {
				return nil
			}
			err = errors.New(event.Message)
		}
		return err
	})
}

// TestGateWaits: while nsinit has never worked, new namespaces are open. Once it works, they are closed, and stay closed while it
// does not work any more.
func TestGateWaits(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	objects, err := gate.NewObjects(c.Core, installation.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	args := c.Arguments(t, "nsinit-apiserver")
	c.ReplaceServer(t)
	for _, object := range objects.InOrder() {
		if _, err := object.Remove(t.Context(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	waitGateEvent(t, c, "GateNotInForce", "new namespaces are not closed yet, because nsinit does not work yet: ")
	waitStamped(t, c, false)
	open := c.CreateNamespace(t, c.Admin).Name
	if err := framework.WriteConfigMap(t.Context(), c.Core, open); err != nil {
		t.Errorf("a write into an open namespace: %v", err)
	}
	out, _, code := c.Plugin(t, "check")
	if code != 3 || !strings.Contains(out, "InForce") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}

	process := c.Run(t, "nsinit-apiserver", args...)
	c.WaitServing(t)
	waitStamped(t, c, true)
	waitGateEvent(t, c, "GateInForce", "nsinit works: new namespaces are closed until they are initialized")
	if c.IsClosed(t, open) {
		t.Error("a namespace that existed before is closed")
	}

	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	if c.StampsByPolicy(t) { // else a webhook of this process stamps, without which no namespace can be created
		waitStamped(t, c, true)
	}
}

// TestOff: while no nsinit-apiserver runs, kubectl nsinit off lets namespaces be created open, opens closed ones and lets deleted
// ones be removed. Afterwards, kubectl nsinit on closes new ones again.
func TestOff(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Another(t)
	c.Configure(t, framework.Initializers("never.example.com")...)
	closed := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, closed, "never.example.com")
	args := c.Arguments(t, "nsinit-apiserver")
	apis := aggregator.NewForConfigOrDie(c.Admin).ApiregistrationV1().APIServices()
	service, err := apis.Get(t.Context(), installation.APIService, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.ReplaceServer(t)
	framework.Eventually(t, "the APIService is not available", func(context.Context) error {
		out, err := c.Kubectl("get", "apiservice", installation.APIService, "--output=jsonpath={.status.conditions[*].status}")
		if err == nil && out != "False" {
			err = errors.New(out)
		}
		return err
	})

	said := c.MustPlugin(t, "off", "--open-closed", "--dry-run=server")
	contains(t, said, "apiservice.apiregistration.k8s.io/v1alpha1.nsinit.dev deleted (server dry run)", "namespace/"+closed+" opened (server dry run)")
	if !c.IsClosed(t, closed) {
		t.Error("the dry run opened the namespace")
	}
	contains(t, c.MustPlugin(t, "off", "--open-closed"), "configmap/nsinit-off created", "nsinit-guard-create.configmap-nsinit-exemptions deleted", "namespace/"+closed+" opened")
	waitGateEvent(t, c, "GateNotInForce", "ConfigMap nsinit-system/nsinit-off exists")
	waitStamped(t, c, false)
	for _, namespace := range []string{closed, c.CreateNamespace(t, c.Admin).Name} {
		if err := framework.WriteConfigMap(t.Context(), c.Core, namespace); err != nil {
			t.Errorf("a write into namespace %s: %v", namespace, err)
		}
		c.DeleteNamespace(t, namespace)
		if namespace != closed { // the finalizer of nsinit stays while nsinit does not run
			c.WaitNoNamespace(t, namespace)
		}
	}
	waitCheck(t, c, "ran kubectl nsinit off")
	// Initializers would be selected by it later.
	tenant := kubernetes.NewForConfigOrDie(c.User(t, "e2e-forger", framework.Everything())).CoreV1().Namespaces()
	for key, value := range map[string]string{v1alpha1.AnnotationCreatedBy: "e2e-forger", v1alpha1.AnnotationCreatedByGroups: "platform-admins", v1alpha1.AnnotationOpenedBy: "root"} {
		_, err := tenant.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: map[string]string{v1alpha1.LabelInitializing: "true"},
			Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "e2e-forger", key: value}}}, metav1.CreateOptions{})
		if err := framework.RefusedBy(guardCreator, err, "create it without them"); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}

	c.Run(t, "nsinit-apiserver", args...)
	contains(t, c.MustPlugin(t, "on"), "configmap/nsinit-off deleted")
	// nsinit-controller-manager registers the API of a server that runs in pods.
	service.ObjectMeta = metav1.ObjectMeta{Name: service.Name, Labels: service.Labels}
	if _, err := apis.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.WaitServing(t)
	waitStamped(t, c, true)
	c.WaitNoNamespace(t, closed)
	framework.Eventually(t, "check finds the gate in force", func(context.Context) error {
		out, _, _ := c.Plugin(t, "check")
		if !strings.Contains(out, "a new namespace is closed until it is initialized") {
			return errors.New(out)
		}
		return nil
	})
	if _, err := c.Core.CoreV1().ConfigMaps(installation.DefaultNamespace).Get(t.Context(), installation.Off, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap: %v", err)
	}
}

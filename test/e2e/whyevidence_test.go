//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// holdBy makes a controller hold a namespace with a finalizer.
func holdBy(t *testing.T, c *framework.Cluster, namespace, controller, finalizer string) {
	t.Helper()
	if _, err := c.KubectlInput("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+", finalizers: ["+finalizer+"]}\n",
		"apply", "--server-side", "--field-manager="+controller); err != nil {
		t.Fatal(err)
	}
}

// withoutPods is a Deployment without replicas, with a separate service account.
func withoutPods(name string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s, namespace: default}, spec: {replicas: 0, selector: {matchLabels: {app: %[1]s}},
  template: {metadata: {labels: {app: %[1]s}}, spec: {serviceAccountName: %[1]s, containers: [{name: %[1]s, image: %[1]s}]}}}}
`, name)
}

// permitted lets the service account of this Deployment remove finalizers.
func permitted(name string) string {
	return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %[1]s},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, namespace: default, name: %[1]s}]}
`, name)
}

// stopped is a controller without pods.
func stopped(name string) string { return withoutPods(name) + "---\n" + permitted(name) }

// TestWhyEvidence: why shows whether the controller behind a finalizer runs, and how it knows.
func TestWhyEvidence(t *testing.T) {
	c := framework.Share(t)
	namespace, controller := c.CreateNamespace(t, c.Admin).Name, framework.UniqueName("billing")
	c.WaitReady(t, namespace)
	holdBy(t, c, namespace, controller, framework.Holder)
	c.DeleteNamespace(t, namespace)
	t.Cleanup(func() {
		_, _ = c.Kubectl("patch", "namespace", namespace, "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`)
	})
	waitFor := func(want diagnosis.Liveness, says string, args ...string) diagnosis.Finding {
		t.Helper()
		var found diagnosis.Finding
		framework.Eventually(t, fmt.Sprintf("the controller is %s", want), func(context.Context) error {
			found = c.WaitWhy(t, namespace, diagnosis.NamespaceFinalizer, diagnosis.Stuck, append(args, "--patience=1s")...)
			if found.Controller == nil || found.Controller.State != want || !strings.Contains(framework.JSON(t, found.Controller), says) {
				return fmt.Errorf("found %s", framework.JSON(t, found.Controller))
			}
			return nil
		})
		checkRemedies(t, found)
		return found
	}
	waitFor(diagnosis.Unknown, "set the finalizer")

	// A Deployment that a tenant can create, too, shows nothing.
	c.ApplyInput(t, withoutPods(controller))
	waitFor(diagnosis.Unknown, "but is not the controller: its service account may not remove the finalizer")

	// Its Deployment has no replicas.
	c.ApplyInput(t, permitted(controller))
	finding := waitFor(diagnosis.Dead, "has no replicas and no pods, and its service account may remove the finalizer")
	if first := finding.Remedies[0]; first.Command != "kubectl --namespace default scale deployment/"+controller+" --replicas=1" {
		t.Errorf("the first remedy is %+v", first)
	}
	text, _, _ := c.Plugin(t, "why", namespace, "--patience=1s")
	for _, part := range []string{`Its controller: dead ("` + controller + `")`, "- dead: Deployment default/" + controller} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
	table, _, _ := c.Plugin(t, "why", "--all", "--patience=1s")
	if !regexp.MustCompile(namespace + ` +Terminating .* Stuck +NamespaceFinalizer +Dead `).MatchString(table) {
		t.Errorf("the table is:\n%s", table)
	}

	// A user who may not read Deployments does not conclude that it is dead.
	c.User(t, "e2e-why-evidence", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	waitFor(diagnosis.Unknown, "not checked: ", "--as=e2e-why-evidence")

	// A controller that was uninstalled is not known to be dead.
	if _, err := c.Kubectl("--namespace", "default", "delete", "deployment", controller); err != nil {
		t.Fatal(err)
	}
	finding = waitFor(diagnosis.Unknown, "set the finalizer")
	cure(t, c, finding, "remove this finalizer")
	c.WaitNoNamespace(t, namespace)
}

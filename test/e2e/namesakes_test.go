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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const gateOfNamesakes = "nsinit-gate-namesakes"

// namesakeDefinition defines custom resources that are named like namespaces, as those of Azure
// Service Operator are.
func namesakeDefinition() string { return definition("namesake."+customGroup, "Namespace") }

const (
	namesakes = "/apis/namesake.e2e.example.com/v1/namespaces/{ns}/namespaces"
	// kube-apiserver reads this path as that of the object {ns} in the namespace {ns}.
	namesakeShort = "/apis/namesake.e2e.example.com/v1/namespaces/{ns}"
)

// namesakeCells returns writes of every verb to custom resources that are named namespaces.
func namesakeCells() []cell {
	const (
		kind   = `"apiVersion":"namesake.e2e.example.com/v1","kind":"Namespace"`
		forged = `"labels":{"` + v1alpha1.LabelInitializing + `":"true"}`
		scale  = `{"spec":{"replicas":2}}`
	)
	forge := func(object *unstructured.Unstructured) {
		object.SetLabels(map[string]string{v1alpha1.LabelInitializing: "true"})
	}
	cells := []cell{
		{name: "create", method: "POST", path: namesakes, body: `{` + kind + `,"metadata":{"name":"new"}}`},
		{name: "create with a generated name", method: "POST", path: namesakes, body: `{` + kind + `,"metadata":{"generateName":"new-"}}`},
		{name: "create with a forged label", method: "POST", path: namesakes, body: `{` + kind + `,"metadata":{"name":"new",` + forged + `}}`},
		{name: "create by apply", method: "PATCH", path: namesakes + "/new", contentType: applyPatch, body: `{` + kind + `,"metadata":{"name":"new"}}`},
		{name: "create by apply with a forged label", method: "PATCH", path: namesakes + "/new", contentType: applyPatch, body: `{` + kind + `,"metadata":{"name":"new",` + forged + `}}`},
		{name: "create by apply at the short path", method: "PATCH", path: namesakeShort, contentType: applyPatch, body: `{` + kind + `,"metadata":{"name":"{ns}"}}`},
		{name: "update with a forged label", method: "PUT", path: namesakes + "/there", change: forge},
		{name: "patch with a forged label", method: "PATCH", path: namesakes + "/there", contentType: mergePatch, body: `{"metadata":{` + forged + `}}`},
		{name: "delete a collection", method: "DELETE", path: namesakes},
		{name: "update scale", method: "PUT", path: namesakes + "/there/scale"},
		{name: "patch scale", method: "PATCH", path: namesakes + "/there/scale", contentType: mergePatch, body: scale},
		{name: "JSON patch of scale", method: "PATCH", path: namesakes + "/there/scale", contentType: jsonPatch, body: `[{"op":"replace","path":"/spec/replicas","value":2}]`},
	}
	for where, path := range map[string]string{"": namesakes + "/there", " at the short path": namesakeShort} {
		cells = append(cells,
			cell{name: "update" + where, method: "PUT", path: path},
			cell{name: "patch" + where, method: "PATCH", path: path, contentType: mergePatch, body: scale},
			cell{name: "JSON patch" + where, method: "PATCH", path: path, contentType: jsonPatch, body: `[{"op":"replace","path":"/spec/replicas","value":2}]`},
			cell{name: "apply" + where, method: "PATCH", path: path, contentType: applyPatch, body: `{` + kind + `,"spec":{"replicas":2}}`},
			cell{name: "delete" + where, method: "DELETE", path: path},
			cell{name: "update status" + where, method: "PUT", path: path + "/status"},
			cell{name: "patch status" + where, method: "PATCH", path: path + "/status", contentType: mergePatch, body: `{"status":{"replicas":1}}`},
			cell{name: "apply status" + where, method: "PATCH", path: path + "/status", contentType: applyPatch, body: `{` + kind + `,"status":{"replicas":1}}`},
		)
	}
	return cells
}

// createNamesakes creates the objects that namesakeCells change.
func createNamesakes(t *testing.T, c *framework.Cluster, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		for _, name := range []string{"there", namespace} {
			framework.Eventually(t, "a custom resource named namespaces is created", func(context.Context) error {
				_, err := c.KubectlInput("apiVersion: namesake.e2e.example.com/v1\nkind: Namespace\nmetadata: {name: "+name+"}\nspec: {replicas: 1}\n",
					"apply", "--server-side", "--namespace", namespace)
				return err
			})
		}
	}
}

// TestGateNamesakes: kube-apiserver takes the labels that a namespaceSelector reads from the object itself
// where a resource is named namespaces, in any group. The gate reads those of the namespace there, too.
func TestGateNamesakes(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	c.ApplyInput(t, namesakeDefinition())
	open := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, open)
	closed := c.CreateHeld(t, c.Admin).Name
	createNamesakes(t, c, open, closed)
	tenantConfig := c.User(t, "e2e-namesake", framework.Everything())
	tenant, initializer := newGateClient(c, tenantConfig), newGateClient(c, c.User(t, "e2e-namesake-initializer", framework.Everything(), framework.Initialize()))
	for _, cell := range namesakeCells() {
		t.Run(cell.name, func(t *testing.T) {
			if err := framework.RefusedBy(gateOfNamesakes, tenant.try(t.Context(), cell, closed, false), fmt.Sprintf("namespace %q", closed), `"hold.example.com"`, "condition Ready"); err != nil {
				t.Errorf("a tenant in a closed namespace: %v", err)
			}
			if err := initializer.try(t.Context(), cell, closed, true); err != nil {
				t.Errorf("an initializer in a closed namespace: %v", err)
			}
			if err := tenant.try(t.Context(), cell, open, true); err != nil {
				t.Errorf("a tenant in an open namespace: %v", err)
			}
		})
	}

	t.Run("early writes", func(t *testing.T) {
		c.AskTenantToRetry(t, tenantConfig)
		for _, cell := range namesakeCells() {
			err := tenant.try(t.Context(), cell, closed, false)
			if seconds, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !retry || seconds < 1 || !strings.Contains(err.Error(), `"hold.example.com"`) {
				t.Errorf("%s: a tenant in a closed namespace got: %v", cell.name, err)
			}
		}
		asked := earlyWrites(t, c)
		for _, cell := range namesakeCells() {
			if err := initializer.try(t.Context(), cell, closed, true); err != nil {
				t.Errorf("%s: an initializer in a closed namespace: %v", cell.name, err)
			}
			if err := tenant.try(t.Context(), cell, open, true); err != nil {
				t.Errorf("%s: a tenant in an open namespace: %v", cell.name, err)
			}
		}
		if now := earlyWrites(t, c); now != asked {
			t.Errorf("%d writes that are not too early were refused", now-asked)
		}
	})
}

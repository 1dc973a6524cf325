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
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// The tests in this file are the experiments of docs/decisions.md. Each fails if the observation that a decision relies on does
// not hold on this version of Kubernetes.

// stampedDeployment is a Deployment as an initializer for arbitrary objects would close it, and the gate for it.
const (
	stampedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: stamped, namespace: NAMESPACE, labels: {e2e.example.com/initializing: "true"}}
spec:
  replicas: 1
  selector: {matchLabels: {app: stamped}}
  template:
    metadata: {labels: {app: stamped}}
    spec: {containers: [{name: main, image: none}]}
`
	labelGate = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-label-gate}
spec:
  matchConstraints:
    objectSelector: {matchLabels: {e2e.example.com/initializing: "true"}}
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["UPDATE", "DELETE", "CONNECT"], resources: ["*/*"], scope: Namespaced}
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["CREATE"], resources: ["*/*"], scope: Namespaced}
  matchConditions:
  - {name: of-the-test, expression: "request.namespace == 'NAMESPACE'"}
  - {name: tenants, expression: "request.userInfo.username == 'e2e-decisions'"}
  validations: [{expression: "request.operation == 'CREATE' && request.subResource == ''", reason: Forbidden, message: the object is initializing}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: e2e-label-gate}
spec: {policyName: e2e-label-gate, validationActions: [Deny]}
`
)

// TestDecisionsStampedDeployment: kube-controller-manager acts on a Deployment that a label marks as not initialized, and clients
// see it.
func TestDecisionsStampedDeployment(t *testing.T) {
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	began := time.Now()
	c.ApplyInput(t, strings.ReplaceAll(stampedDeployment, "NAMESPACE", namespace))
	framework.Eventually(t, "the Deployment has a pod", func(ctx context.Context) error {
		pods, err := c.Core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
	t.Logf("the Deployment has a pod after %s", time.Since(began).Round(10*time.Millisecond))
	list, err := c.Core.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Labels["e2e.example.com/initializing"] != "true" {
		t.Errorf("the list has %d Deployments: %v", len(list.Items), err)
	}
}

// TestDecisionsLabelGate: a gate that selects objects by a label refuses writes to these objects. It does not refuse
// writes to subresources whose objects have no labels: scale, eviction, binding and exec.
func TestDecisionsLabelGate(t *testing.T) {
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	c.ApplyInput(t, strings.ReplaceAll(stampedDeployment, "NAMESPACE", namespace))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stamped", Labels: map[string]string{"e2e.example.com/initializing": "true"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	if _, err := c.Core.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.ApplyInput(t, strings.ReplaceAll(labelGate, "NAMESPACE", namespace))
	connect := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create"}}
	tenant := kubernetes.NewForConfigOrDie(c.User(t, "e2e-decisions", framework.Everything(), connect))
	deployments, pods := tenant.AppsV1().Deployments(namespace), tenant.CoreV1().Pods(namespace)
	patch := func(ctx context.Context, body string, subresources ...string) error {
		_, err := deployments.Patch(ctx, "stamped", types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
		return err
	}
	const scale = `{"spec":{"replicas":2}}`
	framework.Eventually(t, "the gate refuses a patch", func(ctx context.Context) error {
		return framework.RefusedBy("e2e-label-gate", patch(ctx, scale), "the object is initializing")
	})
	for what, err := range map[string]error{
		"status": patch(t.Context(), `{"status":{"conditions":null}}`, "status"),
		"delete": deployments.Delete(t.Context(), "stamped", metav1.DeleteOptions{}),
	} {
		if err := framework.RefusedBy("e2e-label-gate", err, "the object is initializing"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	exec := tenant.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("stamped").SubResource("exec").
		Param("command", "true").Param("stdout", "true").Do(t.Context()).Error()
	if !apierrors.IsBadRequest(exec) || exec.Error() != "pod stamped does not have a host assigned" {
		t.Errorf("exec reaches the pod, which runs on no node: %v", exec)
	}
	if err := patch(t.Context(), scale, "scale"); err != nil {
		t.Errorf("scale: %v", err)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "stamped"}, Target: corev1.ObjectReference{Kind: "Node", Name: "none"}}
	if err := pods.Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Errorf("binding: %v", err)
	}
	if err := pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "stamped"}}); err != nil {
		t.Errorf("eviction: %v", err)
	}
}

// TestDecisionsReadinessGates: every user who may write the status of a namespace can set the condition of another program. An
// initializer can remove only its own entry from a NamespaceLifecycle.
func TestDecisionsReadinessGates(t *testing.T) {
	c := framework.Connect(t)
	c.Configure(t, framework.Initializers("a.example.com", "b.example.com")...)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, "a.example.com")
	rules := []rbacv1.PolicyRule{framework.Everything(), framework.Initialize(), {
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.ResourceInitializers}, ResourceNames: []string{"a.example.com"}, Verbs: []string{v1alpha1.VerbInitialize},
	}}
	user := c.User(t, "e2e-initializer-a", rules...)
	if _, err := kubernetes.NewForConfigOrDie(user).CoreV1().Namespaces().Patch(t.Context(), namespace, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"b.example.com/Ready","status":"True","reason":"Forged","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("the condition of b.example.com: %v", err)
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lifecycle.Spec.Initializers.Pending = nil
		_, err = versioned.NewForConfigOrDie(user).NsinitV1alpha1().NamespaceLifecycles().Initialize(t.Context(), namespace, lifecycle, metav1.UpdateOptions{})
		return err
	})
	t.Logf("both entries: %v", err)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "b.example.com") {
		t.Errorf("a.example.com removes the entry of b.example.com: %v", err)
	}
}

// TestDecisionsMetadata: kube-apiserver has no place for initializers in the metadata of a namespace. It refuses or drops them.
func TestDecisionsMetadata(t *testing.T) {
	c := framework.Share(t)
	manifest := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + c.Name("container") + ", initializers: [{name: a.example.com}]}\n"
	_, err := c.KubectlInput(manifest, "create", "--dry-run=server", "--validate=strict")
	t.Logf("strict: %v", err)
	if err == nil || !strings.Contains(err.Error(), `unknown field "metadata.initializers"`) {
		t.Errorf("strict: %v", err)
	}
	out, err := c.KubectlInput(manifest, "create", "--dry-run=server", "--validate=ignore", "--output=yaml")
	if err != nil || strings.Contains(out, "initializers:") {
		t.Errorf("not strict: %v\n%s", err, out)
	}
}

// TestDecisionsCustomResource: a custom resource has no subresources besides status and scale, and cannot select by an entry of
// a list.
func TestDecisionsCustomResource(t *testing.T) {
	c := framework.Share(t)
	const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lifecycles.e2e-decisions.example.com}
spec:
  group: e2e-decisions.example.com
  scope: Cluster
  names: {plural: lifecycles, singular: lifecycle, kind: Lifecycle}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}MORE}
    schema: {openAPIV3Schema: {type: object, properties: {status: {type: object, properties: {currentInitializers: {type: array, items: {type: string}}}}}}}
    FIELDS
`
	create := func(more, fields string) error {
		_, err := c.KubectlInput(strings.NewReplacer("MORE", more, "FIELDS", fields).Replace(definition), "create", "--dry-run=server", "--validate=strict")
		return err
	}
	if err := create("", ""); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ more, fields, want string }{
		{", initialize: {}", "", `unknown field "spec.versions[0].subresources.initialize"`},
		{"", `selectableFields: [{jsonPath: ".status.currentInitializers[0]"}]`, "selectableFields[0].jsonPath"},
	} {
		err := create(test.more, test.fields)
		t.Logf("%s%s: %v", test.more, test.fields, err)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s%s: want %q: %v", test.more, test.fields, test.want, errors.Join(err, errors.New("(no other error)")))
		}
	}
}

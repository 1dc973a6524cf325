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

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// heldPods and heldJobs close each new pod and each new Job of a namespace with the means of Kubernetes. heldGuard lets only users who
// may initialize them open them.
const (
	heldBinding = `
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: e2e-held-KIND}
spec: {policyName: e2e-held-KIND, matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}}
`
	heldPods = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: e2e-held-pods}
spec:
  reinvocationPolicy: IfNeeded
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{spec: Object.spec{schedulingGates: [Object.spec.schedulingGates{name: "e2e.example.com/scan"}]}}'
` + heldBinding
	heldJobs = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: e2e-held-jobs}
spec:
  reinvocationPolicy: IfNeeded
  matchConstraints: {resourceRules: [{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"e2e.example.com/scan": ""}}, spec: Object.spec{suspend: true}}'
` + heldBinding
	heldGuard = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-held-guard}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods]}
    - {apiGroups: [batch], apiVersions: [v1], operations: [UPDATE], resources: [jobs]}
  variables:
  - name: held
    expression: >-
      request.resource.resource == 'pods' ? oldObject.spec.?schedulingGates.orValue([]).exists(g, g.name == 'e2e.example.com/scan') :
      'e2e.example.com/scan' in oldObject.metadata.?labels.orValue({})
  - name: stays
    expression: >-
      request.resource.resource == 'pods' ? object.spec.?schedulingGates.orValue([]).exists(g, g.name == 'e2e.example.com/scan') :
      'e2e.example.com/scan' in object.metadata.?labels.orValue({}) && object.spec.?suspend.orValue(false)
  - name: may
    expression: authorizer.group('e2e.example.com').resource('initializers').name('scan').check('initialize').allowed()
  validations: [{expression: "!variables.held || variables.stays || variables.may", reason: Forbidden, message: the workload is initializing}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: e2e-held-guard}
spec:
  policyName: e2e-held-guard
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
`
	heldWorkloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: held, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: held}}
  template:
    metadata: {labels: {app: held}}
    spec: {containers: [{name: main, image: none}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: held, namespace: NAMESPACE}
spec: {template: {metadata: {labels: {app: job}}, spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}}
`
)

// TestDecisionsHeldWorkloads: Kubernetes itself holds pods with scheduling gates and suspended Jobs, and one policy can decide who lets
// them start.
func TestDecisionsHeldWorkloads(t *testing.T) {
	c := framework.Share(t)
	if !c.StampsByPolicy(t) {
		t.Skip("this version of Kubernetes has no MutatingAdmissionPolicies")
	}
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	tenant := kubernetes.NewForConfigOrDie(c.User(t, "e2e-held-tenant", framework.Everything()))
	pods, jobs := c.Core.CoreV1().Pods(namespace), c.Core.BatchV1().Jobs(namespace)
	gated := podOf("unguarded")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e.example.com/scan"}}
	if _, err := pods.Create(t.Context(), gated, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.CoreV1().Pods(namespace).Patch(t.Context(), gated.Name, types.MergePatchType, []byte(ungate), metav1.PatchOptions{}); err != nil {
		t.Errorf("a tenant removes a gate without a policy: %v", err)
	}
	for kind, policy := range map[string]string{"pods": heldPods, "jobs": heldJobs, "": heldGuard} {
		c.ApplyInput(t, strings.NewReplacer("KIND", kind, "NAMESPACE", namespace).Replace(policy))
	}
	initializer := kubernetes.NewForConfigOrDie(c.User(t, "e2e-held-initializer", framework.Everything(), rbacv1.PolicyRule{
		APIGroups: []string{"e2e.example.com"}, Resources: []string{"initializers"}, ResourceNames: []string{"scan"}, Verbs: []string{"initialize"},
	}))
	waitHeld(t, c, tenant, namespace)
	c.ApplyInput(t, strings.ReplaceAll(heldWorkloads, "NAMESPACE", namespace))
	var pod corev1.Pod
	framework.Eventually(t, "the pod of the Deployment waits", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=held"})
		if err != nil || len(list.Items) != 1 {
			return errors.Join(err, fmt.Errorf("%d pods", len(list.Items)))
		}
		pod = list.Items[0]
		for _, condition := range pod.Status.Conditions {
			if condition.Reason == corev1.PodReasonSchedulingGated && pod.Spec.NodeName == "" {
				return nil
			}
		}
		return fmt.Errorf("on %q: %v", pod.Spec.NodeName, pod.Status.Conditions)
	})
	framework.Eventually(t, "the Job waits", func(ctx context.Context) error {
		job, err := jobs.Get(ctx, "held", metav1.GetOptions{})
		if err != nil || len(job.Status.Conditions) == 0 || job.Status.Conditions[0].Type != batchv1.JobSuspended {
			return errors.Join(err, errors.New("it is not suspended"))
		}
		return nil
	})
	const resume, unlabel = `{"spec":{"suspend":false}}`, `{"metadata":{"labels":null}}`
	merge := func(client kubernetes.Interface, resource, name, body string) error {
		group := client.BatchV1().RESTClient()
		if resource == "pods" {
			group = client.CoreV1().RESTClient()
		}
		return group.Patch(types.MergePatchType).Namespace(namespace).Resource(resource).Name(name).Body([]byte(body)).Do(t.Context()).Error()
	}
	for what, err := range map[string]error{
		"a tenant removes the gate":  merge(tenant, "pods", pod.Name, ungate),
		"a tenant resumes the Job":   merge(tenant, "jobs", "held", resume),
		"a tenant removes the label": merge(tenant, "jobs", "held", unlabel),
	} {
		t.Logf("%s: %v", what, err)
		if err := framework.RefusedBy("e2e-held-guard", err, "the workload is initializing"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	bound := pods.Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "none"},
	}, metav1.CreateOptions{})
	t.Logf("an administrator binds the pod: %v", bound)
	if !apierrors.IsConflict(bound) {
		t.Errorf("an administrator binds the pod: %v", bound)
	}
	placed := podOf("placed")
	placed.Spec.NodeName = "none"
	_, err := pods.Create(t.Context(), placed, metav1.CreateOptions{})
	t.Logf("an administrator creates a pod on a node: %v", err)
	if !apierrors.IsInvalid(err) {
		t.Errorf("an administrator creates a pod on a node: %v", err)
	}
	if err := errors.Join(merge(initializer, "pods", pod.Name, ungate), merge(initializer, "jobs", "held", `{"metadata":{"labels":null},"spec":{"suspend":false}}`)); err != nil {
		t.Error(err)
	}
	framework.Eventually(t, "the Job starts", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=job"})
		if err != nil || len(list.Items) != 1 {
			return errors.Join(err, fmt.Errorf("%d pods", len(list.Items)))
		}
		t.Logf("the pod of the Job: %v", list.Items[0].Spec.SchedulingGates)
		return nil
	})
}

// ungate removes the scheduling gates of a pod.
const ungate = `{"spec":{"schedulingGates":null}}`

func podOf(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

// waitHeld waits until kube-apiserver evaluates the three policies.
func waitHeld(t *testing.T, c *framework.Cluster, tenant kubernetes.Interface, namespace string) {
	t.Helper()
	framework.Eventually(t, "the policies hold a pod and a Job", func(ctx context.Context) error {
		pod, err := c.Core.CoreV1().Pods(namespace).Create(ctx, podOf(framework.UniqueName("probe")), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if len(pod.Spec.SchedulingGates) == 0 {
			return errors.New("the pod has no gate")
		}
		job, err := c.Core.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
			Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: podOf("").Spec.Containers}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if job.Spec.Suspend == nil || !*job.Spec.Suspend {
			return errors.New("the Job is not suspended")
		}
		_, err = tenant.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(ungate), metav1.PatchOptions{})
		return framework.RefusedBy("e2e-held-guard", err, "the workload is initializing")
	})
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/faults/history"
)

// podSpec is that of every pod. Without a grace period, kube-apiserver removes a deleted pod itself: no kubelet does.
func podSpec() corev1.PodSpec {
	return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "main", Image: "none"}}, TerminationGracePeriodSeconds: new(int64(0))}
}

// startWork creates a pod or a Job, or creates or scales a Deployment. Some pods have gates that their creator chose.
func (t *Traffic) startWork(ctx context.Context, client kubernetes.Interface, mark map[string]string, namespace string) error {
	switch t.pick(3) {
	case 0:
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Annotations: mark}, Spec: podSpec()}
		if t.chance(0.3) {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PendingPrefix + approver}, {Name: v1alpha1.PendingPrefix + "forged.example.com"}}
		}
		_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	case 1:
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{GenerateName: "job-", Annotations: mark}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: podSpec()}}}
		job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, err := client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{})
		return err
	}
	return t.deploy(ctx, client, namespace)
}

// deploy creates a Deployment, or changes its number of pods. It has no mark of the tenant, because kube-controller-manager copies
// it to ReplicaSets, which the tenant does not write.
func (t *Traffic) deploy(ctx context.Context, client kubernetes.Interface, namespace string) error {
	labels := map[string]string{"app": "deployed"}
	deployment := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "deployed"}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(t.pick(3))), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
	}}
	data, err := json.Marshal(deployment)
	if err != nil {
		return err
	}
	_, err = client.AppsV1().Deployments(namespace).Patch(ctx, deployment.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: tenantUser, Force: new(true)})
	return err
}

// idle returns the pods without a node and the Jobs that did not start, in namespaces whose names begin with a prefix.
func idle(ctx context.Context, core kubernetes.Interface, prefix string) (names []string, err error) {
	pods, err := core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if strings.HasPrefix(pod.Namespace, prefix) {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	jobs, err := core.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, job := range jobs.Items {
		if strings.HasPrefix(job.Namespace, prefix) && job.Status.StartTime == nil {
			names = append(names, job.Namespace+"/"+job.Name)
		}
	}
	return names, nil
}

// meddleWithWork tries to let pods and Jobs run before their initializers are done, as a user that may write them.
func (t *Traffic) meddleWithWork(ctx context.Context) {
	core, err := kubernetes.NewForConfig(t.options.Servers[0])
	if err != nil {
		return
	}
	var clients []kubernetes.Interface
	for _, server := range t.options.Servers {
		client, err := kubernetes.NewForConfig(t.user(server, "work-meddler", history.RoleMeddler, meddlerUser))
		if err != nil {
			return
		}
		clients = append(clients, client)
	}
	for t.sleep(ctx, 100*time.Millisecond, 300*time.Millisecond) {
		client := clients[t.pick(len(clients))]
		if t.chance(0.5) {
			t.meddleWithPods(ctx, core, client)
		} else {
			t.meddleWithJobs(ctx, core, client)
		}
	}
}

// meddleWithPods removes gates, binds a pod, or creates a pod that is bound.
func (t *Traffic) meddleWithPods(ctx context.Context, core, client kubernetes.Interface) {
	list, err := core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		return
	}
	waiting := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return !strings.HasPrefix(pod.Namespace, t.options.Prefix) || len(helper.PendingOfObject(&pod)) == 0
	})
	if len(waiting) == 0 {
		return
	}
	pod := waiting[t.pick(len(waiting))]
	pods := client.CoreV1().Pods(pod.Namespace)
	switch t.pick(5) {
	case 0:
		_, _ = pods.Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{})
	case 1:
		_, _ = pods.Patch(ctx, pod.Name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/schedulingGates/0"}]`), metav1.PatchOptions{})
	case 2: // not the first one
		_, _ = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, fmt.Appendf(nil, `{"spec":{"schedulingGates":[{"$patch":"delete","name":"%s%s"}]}}`, v1alpha1.PendingPrefix, approver), metav1.PatchOptions{})
	case 3:
		_ = pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-0"}}, metav1.CreateOptions{})
	default:
		bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "bound-"}, Spec: podSpec()}
		bound.Spec.NodeName = "node-0"
		_, _ = pods.Create(ctx, bound, metav1.CreateOptions{})
	}
}

// meddleWithJobs removes labels of a Job, or resumes it.
func (t *Traffic) meddleWithJobs(ctx context.Context, core, client kubernetes.Interface) {
	list, err := core.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	waiting := slices.DeleteFunc(list.Items, func(job batchv1.Job) bool {
		return !strings.HasPrefix(job.Namespace, t.options.Prefix) || len(helper.PendingOfObject(&job)) == 0
	})
	if len(waiting) == 0 {
		return
	}
	job := waiting[t.pick(len(waiting))]
	unlabel := fmt.Appendf(nil, `{"metadata":{"labels":{"%[1]s%[2]s":null,"%[1]s%[3]s":null}}}`, v1alpha1.PendingPrefix, scanner, approver)
	patch, subresources := unlabel, []string(nil)
	switch t.pick(3) {
	case 0:
		patch = []byte(`{"spec":{"suspend":false}}`)
	case 1:
		subresources = append(subresources, "status")
	}
	_, _ = client.BatchV1().Jobs(job.Namespace).Patch(ctx, job.Name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

const (
	// nodeCount is the number of nodes.
	nodeCount = 3
	// objectsProbe is the namespace in which dry runs show whether the component objects acts. No initializer of the traffic selects it.
	objectsProbe = "probe-objects"
)

// addScheduler adds kube-scheduler.
func (c *Cluster) addScheduler() error {
	port, err := c.port(kubeScheduler)
	if err != nil {
		return err
	}
	kubeconfig, err := c.kubeconfig(kubeScheduler, kubeScheduler, 0)
	if err != nil {
		return err
	}
	c.add(kubeScheduler, kubeScheduler, []string{"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--kubeconfig=" + kubeconfig,
		"--authentication-skip-lookup=true", "--leader-elect=false"})
	return nil
}

// createNodes creates nodes that are ready and have room for every pod. kube-apiserver adds a taint to each new node, which
// kube-controller-manager removes when a kubelet reports.
func (c *Cluster) createNodes(ctx context.Context) error {
	nodes := kubernetes.NewForConfigOrDie(c.admin).CoreV1().Nodes()
	room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100k"), corev1.ResourceCPU: resource.MustParse("100k"), corev1.ResourceMemory: resource.MustParse("100Ti")}
	for i := range nodeCount {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}, Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}}
		err := eventually(ctx, func(ctx context.Context) error {
			if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			stored, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
			if err != nil || len(stored.Spec.Taints) == 0 {
				return err
			}
			stored.Spec.Taints = nil
			_, err = nodes.Update(ctx, stored, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return fmt.Errorf("cannot create %s: %w", node.Name, err)
		}
	}
	return nil
}

// installObjects installs the component objects, and creates the namespace of its probes.
func (c *Cluster) installObjects(ctx context.Context) error {
	component := filepath.Join(c.base.Root, "artifacts", "deploy", "components", "objects")
	if _, err := c.base.Admin(ctx, "apply", "--server-side", "--filename="+filepath.Join(component, "guard.yaml"), "--filename="+filepath.Join(component, "rights.yaml")); err != nil {
		return err
	}
	return eventually(ctx, func(ctx context.Context) error {
		_, err := kubernetes.NewForConfigOrDie(c.admin).CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: objectsProbe}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// objectsGuarded waits until each kube-apiserver evaluates the policies of the component. It shows this for the last one that refuses
// requests.
func (c *Cluster) objectsGuarded(ctx context.Context) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.PendingPrefix + "probe.example.com": "0"}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}}}
	return eventually(ctx, func(ctx context.Context) error {
		for i := range c.options.Topology.KubeAPIServers {
			_, err := kubernetes.NewForConfigOrDie(c.Admin(i)).BatchV1().Jobs(objectsProbe).Create(ctx, job, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil || !strings.Contains(err.Error(), "nsinit-objects-templates") {
				return errors.Join(fmt.Errorf("the component objects does not act on kube-apiserver-%d", i), err)
			}
		}
		return nil
	})
}

// HoldsObjects waits until every InitializerConfiguration is in force, and new pods and Jobs wait for initializers on each kube-apiserver.
func (c *Cluster) HoldsObjects(ctx context.Context) error {
	probe := metav1.ObjectMeta{Name: "probe"}
	spec := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "none"}}}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	return eventually(ctx, func(ctx context.Context) error {
		for i := range c.options.Topology.KubeAPIServers {
			core := kubernetes.NewForConfigOrDie(c.Admin(i))
			pod, podErr := core.CoreV1().Pods(objectsProbe).Create(ctx, &corev1.Pod{ObjectMeta: probe, Spec: spec}, dryRun)
			job, jobErr := core.BatchV1().Jobs(objectsProbe).Create(ctx, &batchv1.Job{ObjectMeta: probe, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}, dryRun)
			if err := errors.Join(podErr, jobErr); err != nil {
				return err
			}
			if held := helper.PendingOfObject(pod); len(held) == 0 || !slices.Equal(held, helper.PendingOfObject(job)) {
				return fmt.Errorf("kube-apiserver-%d holds a new pod for %q, and a new Job for %q", i, held, helper.PendingOfObject(job))
			}
		}
		configurations, err := versioned.NewForConfigOrDie(c.admin).NsinitV1alpha1().InitializerConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, configuration := range configurations.Items {
			condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionInForce)
			if condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != configuration.Generation {
				return fmt.Errorf("InitializerConfiguration %s is not in force: %+v", configuration.Name, condition)
			}
		}
		return nil
	})
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// examineGracePeriods reports objects that have no finalizer, and time to end, or had.
func (e *examination) examineGracePeriods(ctx context.Context, all []scanned) {
	var ending, overdue, pods []string
	var ends, since, podsSince *metav1.Time
	for _, s := range all {
		for _, object := range s.objects {
			deleted := object.DeletionTimestamp
			switch name := resourceName(s.resource) + "/" + object.Name; {
			case deleted == nil || len(object.Finalizers) > 0:
			case deleted.After(e.Clock.Now()):
				ending, ends = append(ending, name), later(ends, deleted)
			case s.resource.GroupResource() == corev1.Resource("pods"):
				pods, podsSince = append(pods, object.Name), earlier(podsSince, deleted)
			default:
				overdue, since = append(overdue, name), earlier(since, deleted)
			}
		}
	}
	if len(ending) > 0 {
		e.found(Finding{Cause: GracePeriod, State: Waiting,
			Message: fmt.Sprintf("%s: time to end, %s at most", listed(ending), ends.Sub(e.Clock.Now()).Round(time.Second))})
	}
	if len(overdue) > 0 {
		e.found(Finding{Cause: GracePeriod, State: e.since(since), Since: since, Message: unconfirmed(overdue),
			Remedies: []Remedy{{Description: "see what the objects say", Command: fmt.Sprintf("kubectl --namespace %s get %s --output yaml", e.Namespace, overdue[0])}}})
	}
	if len(pods) > 0 {
		e.overduePods(ctx, pods, podsSince)
	}
}

func later(a, b *metav1.Time) *metav1.Time {
	if a == nil || a.Before(b) {
		return b
	}
	return a
}

func earlier(a, b *metav1.Time) *metav1.Time {
	if a == nil || b.Before(a) {
		return b
	}
	return a
}

func unconfirmed(names []string) string {
	return fmt.Sprintf("%s: the grace period is over, and the end has not been confirmed", listed(names))
}

// overduePods says which nodes should have confirmed the end of pods.
func (e *examination) overduePods(ctx context.Context, names []string, since *metav1.Time) {
	nodes := map[string][]string{"": names}
	if list, err := e.Core.CoreV1().Pods(e.Namespace).List(ctx, metav1.ListOptions{}); err != nil {
		e.notExamined("the nodes of pods", err)
	} else {
		nodes = map[string][]string{}
		for _, pod := range list.Items {
			if slices.Contains(names, pod.Name) {
				nodes[pod.Spec.NodeName] = append(nodes[pod.Spec.NodeName], pod.Name)
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		pods := nodes[node]
		finding := Finding{Cause: GracePeriod, State: e.since(since), Since: since, Message: "pods " + unconfirmed(pods),
			Remedies: []Remedy{{Description: "see what a pod says", Command: fmt.Sprintf("kubectl --namespace %s describe pod %s", e.Namespace, pods[0])}}}
		if node != "" {
			finding.Message += fmt.Sprintf(" by the kubelet of node %q%s", node, e.nodeState(ctx, node))
			finding.Remedies = append(finding.Remedies,
				Remedy{Description: "see whether the node is there and Ready, and bring it back", Command: "kubectl get node " + node},
				Remedy{Description: "if the machine is off for good, remove the node, and its pods with it", Command: "kubectl delete node " + node,
					Risk: "make sure that it is off: otherwise its containers go on without anybody knowing"})
		}
		finding.Remedies = append(finding.Remedies, Remedy{Description: "do not wait for the confirmation",
			Command: fmt.Sprintf("kubectl --namespace %s delete pod --grace-period=0 --force %s", e.Namespace, strings.Join(pods, " ")),
			Risk:    "if the node is alive, the containers may go on, with their volumes and their name"})
		e.found(finding)
	}
}

// nodeState tells what is wrong with a node.
func (e *examination) nodeState(ctx context.Context, name string) string {
	node, err := e.Core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ", which does not exist"
	}
	if err != nil {
		return ""
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return ", which is Ready"
		}
	}
	return ", which is not Ready"
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
)

const (
	// runtimeLimit bounds the objects of a resource that are read to find programs. If more exist, no program is dead.
	runtimeLimit = 1000
	// podsRead bounds the pods of Leases, and the service accounts.
	podsRead = 10
)

// Runtime is what was read about the programs that run.
type Runtime struct {
	// Leases are those of the cluster, without those of nodes.
	Leases Answer[[]coordinationv1.Lease]
	// Workloads are the Deployments, StatefulSets and DaemonSets.
	Workloads Answer[[]workload]
	// Pods are the holders of Leases, by namespace/name.
	Pods map[string]Answer[*corev1.Pod]
	// Accounts are service accounts, by namespace/name.
	Accounts map[string]Account
}

// Account is a service account, with its pods.
type Account struct {
	Account Answer[*corev1.ServiceAccount]
	Pods    Answer[[]corev1.Pod]
}

// observeRuntime reads what shows whether the programs run that have to act. The lists are read once for all namespaces.
func (d Diagnoser) observeRuntime(ctx context.Context, o *Observation) {
	var actors []actor
	o.wanted = &actors
	judge(*o, rules()...)
	o.wanted = nil
	if len(actors) == 0 {
		return
	}
	lists := d.lists
	if lists == nil {
		lists = &runtimeLists{}
	}
	if !lists.read {
		lists.read, lists.leases, lists.workloads = true, d.readLeases(ctx), d.readWorkloads(ctx)
	}
	o.Runtime = Runtime{Leases: lists.leases, Workloads: lists.workloads, Pods: map[string]Answer[*corev1.Pod]{}, Accounts: map[string]Account{}}
	for _, a := range actors {
		d.observeActor(ctx, o, a)
	}
}

// runtimeLists are the lists that are the same for all namespaces.
type runtimeLists struct {
	read      bool
	leases    Answer[[]coordinationv1.Lease]
	workloads Answer[[]workload]
}

// observeActor reads the service account of a program with its pods, and the last holders of its Leases.
func (d Diagnoser) observeActor(ctx context.Context, o *Observation, a actor) {
	core := d.Core.CoreV1()
	if namespace, name := a.serviceAccount(); name != "" {
		key := namespace + "/" + name
		if _, read := o.Runtime.Accounts[key]; !read {
			account := Account{Account: Answer[*corev1.ServiceAccount]{Err: fmt.Errorf("only %d service accounts are read", podsRead)}}
			if len(o.Runtime.Accounts) < podsRead {
				account.Account = answer(core.ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{}))
				pods, err := core.Pods(namespace).List(ctx, metav1.ListOptions{Limit: runtimeLimit, FieldSelector: fields.OneTermEqualSelector("spec.serviceAccountName", name).String()})
				if account.Pods.Err = err; err == nil {
					account.Pods.Object = pods.Items
				}
			}
			o.Runtime.Accounts[key] = account
		}
	}
	if a.lease != "" {
		return
	}
	for i := range o.Runtime.Leases.Object {
		lease := &o.Runtime.Leases.Object[i]
		pod := holderPod(lease)
		if _, read := o.Runtime.Pods[pod]; pod == "" || read || len(o.Runtime.Pods) >= podsRead || !a.holds(lease) || o.isHeld(lease) {
			continue
		}
		namespace, name := lease.Namespace, pod[len(lease.Namespace)+1:]
		o.Runtime.Pods[pod] = answer(core.Pods(namespace).Get(ctx, name, metav1.GetOptions{}))
	}
}

// readLeases lists the Leases of programs.
func (d Diagnoser) readLeases(ctx context.Context) Answer[[]coordinationv1.Lease] {
	list, err := d.Core.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: runtimeLimit,
		FieldSelector: fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease).String()})
	if err != nil {
		return Answer[[]coordinationv1.Lease]{Err: err}
	}
	return Answer[[]coordinationv1.Lease]{Object: list.Items, Err: incomplete(list.Continue)}
}

// incomplete is the error for a list that has more items than are read.
func incomplete(more string) error {
	if more == "" {
		return nil
	}
	return fmt.Errorf("only %d are read", runtimeLimit)
}

// readWorkloads lists what runs programs.
func (d Diagnoser) readWorkloads(ctx context.Context) Answer[[]workload] {
	var all []workload
	options, apps := metav1.ListOptions{Limit: runtimeLimit}, d.Core.AppsV1()
	deployments, err := apps.Deployments(metav1.NamespaceAll).List(ctx, options)
	errs := []error{err}
	if err == nil {
		for i := range deployments.Items {
			item := &deployments.Items[i]
			all = append(all, newWorkload("Deployment", item.ObjectMeta, item.Spec.Template, ptr.Deref(item.Spec.Replicas, 1), item.Status.Replicas, item.Status.ReadyReplicas))
		}
		errs = append(errs, incomplete(deployments.Continue))
	}
	statefulSets, err := apps.StatefulSets(metav1.NamespaceAll).List(ctx, options)
	errs = append(errs, err)
	if err == nil {
		for i := range statefulSets.Items {
			item := &statefulSets.Items[i]
			all = append(all, newWorkload("StatefulSet", item.ObjectMeta, item.Spec.Template, ptr.Deref(item.Spec.Replicas, 1), item.Status.Replicas, item.Status.ReadyReplicas))
		}
		errs = append(errs, incomplete(statefulSets.Continue))
	}
	daemonSets, err := apps.DaemonSets(metav1.NamespaceAll).List(ctx, options)
	errs = append(errs, err)
	if err == nil {
		for i := range daemonSets.Items {
			item := &daemonSets.Items[i]
			all = append(all, newWorkload(daemonSet, item.ObjectMeta, item.Spec.Template, item.Status.DesiredNumberScheduled, item.Status.CurrentNumberScheduled, item.Status.NumberReady))
		}
		errs = append(errs, incomplete(daemonSets.Continue))
	}
	return Answer[[]workload]{Object: all, Err: errors.Join(errs...)}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

const (
	// accountsRead bounds the service accounts and the permissions that are read. If more matter, no program is dead.
	accountsRead = 10
	tooMany      = "only the first are read"
	podKind      = "Pod"
)

// Runtime is what was read about the programs that run.
type Runtime struct {
	// Leases are those of the cluster, without those of nodes.
	Leases Answer[[]coordinationv1.Lease]
	// Workloads are the Deployments, StatefulSets and DaemonSets and, if a program seems to be dead, all pods.
	Workloads Answer[[]workload]
	// Pods are those of service accounts, by namespace/name.
	Pods map[string]Answer[[]corev1.Pod]
	// Permissions are whether service accounts may update or patch what has a finalizer.
	Permissions map[permission]Answer[bool]
	// verdicts, if it is not nil, keeps what was concluded. Many objects have the same controller.
	verdicts map[actor]verdict
}

// permission is that of a service account, namespace/name.
type permission struct {
	account string
	target  target
}

// runtimeLists are the lists that are the same for all namespaces.
type runtimeLists struct {
	read, podsRead  bool
	leases          Answer[[]coordinationv1.Lease]
	workloads, pods Answer[[]workload]
}

// observeRuntime reads what shows whether the programs run that have to act. The lists are read once for all namespaces.
func (d Diagnoser) observeRuntime(ctx context.Context, o *Observation) {
	var actors []actor
	o.wanted = &actors
	judge(*o, rules()...)
	o.fixContent() // rules judge one of the controllers that have set the same finalizer
	o.wanted = nil
	if len(actors) == 0 {
		return
	}
	seen := sets.New[actor]()
	actors = slices.DeleteFunc(actors, func(a actor) bool {
		known := seen.Has(a)
		seen.Insert(a)
		return known
	})
	lists := d.lists
	if lists == nil {
		lists = &runtimeLists{}
	}
	if !lists.read {
		lists.read, lists.leases, lists.workloads = true, d.readLeases(ctx), d.readWorkloads(ctx)
	}
	o.Runtime = Runtime{Leases: lists.leases, Workloads: lists.workloads, Pods: map[string]Answer[[]corev1.Pod]{}, Permissions: map[permission]Answer[bool]{}, verdicts: map[actor]verdict{}}
	for _, a := range actors {
		d.observeActor(ctx, o, a)
	}
	if !slices.ContainsFunc(actors, func(a actor) bool { _, dead := o.isDead(a); return dead }) {
		return
	}
	if !lists.podsRead {
		lists.podsRead, lists.pods = true, d.readPods(ctx)
	}
	o.Runtime.Workloads = Answer[[]workload]{Object: slices.Concat(lists.workloads.Object, lists.pods.Object), Err: errors.Join(lists.workloads.Err, lists.pods.Err)}
	clear(o.Runtime.verdicts)
}

// observeActor reads the pods of the service accounts of a program and, if its workload has no pods, whether this one may remove
// the finalizer.
func (d Diagnoser) observeActor(ctx context.Context, o *Observation, a actor) {
	accounts, _ := a.accounts()
	for _, account := range accounts {
		d.observeAccount(ctx, o, account)
	}
	for i := range o.Runtime.Workloads.Object {
		w := &o.Runtime.Workloads.Object[i]
		if a.manager == "" || a.builtIn || !w.isStopped() || !a.runs(w) {
			continue
		}
		d.observeAccount(ctx, o, w.account)
		needed := permission{w.account, a.target}
		if _, read := o.Runtime.Permissions[needed]; !read && len(o.Runtime.Permissions) < accountsRead {
			o.Runtime.Permissions[needed] = answer(d.may(ctx, needed))
		}
	}
}

// observeAccount reads the pods of a service account.
func (d Diagnoser) observeAccount(ctx context.Context, o *Observation, account string) {
	if _, read := o.Runtime.Pods[account]; read || len(o.Runtime.Pods) >= accountsRead {
		return
	}
	namespace, name, _ := strings.Cut(account, "/")
	pods, err := d.Core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.serviceAccountName", name).String()})
	if err != nil {
		o.Runtime.Pods[account] = Answer[[]corev1.Pod]{Err: err}
		return
	}
	o.Runtime.Pods[account] = Answer[[]corev1.Pod]{Object: pods.Items}
}

// may asks kube-apiserver whether a service account may update or patch the target.
func (d Diagnoser) may(ctx context.Context, p permission) (bool, error) {
	namespace, name, _ := strings.Cut(p.account, "/")
	for _, verb := range []string{"update", "patch"} {
		review, err := d.Core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: serviceaccount.MakeUsername(namespace, name), Groups: append(serviceaccount.MakeGroupNames(namespace), user.AllAuthenticated),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: p.target.group, Resource: p.target.resource, Namespace: p.target.namespace, Name: p.target.name},
		}}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed {
			return err == nil, err
		}
	}
	return false, nil
}

// readLeases lists the Leases of programs, without what no rule needs: there are many.
func (d Diagnoser) readLeases(ctx context.Context) Answer[[]coordinationv1.Lease] {
	var all []coordinationv1.Lease
	err := each(ctx, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.FieldSelector = fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease).String()
		return d.Core.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, options)
	}, func(lease *coordinationv1.Lease) {
		small := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}, Spec: lease.Spec}
		for _, entry := range lease.ManagedFields {
			small.ManagedFields = append(small.ManagedFields, metav1.ManagedFieldsEntry{Manager: entry.Manager})
		}
		all = append(all, small)
	})
	return Answer[[]coordinationv1.Lease]{Object: all, Err: err}
}

// readWorkloads lists what runs programs.
func (d Diagnoser) readWorkloads(ctx context.Context) Answer[[]workload] {
	var all []workload
	apps := d.Core.AppsV1()
	err := errors.Join(
		each(ctx, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return apps.Deployments(metav1.NamespaceAll).List(ctx, options)
		}, func(item *appsv1.Deployment) {
			all = append(all, newWorkload("Deployment", item.ObjectMeta, item.Spec.Template, podCount{ptr.Deref(item.Spec.Replicas, 1), item.Status.Replicas, item.Status.ReadyReplicas}))
		}),
		each(ctx, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return apps.StatefulSets(metav1.NamespaceAll).List(ctx, options)
		}, func(item *appsv1.StatefulSet) {
			all = append(all, newWorkload("StatefulSet", item.ObjectMeta, item.Spec.Template, podCount{ptr.Deref(item.Spec.Replicas, 1), item.Status.Replicas, item.Status.ReadyReplicas}))
		}),
		each(ctx, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return apps.DaemonSets(metav1.NamespaceAll).List(ctx, options)
		}, func(item *appsv1.DaemonSet) {
			all = append(all, newWorkload(daemonSet, item.ObjectMeta, item.Spec.Template, podCount{item.Status.DesiredNumberScheduled, item.Status.CurrentNumberScheduled, item.Status.NumberReady}))
		}),
	)
	return Answer[[]workload]{Object: all, Err: err}
}

// readPods lists the metadata of pods, as workloads: those of other controllers, such as Rollouts, have no other trace.
func (d Diagnoser) readPods(ctx context.Context) Answer[[]workload] {
	var all []workload
	err := utilnamespaces.EachObject(ctx, d.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")), func(pod *metav1.PartialObjectMetadata) {
		all = append(all, workload{kind: podKind, namespace: pod.Namespace, name: pod.Name, names: namesOf(&pod.ObjectMeta), pods: podCount{existing: 1}})
	})
	if err != nil {
		err = fmt.Errorf("pods: %w", err)
	}
	return Answer[[]workload]{Object: all, Err: err}
}

// each calls a function with each object of a list, page by page.
func each[T any](ctx context.Context, list pager.ListPageFunc, f func(*T)) error {
	return pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if item, ok := any(object).(*T); ok {
			f(item)
		}
		return nil
	})
}

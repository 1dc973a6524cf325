/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

// workload is a Deployment, a StatefulSet or a DaemonSet.
type workload struct {
	kind, namespace, name string
	// names are those by which it is known: its own, its label, and those of its containers and images.
	names []string
	// account is the service account of its pods, as namespace/name.
	account string
	pods    podCount
}

// podCount has numbers of pods.
type podCount struct{ desired, existing, ready int32 }

// stop is a workload without pods, by the service account, namespace/name, of its pods, and what its program has to change.
type stop struct {
	account string
	target  target
}

const (
	// examined bounds the workloads without pods, and the service accounts, that are examined. The programs of others are not dead.
	examined  = 10
	tooMany   = "only the first are examined"
	daemonSet = "DaemonSet"
	// defaultAccount is the name of the service account of pods that name none. Programs of many kinds use it.
	defaultAccount = "default"
	noPods         = "has no replicas and no pods"
)

func (w *workload) reference() string { return strings.ToLower(w.kind) + "/" + w.name }

// isStopped reports whether a workload wants no pods and has none.
func (w *workload) isStopped() bool { return w.pods.desired == 0 && w.pods.existing == 0 }

// isOf reports whether a workload has the name of a program, or uses its service account.
func (w *workload) isOf(a actor) bool {
	accounts, _ := a.accounts()
	return a.manager != "" && !isGeneric(a.manager) && slices.Contains(w.names, a.manager) || path.Base(w.account) != defaultAccount && slices.Contains(accounts, w.account)
}

// isLike reports whether a name of a workload contains that of a program.
func (w *workload) isLike(a actor) bool {
	return a.manager != "" && !isGeneric(a.manager) && slices.ContainsFunc(w.names, func(name string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(a.manager))
	})
}

// newWorkload returns a workload with its numbers of pods.
func newWorkload(kind string, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, pods podCount) workload {
	w := workload{kind: kind, namespace: meta.Namespace, name: meta.Name, names: []string{meta.Name}, pods: pods,
		account: meta.Namespace + "/" + cmp.Or(template.Spec.ServiceAccountName, defaultAccount)}
	if name := meta.Labels["app.kubernetes.io/name"]; name != "" {
		w.names = append(w.names, name)
	}
	for _, container := range template.Spec.Containers {
		image, _, _ := strings.Cut(path.Base(container.Image), "@")
		image, _, _ = strings.Cut(image, ":")
		w.names = append(w.names, container.Name, image)
	}
	return w
}

// observeWorkloads reads which programs run, if one has to act.
func (r *round) observeWorkloads(ctx context.Context, o *Observation) {
	actors, accounts := o.finalizerActors(), o.accounts()
	if len(actors) == 0 && accounts == nil {
		return
	}
	o.Workloads, o.Stopped, o.Accounts = r.workloads(), map[stop]Evidence{}, map[string]Evidence{}
	read := map[string]Evidence{}
	podsOf := func(account string) Evidence {
		if _, done := read[account]; !done {
			read[account] = r.podsOf(ctx, account)
		}
		return read[account]
	}
	for _, account := range accounts {
		if len(o.Accounts) < examined {
			o.Accounts[account] = podsOf(account)
		}
	}
	for _, a := range actors {
		for i := range o.Workloads.Object {
			w := &o.Workloads.Object[i]
			key := stop{w.account, a.target}
			if _, done := o.Stopped[key]; !done && w.isStopped() && w.isOf(a) && len(o.Stopped) < examined {
				o.Stopped[key] = r.stopped(ctx, key, podsOf(w.account))
			}
		}
	}
}

// accounts returns the service accounts of the initializers and participants that have to act, and nil if none has to.
func (o Observation) accounts() []string {
	lifecycle := o.Lifecycle.Object
	if lifecycle == nil || lifecycle.DeletionTimestamp == nil && len(helper.Pending(lifecycle)) == 0 {
		return nil
	}
	all := []string{}
	for _, name := range slices.Concat(helper.Pending(lifecycle), helper.Participants(lifecycle)) {
		accounts, _ := o.initializerActor(name).accounts()
		all = append(all, accounts...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// finalizerActors returns the programs, other than those of Kubernetes, that have to remove finalizers from objects, in the same order
// each time.
func (o Observation) finalizerActors() []actor {
	all := map[actor]bool{}
	add := func(a actor) {
		a.written = metav1.Time{} // differs between objects
		all[a] = !a.builtIn && a.manager != ""
	}
	if o.phase() == Terminating {
		for _, finalizer := range o.Namespace.Object.Finalizers {
			add(o.namespaceActor(finalizer))
		}
	}
	for _, listing := range o.Content {
		for _, object := range listing.Objects {
			for _, finalizer := range object.Finalizers {
				if object.DeletionTimestamp != nil {
					add(contentActor(listing, object, finalizer))
				}
			}
		}
	}
	maps.DeleteFunc(all, func(_ actor, needed bool) bool { return !needed })
	return slices.SortedFunc(maps.Keys(all), func(a, b actor) int {
		return cmp.Or(strings.Compare(a.manager, b.manager), strings.Compare(a.finalizer, b.finalizer), strings.Compare(fmt.Sprint(a.target), fmt.Sprint(b.target)))
	})
}

func sourceOf(account string) string { return "Pods of ServiceAccount " + account }

// podsOf returns what the pods of a service account show: that there are none shows nothing, because its program can use another one
// now.
func (d Diagnoser) podsOf(ctx context.Context, account string) Evidence {
	namespace, name, _ := strings.Cut(account, "/")
	e := Evidence{Source: sourceOf(account), Message: "no such pods"}
	pods, err := d.Core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.serviceAccountName", name).String(), Limit: 1})
	if err != nil {
		e.Message, e.Shows = fmt.Sprintf("not checked: %v", err), Unknown
	} else if len(pods.Items) > 0 {
		e.Message, e.Shows = fmt.Sprintf("pod %s uses it", pods.Items[0].Name), Unknown
	}
	return e
}

// stopped returns what a workload without pods shows, given what the pods of its service account show: another controller can run its
// pods. A tenant can create a workload with the name of any controller, so it counts only if its service account may remove the
// finalizer: then the tenant can, too.
func (d Diagnoser) stopped(ctx context.Context, s stop, pods Evidence) Evidence {
	if pods.Shows != "" {
		return Evidence{Message: fmt.Sprintf("%s; other pods of its service account: %s", noPods, pods.Message), Shows: Unknown}
	}
	namespace, name, _ := strings.Cut(s.account, "/")
	for _, verb := range []string{"update", "patch"} {
		review, err := d.Core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: serviceaccount.MakeUsername(namespace, name), Groups: append(serviceaccount.MakeGroupNames(namespace), user.AllAuthenticated),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: s.target.group, Resource: s.target.resource, Namespace: s.target.namespace, Name: s.target.name},
		}}, metav1.CreateOptions{})
		if err != nil {
			return Evidence{Message: fmt.Sprintf("%s; whether its service account may remove the finalizer was not checked: %v", noPods, err), Shows: Unknown}
		} else if review.Status.Allowed {
			return Evidence{Message: noPods + ", and its service account may remove the finalizer", Shows: Dead}
		}
	}
	return Evidence{Message: noPods + ", but is not the controller: its service account may not remove the finalizer"}
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

// each calls a function with each object of a list, page by page.
func each[T any](ctx context.Context, list pager.ListPageFunc, f func(*T)) error {
	return pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if item, ok := any(object).(*T); ok {
			f(item)
		}
		return nil
	})
}

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
	"path"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// workload is a Deployment, a StatefulSet or a DaemonSet.
type workload struct {
	kind, namespace, name string
	// names are those by which it is known: its own, its label, and those of its containers and images.
	names []string
	// account is the service account of its pods, as namespace/name.
	account string
	// desired, existing and ready are numbers of pods.
	desired, existing, ready int32
}

const (
	daemonSet = "DaemonSet"
	// defaultAccount is the name of the service account of pods that name none. Programs of many kinds use it.
	defaultAccount = "default"
	noPods         = "has no replicas and no pods"
	// examined bounds the service accounts whose pods and permissions are read for a namespace: tenants can create any number of workloads.
	examined = 10
)

func (w *workload) reference() string { return strings.ToLower(w.kind) + "/" + w.name }

// isStopped reports whether a workload wants no pods and has none.
func (w *workload) isStopped() bool { return w.desired == 0 && w.existing == 0 }

// isOf reports whether a workload has the name of a program, or uses its service account.
func (w *workload) isOf(a actor) bool {
	return a.program() != "" && slices.Contains(w.names, a.program()) || path.Base(w.account) != defaultAccount && slices.Contains(a.accounts(), w.account)
}

// isLike reports whether a name of a workload contains that of a program.
func (w *workload) isLike(a actor) bool {
	return a.program() != "" && slices.ContainsFunc(w.names, func(name string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(a.program()))
	})
}

// newWorkload returns a workload without its numbers of pods.
func newWorkload(kind string, meta metav1.ObjectMeta, template corev1.PodTemplateSpec) workload {
	w := workload{kind: kind, namespace: meta.Namespace, name: meta.Name, names: []string{meta.Name},
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

// program is what the workloads and the pods of a program show, and the workload that is its own, or nil.
type program struct {
	own      *workload
	evidence []Evidence
}

// observePrograms reads whether the programs run that have to act, if they can be identified.
func (r *round) observePrograms(ctx context.Context, o *Observation) {
	o.Programs = map[actor]program{}
	pods := map[string]Evidence{}
	podsOf := func(account string) Evidence {
		if _, read := pods[account]; !read {
			if len(pods) == examined {
				return Evidence{Source: "Pods of ServiceAccount " + account, Message: "not checked: only the first are examined", Shows: Unknown}
			}
			pods[account] = r.podsOf(ctx, account)
		}
		return pods[account]
	}
	for _, a := range o.actors() {
		if _, read := o.Programs[a.read()]; !read && !a.builtIn && a.name() != "" {
			o.Programs[a.read()] = r.readProgram(ctx, a, podsOf)
		}
	}
}

// actors returns the programs that have to act.
func (o Observation) actors() (all []actor) {
	if lifecycle := o.Lifecycle.Object; lifecycle != nil && (lifecycle.DeletionTimestamp != nil || len(helper.Pending(lifecycle)) > 0) {
		for _, name := range slices.Concat(helper.Pending(lifecycle), helper.Participants(lifecycle)) {
			all = append(all, o.initializerActor(name))
		}
	}
	if o.phase() == Terminating {
		for _, finalizer := range o.Namespace.Object.Finalizers {
			all = append(all, o.namespaceActor(finalizer))
		}
	}
	for _, h := range o.holds() {
		all = append(all, h.actor)
	}
	return all
}

// readProgram reads whether a program runs. The program of an initializer can use another service account now, so a workload without pods
// shows nothing.
func (r *round) readProgram(ctx context.Context, a actor, podsOf func(account string) Evidence) (p program) {
	for _, account := range a.accounts() {
		p.evidence = append(p.evidence, podsOf(account))
	}
	workloads := r.workloads()
	for i := range workloads.Object {
		w := &workloads.Object[i]
		e := Evidence{Source: fmt.Sprintf("%s %s/%s", w.kind, w.namespace, w.name), Message: fmt.Sprintf("%d of %d pods are ready", w.ready, w.desired), Shows: Unknown}
		its := w.isOf(a)
		switch {
		case its && w.ready > 0:
			e.Shows = Alive
		case its && w.isStopped() && a.manager == "":
			e.Message, e.Shows = noPods, ""
		case its && w.isStopped():
			e.Message, e.Shows = r.stopped(ctx, w.account, a.target, podsOf(w.account))
			its = e.Shows == Dead
		case its:
		case !w.isStopped() && w.isLike(a):
			e.Message += ", which could be the controller"
		default:
			continue
		}
		if its && (p.own == nil || w.ready > p.own.ready) {
			p.own = w
		}
		p.evidence = append(p.evidence, e)
	}
	if err := workloads.Err; err != nil {
		p.evidence = append(p.evidence, Evidence{Source: "Deployments, StatefulSets and DaemonSets", Message: fmt.Sprintf("not checked: %v", err), Shows: Unknown})
	}
	return p
}

// podsOf returns what the pods of a service account show: that there are none shows nothing, because its program can use another one
// now.
func (d Diagnoser) podsOf(ctx context.Context, account string) Evidence {
	namespace, name, _ := strings.Cut(account, "/")
	e := Evidence{Source: "Pods of ServiceAccount " + account, Message: "no such pods"}
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
func (d Diagnoser) stopped(ctx context.Context, account string, of target, pods Evidence) (message string, shows Liveness) {
	if pods.Shows != "" {
		return fmt.Sprintf("%s; other pods of its service account: %s", noPods, pods.Message), Unknown
	}
	namespace, name, _ := strings.Cut(account, "/")
	for _, verb := range []string{"update", "patch"} {
		review, err := d.Core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: serviceaccount.MakeUsername(namespace, name), Groups: append(serviceaccount.MakeGroupNames(namespace), user.AllAuthenticated),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: of.group, Resource: of.resource, Namespace: of.namespace, Name: of.name},
		}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Sprintf("%s; whether its service account may remove the finalizer was not checked: %v", noPods, err), Unknown
		} else if review.Status.Allowed {
			return noPods + ", and its service account may remove the finalizer", Dead
		}
	}
	return noPods + ", but is not the controller: its service account may not remove the finalizer", ""
}

// readWorkloads lists what runs programs. With an error, some are missing.
func (d Diagnoser) readWorkloads(ctx context.Context) Answer[[]workload] {
	var all []workload
	apps := d.Core.AppsV1()
	deployments, err := apps.Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, item := range deployments.Items {
			w := newWorkload("Deployment", item.ObjectMeta, item.Spec.Template)
			w.desired, w.existing, w.ready = ptr.Deref(item.Spec.Replicas, 1), item.Status.Replicas, item.Status.ReadyReplicas
			all = append(all, w)
		}
	}
	statefulSets, statefulErr := apps.StatefulSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if statefulErr == nil {
		for _, item := range statefulSets.Items {
			w := newWorkload("StatefulSet", item.ObjectMeta, item.Spec.Template)
			w.desired, w.existing, w.ready = ptr.Deref(item.Spec.Replicas, 1), item.Status.Replicas, item.Status.ReadyReplicas
			all = append(all, w)
		}
	}
	daemonSets, daemonErr := apps.DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if daemonErr == nil {
		for _, item := range daemonSets.Items {
			w := newWorkload(daemonSet, item.ObjectMeta, item.Spec.Template)
			w.desired, w.existing, w.ready = item.Status.DesiredNumberScheduled, item.Status.CurrentNumberScheduled, item.Status.NumberReady
			all = append(all, w)
		}
	}
	return Answer[[]workload]{Object: all, Err: errors.Join(err, statefulErr, daemonErr)}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// workload is a Deployment, a StatefulSet or a DaemonSet.
type workload struct {
	kind, namespace, name string
	// names are those by which it is known: its own, its label, and those of its containers and images.
	names []string
	// account is the service account of its pods.
	account string
	// desired, existing and ready are numbers of pods.
	desired, existing, ready int32
}

const daemonSet = "DaemonSet"

func (w workload) reference() string { return strings.ToLower(w.kind) + "/" + w.name }

// newWorkload returns a workload with its numbers of pods.
func newWorkload(kind string, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, desired, existing, ready int32) workload {
	w := workload{
		kind: kind, namespace: meta.Namespace, name: meta.Name, names: []string{meta.Name}, account: template.Spec.ServiceAccountName,
		desired: desired, existing: existing, ready: ready,
	}
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

// name is the name that identifies the program, or "".
func (a actor) name() string {
	if a.manager != "" && !isGeneric(a.manager) {
		return a.manager
	}
	return a.user
}

// serviceAccount returns the namespace and the name of the service account, or "".
func (a actor) serviceAccount() (namespace, name string) {
	namespace, name, err := serviceaccount.SplitUsername(a.user)
	if err != nil {
		return "", ""
	}
	return namespace, name
}

// is reports whether a name is that of the program.
func (a actor) is(name string) bool { return name != "" && name == a.manager && !isGeneric(name) }

// resembles reports whether a name contains a word of the name of the finalizer or of the program.
func (a actor) resembles(name string) bool {
	return slices.ContainsFunc(a.words(), func(word string) bool { return strings.Contains(strings.ToLower(name), word) })
}

// words are the words by which the program could be known. They only serve to exclude that it is dead.
func (a actor) words() []string {
	domain, rest, _ := strings.Cut(strings.ToLower(a.finalizer), "/")
	labels := strings.Split(domain, ".")
	all := append(labels[:len(labels)-1:len(labels)-1], strings.FieldsFunc(rest, func(r rune) bool { return r == '/' || r == '.' })...)
	if name := strings.ToLower(a.manager); !isGeneric(name) {
		all = append(all, name)
	}
	return slices.DeleteFunc(all, func(word string) bool { return len(word) < 4 || isGeneric(word) })
}

// generic are names of clients with which people and other tools write objects, and names that a framework proposes.
var generic = regexp.MustCompile(`(?i)^(kubectl.*|helm.*|argocd.*|flux.*|kustomize-controller|fleet.*|terraform.*|pulumi.*|ansible.*|rancher.*|curl|` +
	`mozilla|go-http-client|python.*|node-fetch|okhttp|openapi-generator|swagger-codegen|k9s|lens|oc|before-first-apply|unknown|` +
	`manager|controller|controllers|operator|controller-manager|main|app|server|finalizers?|kubernetes|k8s|github|example|cluster|__debug_bin.*|.*\.test)$`)

// isGeneric reports whether programs of many kinds have a name.
func isGeneric(name string) bool { return generic.MatchString(name) }

// leases returns what Leases show.
func (o Observation) leases(a actor) []Evidence {
	if a.lease == "" && a.manager == "" {
		return nil
	}
	var found []Evidence
	for i := range o.Runtime.Leases.Object {
		lease := &o.Runtime.Leases.Object[i]
		switch name := lease.Namespace + "/" + lease.Name; {
		case a.holds(lease):
			found = append(found, o.lease(a, lease, name)...)
		case a.lease == "" && a.resembles(lease.Name) && o.isHeld(lease):
			found = append(found, Evidence{Source: "Lease " + name, Message: "is held by " + *lease.Spec.HolderIdentity + ", which could be the controller", Shows: Unknown})
		}
	}
	if err := o.Runtime.Leases.Err; err != nil {
		found = append(found, notChecked("Leases", err))
	} else if a.lease != "" && len(found) == 0 {
		found = append(found, Evidence{Source: "Lease " + a.lease, Message: "does not exist: the controller runs without leader election, or does not run"})
	}
	return found
}

// holds reports whether a Lease is that of the program.
func (a actor) holds(lease *coordinationv1.Lease) bool {
	if a.lease != "" {
		return a.lease == lease.Namespace+"/"+lease.Name
	}
	return a.is(lease.Name) || slices.ContainsFunc(lease.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return a.is(entry.Manager) })
}

func (o Observation) isHeld(lease *coordinationv1.Lease) bool {
	state, _ := judgeLease(answer(lease, nil), "", o.Time)
	return state == leaseHeld
}

// lease returns what a Lease of the program shows, and the pod of its last holder.
func (o Observation) lease(a actor, lease *coordinationv1.Lease, name string) []Evidence {
	source := "Lease " + name
	if o.isHeld(lease) {
		return []Evidence{{Source: source, Message: *lease.Spec.HolderIdentity + " renews it", Time: renewed(lease), Shows: Alive}}
	}
	pod := holderPod(lease)
	if pod == "" || lease.Spec.RenewTime == nil {
		return []Evidence{{Source: source, Message: "has no holder", Shows: Dead}}
	}
	e := Evidence{Source: source, Message: fmt.Sprintf("%s has not renewed it since %s", *lease.Spec.HolderIdentity, timeOf(renewed(lease))), Time: renewed(lease), Shows: Dead}
	if o.Time.Sub(lease.Spec.RenewTime.Time) < deadAfter {
		e.Message, e.Shows = e.Message+", which is too short to conclude anything", Unknown
	}
	if a.lease != "" {
		return []Evidence{e}
	}
	holder := Evidence{Source: "Pod " + pod}
	switch read, known := o.Runtime.Pods[pod]; {
	case !known:
		holder = notChecked(holder.Source, fmt.Errorf("only %d pods are read", podsRead))
	case apierrors.IsNotFound(read.Err):
		holder.Message, holder.Shows = "held the Lease, and does not exist any more", Dead
	case read.Err != nil:
		holder = notChecked(holder.Source, read.Err)
	case read.Object.Status.Phase == corev1.PodSucceeded, read.Object.Status.Phase == corev1.PodFailed:
		holder.Message, holder.Shows = "held the Lease, and has ended", Dead
	default:
		holder.Message, holder.Shows = "held the Lease, and exists: "+string(read.Object.Status.Phase), Unknown
	}
	return []Evidence{e, holder}
}

func renewed(lease *coordinationv1.Lease) *metav1.Time {
	return &metav1.Time{Time: lease.Spec.RenewTime.Time}
}

// holderPod returns namespace/name of the pod that holds a Lease, if client-go made its identity, or "".
func holderPod(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return ""
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return lease.Namespace + "/" + name
}

// workloads returns what Deployments, StatefulSets and DaemonSets show, and the one of the program.
func (o Observation) workloads(a actor) (*workload, []Evidence) {
	if a.lease != "" || a.name() == "" && a.finalizer == "" {
		return nil, nil
	}
	namespace, account := a.serviceAccount()
	var own *workload
	var found []Evidence
	for i := range o.Runtime.Workloads.Object {
		w := &o.Runtime.Workloads.Object[i]
		its := slices.ContainsFunc(w.names, a.is) || account != "" && account != "default" && w.namespace == namespace && w.account == account
		e := Evidence{Source: fmt.Sprintf("%s %s/%s", w.kind, w.namespace, w.name), Message: fmt.Sprintf("%d of %d pods are ready", w.ready, w.desired), Shows: Unknown}
		switch {
		case its && w.ready > 0:
			e.Shows = Alive
		case its && w.desired == 0 && w.existing == 0:
			e.Message, e.Shows, e.Conclusive = "has no replicas and no pods", Dead, true
		case its:
		case w.ready > 0 && slices.ContainsFunc(w.names, a.resembles):
			e.Message += ", which could be the controller"
		default:
			continue
		}
		if its && (own == nil || w.ready > own.ready) {
			own = w
		}
		found = append(found, e)
	}
	if err := o.Runtime.Workloads.Err; err != nil {
		found = append(found, notChecked("Deployments, StatefulSets and DaemonSets", err))
	}
	return own, found
}

// isReady reports whether a pod is ready.
func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

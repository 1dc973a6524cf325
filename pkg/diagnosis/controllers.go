/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nsinit/nsinit/pkg/installation"
)

// workload is a Deployment, a StatefulSet or a DaemonSet, or a pod of the cluster.
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

const (
	daemonSet = "DaemonSet"
	// defaultAccount is the name of the service account of pods that name none. Programs of many kinds use it.
	defaultAccount = "default"
	noPods         = "has no replicas and no pods"
)

func (w *workload) reference() string { return strings.ToLower(w.kind) + "/" + w.name }

// isStopped reports whether a workload wants no pods and has none.
func (w *workload) isStopped() bool { return w.pods.desired == 0 && w.pods.existing == 0 }

// newWorkload returns a workload with its numbers of pods.
func newWorkload(kind string, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, pods podCount) workload {
	w := workload{kind: kind, namespace: meta.Namespace, name: meta.Name, names: namesOf(&meta), pods: pods,
		account: meta.Namespace + "/" + cmp.Or(template.Spec.ServiceAccountName, defaultAccount)}
	for _, container := range template.Spec.Containers {
		image, _, _ := strings.Cut(path.Base(container.Image), "@")
		image, _, _ = strings.Cut(image, ":")
		w.names = append(w.names, container.Name, image)
	}
	return w
}

// namesOf returns the name of an object, and that of its program.
func namesOf(meta *metav1.ObjectMeta) []string {
	names := []string{meta.Name}
	if name := meta.Labels["app.kubernetes.io/name"]; name != "" {
		names = append(names, name)
	}
	return names
}

// name is the name that identifies the program, or "".
func (a actor) name() string {
	if a.manager != "" && !isGeneric(a.manager) {
		return a.manager
	}
	return cmp.Or(a.user, a.acted)
}

// accounts returns the service accounts of the program, as namespace/name, and its other users.
func (a actor) accounts() (accounts, others []string) {
	for _, user := range slices.Compact([]string{a.user, a.acted}) {
		if namespace, name, err := serviceaccount.SplitUsername(user); err == nil {
			accounts = append(accounts, namespace+"/"+name)
		} else if user != "" {
			others = append(others, user)
		}
	}
	return accounts, others
}

// is reports whether a name is that of the program.
func (a actor) is(name string) bool { return name != "" && name == a.manager && !isGeneric(name) }

// runs reports whether a workload has the name of the program or uses its service account.
func (a actor) runs(w *workload) bool {
	accounts, _ := a.accounts()
	return slices.ContainsFunc(w.names, a.is) || w.account != w.namespace+"/"+defaultAccount && slices.Contains(accounts, w.account)
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

// contains reports whether one of some words is in a name.
func contains(name string, words []string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}

// generic are names of clients with which people and other tools write objects, names of client libraries, and names that a
// framework proposes.
var generic = regexp.MustCompile(`(?i)^(kubectl.*|helm.*|argocd.*|flux.*|kustomize-controller|fleet.*|terraform.*|pulumi.*|ansible.*|rancher.*|curl|` +
	`mozilla|go-http-client|python.*|java.*|kubernetes java client.*|kubernetes-?client.*|fabric8.*|kube-rs|kopf|node-fetch|okhttp|openapi-generator|swagger-codegen|` +
	`k9s|lens|oc|before-first-apply|unknown|manager|controller|controllers|operator|controller-manager|provider|agent|main|app|server|finalizers?|` +
	`kubernetes|k8s|github|example|cluster|__debug_bin.*|.*\.test)$`)

// isGeneric reports whether programs of many kinds have a name.
func isGeneric(name string) bool { return generic.MatchString(name) }

// leases returns what Leases show.
func (o Observation) leases(a actor) []Evidence {
	if a.builtIn && a.lease == "" {
		return nil
	}
	var found []Evidence
	words := a.words()
	for i := range o.Runtime.Leases.Object {
		lease := &o.Runtime.Leases.Object[i]
		source := "Lease " + lease.Namespace + "/" + lease.Name
		state, message := judgeLease(answer(lease, nil), lease.Namespace+"/"+lease.Name, o.Time)
		switch its := a.holds(lease); {
		case its && state == leaseHeld:
			found = append(found, Evidence{Source: source, Message: *lease.Spec.HolderIdentity + " renews it", Time: &metav1.Time{Time: lease.Spec.RenewTime.Time}, Shows: Alive})
		case its: // its controller can run with another Lease, or without one
			found = append(found, Evidence{Source: source, Message: message})
		case a.lease == "" && state == leaseHeld && contains(lease.Name, words) && lease.Name != installation.ControllerManager: // whose name has the domain of other programs
			found = append(found, Evidence{Source: source, Message: "is held by " + *lease.Spec.HolderIdentity + ", which could be the controller", Shows: Unknown})
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

// workloads returns what Deployments, StatefulSets, DaemonSets and other pods show, and the one of the program.
func (o Observation) workloads(a actor) (own *workload, found []Evidence) {
	if a.builtIn {
		return nil, nil
	}
	words := a.words()
	for i := range o.Runtime.Workloads.Object {
		w := &o.Runtime.Workloads.Object[i]
		e := Evidence{Source: fmt.Sprintf("%s %s/%s", w.kind, w.namespace, w.name), Message: fmt.Sprintf("%d of %d pods are ready", w.pods.ready, w.pods.desired), Shows: Unknown}
		if w.kind == podKind {
			e.Message = "exists"
		}
		its := a.runs(w)
		switch {
		case its && w.pods.ready > 0:
			e.Shows = Alive
		case its && w.isStopped() && a.manager == "": // the program can use another service account now
			e.Message, e.Shows = noPods, ""
		case its && w.isStopped():
			found = append(found, o.podsOf(w.account))
			e.Message, e.Shows = o.stopped(a, w)
			its = e.Shows == Dead
		case its:
		case !w.isStopped() && slices.ContainsFunc(w.names, func(name string) bool { return contains(name, words) }):
			e.Message += ", which could be the controller"
		default:
			continue
		}
		if its && (own == nil || w.pods.ready > own.pods.ready) {
			own = w
		}
		found = append(found, e)
	}
	if err := o.Runtime.Workloads.Err; err != nil {
		found = append(found, notChecked("Deployments, StatefulSets and DaemonSets", err))
	}
	return own, found
}

// stopped returns what a workload without pods shows. A tenant can create one that has the name of a controller. So it counts only
// if its service account may remove the finalizer: then its creator can remove the finalizer, too.
func (o Observation) stopped(a actor, w *workload) (string, Liveness) {
	allowed, read := o.Runtime.Permissions[permission{w.account, a.target}]
	switch {
	case !read:
		return noPods + "; whether its service account may remove the finalizer: " + tooMany, Unknown
	case allowed.Err != nil:
		return fmt.Sprintf("%s; whether its service account may remove the finalizer was not checked: %v", noPods, allowed.Err), Unknown
	case !allowed.Object:
		return noPods + ", but is not the controller: its service account may not remove the finalizer", ""
	}
	return noPods + ", and its service account may remove the finalizer", Dead
}

// isReady reports whether a pod is ready.
func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

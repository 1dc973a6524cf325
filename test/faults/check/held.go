/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/faults/history"
)

// Held is I6: while initializers of a pod or Job are pending, the pod has no node, and the Job is suspended and has no
// pods. Each new object waits for every initializer that was in force, only the first pending initializer removes
// itself, and no name is added later. nsinit itself removes an initializer of a configuration that changed. After the faults end, every pod
// gets a node and every Job starts.
func Held(v *View) []Violation {
	work := v.work()
	judge := heldJudge{View: v, work: work, began: v.creations(), requests: map[string][]history.Operation{}}
	judge.required, judge.temporary = v.required()
	for _, o := range v.Operations {
		if resource := o.Resource; (resource == "pods" || resource == "jobs") && o.Outcome != history.Refused {
			key := resource + "/" + o.Namespace + "/" + o.Name
			judge.requests[key] = append(judge.requests[key], o)
		}
	}
	var all []Violation
	for _, uid := range sortedKeys(work) {
		if revision, message := judge.object(work[uid]); message != "" {
			object := work[uid][0].Object
			all = append(all, Violation{Check: "I6", Namespace: object.Namespace, UID: uid, Revisions: []int64{revision},
				Message: fmt.Sprintf("%s %q %s", object.Kind, object.Name, message)})
		}
	}
	return all
}

// work returns the changes of each pod and Job of the traffic, by its UID.
func (v *View) work() map[types.UID][]history.Event {
	all := map[types.UID][]history.Event{}
	for _, key := range sortedKeys(v.Objects) {
		for _, change := range v.Objects[key] {
			if object := change.Object; (object.Pod != nil || object.Job != nil) && strings.HasPrefix(object.Namespace, v.NamePrefix) {
				all[object.UID] = append(all[object.UID], change)
			}
		}
	}
	return all
}

// requirement is an initializer that new objects must wait for.
type requirement struct {
	initializer *v1alpha1.Initializer
	// since is when kube-apiserver was known to hold new objects.
	since time.Duration
}

// required returns the initializers of InitializerConfigurations that no client changes while the history lasts, in their
// order, and the names of the others. They select every namespace. A storage that is lost releases nothing, so a loss does not end a
// requirement.
func (v *View) required() (all []requirement, temporary sets.Set[string]) {
	byName := map[string][]requirement{}
	temporary = sets.New[string]()
	for _, uid := range sortedKeys(v.Records) {
		versions := v.Records[uid]
		if versions[0].Object.Registration == nil {
			continue
		}
		generation := versions[0].Object.Registration.Generation
		if slices.ContainsFunc(versions, func(e history.Event) bool { return e.Deleted || e.Object.Registration.Generation != generation }) {
			for _, version := range versions {
				for _, initializer := range version.Object.Registration.Initializers {
					temporary.Insert(initializer.Name)
				}
			}
			continue
		}
		i := slices.IndexFunc(versions, func(e history.Event) bool { return inForce(e.Object.Registration) })
		if name := versions[0].Object.Name; i >= 0 && byName[name] == nil {
			since := versions[i].Seen
			if versions[i].Initial {
				since = 0
			}
			for j := range versions[i].Object.Registration.Initializers {
				byName[name] = append(byName[name], requirement{&versions[i].Object.Registration.Initializers[j], since})
			}
		}
	}
	for _, name := range sortedKeys(byName) {
		all = append(all, byName[name]...)
	}
	return all, temporary
}

// inForce reports whether kube-apiserver holds new objects as a configuration says.
func inForce(c *v1alpha1.InitializerConfiguration) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Type == v1alpha1.ConditionInForce && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == c.Generation
	})
}

// heldJudge judges pods and Jobs.
type heldJudge struct {
	*View
	work  map[types.UID][]history.Event
	began map[types.UID]time.Duration
	// requests are those that may have changed an object, by resource, namespace and name.
	requests map[string][]history.Operation
	required []requirement
	// temporary are initializers of configurations that change.
	temporary sets.Set[string]
}

// object returns what is wrong with the changes of one object, and at which revision.
func (j *heldJudge) object(versions []history.Event) (int64, string) {
	for i, version := range versions {
		message := ""
		switch {
		case version.Deleted:
			continue
		case i > 0:
			message = j.changed(versions[i-1].Object, version)
		case !version.Initial:
			message = j.created(version)
		}
		if message == "" {
			message = runs(version.Object)
		}
		if message == "" && version.Object.Pod != nil && i == 0 {
			message = j.early(version)
		}
		if message != "" {
			return version.Revision, message
		}
	}
	return j.idle(versions)
}

// pending returns the initializers for which an object waits, in their order.
func pending(object *history.Object) []string {
	if object.Pod != nil {
		return helper.PendingOfObject(object.Pod)
	}
	return helper.PendingOfObject(object.Job)
}

// resource returns the resource of an object.
func resource(object *history.Object) string {
	if object.Pod != nil {
		return "pods"
	}
	return "jobs"
}

// created returns what is wrong with the initializers of a new object, or "".
func (j *heldJudge) created(version history.Event) string {
	object := version.Object
	// The object is not older than its namespace and its owner. What no client of the traffic created may be as old as the history.
	began := j.began[object.UID]
	if n := j.At(object.Namespace, version.Revision); n != nil {
		began = max(began, j.began[n.UID])
	}
	if object.Pod != nil {
		for _, owner := range object.Pod.OwnerReferences {
			began = max(began, j.began[owner.UID])
		}
	}
	var want []string
	for _, r := range j.required {
		if r.initializer.Matches(resource(object)) && r.since <= began {
			want = append(want, r.initializer.Name)
		}
	}
	if got := j.lasting(pending(object)); len(want) > 0 && !slices.Equal(got, want) {
		return fmt.Sprintf("was stored and waits for %q, but the configurations require %q", got, want)
	}
	return ""
}

// lasting returns the names that are not temporary.
func (j *heldJudge) lasting(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), j.temporary.Has)
}

// runs returns how an object runs although it waits, or "".
func runs(object *history.Object) string {
	waits := pending(object)
	switch {
	case len(waits) == 0:
	case object.Pod != nil && object.Pod.Spec.NodeName != "":
		return fmt.Sprintf("has node %q and waits for %q", object.Pod.Spec.NodeName, waits)
	case object.Pod != nil && object.Pod.Status.Phase != corev1.PodPending:
		return fmt.Sprintf("is %s and waits for %q", object.Pod.Status.Phase, waits)
	case object.Job != nil && !ptr.Deref(object.Job.Spec.Suspend, false):
		return fmt.Sprintf("is not suspended and waits for %q", waits)
	}
	return ""
}

// early returns the fact that the Job of a new pod waits, or "".
func (j *heldJudge) early(version history.Event) string {
	for _, owner := range version.Object.Pod.OwnerReferences {
		var job *history.Object
		for _, change := range j.work[owner.UID] {
			if change.Revision < version.Revision && change.Object.Job != nil {
				job = change.Object
			}
		}
		if job != nil && len(pending(job)) > 0 {
			return fmt.Sprintf("was stored while its Job %q waits for %q", job.Name, pending(job))
		}
	}
	return ""
}

// changed returns what is wrong with a change of the pending initializers, or "".
func (j *heldJudge) changed(before *history.Object, version history.Event) string {
	was, is := pending(before), pending(version.Object)
	// nsinit itself releases objects from such initializers, and skips them.
	temporary := slices.Equal(j.lasting(was), j.lasting(is)) && sets.New(was...).HasAll(is...)
	switch {
	case slices.Equal(was, is):
		return ""
	case !temporary && (len(was) == 0 || !slices.Equal(was[1:], is)):
		return fmt.Sprintf("waited for %q and then for %q: more changed than the removal of the first one", was, is)
	}
	// An answer with the revision of the change can also be that of a request that changed nothing: a later one, or one for other labels
	// of a Job.
	others := ""
	for _, o := range j.requests[resource(version.Object)+"/"+version.Object.Namespace+"/"+version.Object.Name] {
		wrote := o.Outcome == history.Acknowledged && o.ResourceVersion == version.Revision && o.Start <= version.Seen
		switch {
		case !temporary && o.Client == was[0] && (wrote || o.Outcome == history.Unknown && o.Start <= version.Seen):
			return ""
		case wrote && (!temporary || version.Object.Job == nil || o.Verb != "patch" || namesOne(o.Request, was, is)):
			others = fmt.Sprintf(": %q did", o.Client)
		}
	}
	if temporary && others == "" {
		return ""
	}
	return fmt.Sprintf("waited for %q and then for %q: the first one did not remove itself%s", was, is, others)
}

// namesOne reports whether a request names one of the initializers for which an object does not wait any more.
func namesOne(request []byte, was, is []string) bool {
	return slices.ContainsFunc(was, func(name string) bool {
		return !slices.Contains(is, name) && bytes.Contains(request, strconv.AppendQuote(nil, v1alpha1.PendingPrefix+name))
	})
}

// idle returns what is missing so that an object runs, although the faults have ended.
func (j *heldJudge) idle(versions []history.Event) (int64, string) {
	quiet, ended := j.MarkAt(history.MarkQuiet)
	settled, waited := j.MarkAt(history.MarkSettled)
	i := -1
	for k := range versions {
		if versions[k].Seen <= settled.At {
			i = k
		}
	}
	if !ended || !waited || i < 0 || versions[i].Deleted || versions[i].Object.Deleting {
		return 0, ""
	}
	object, message := versions[i].Object, ""
	switch {
	case len(pending(object)) > 0:
		message = fmt.Sprintf("still waits for %q", pending(object))
	case object.Pod != nil && object.Pod.Spec.NodeName == "":
		message = "has no node"
	case object.Job != nil && object.Job.Status.StartTime == nil:
		message = "did not start"
	default:
		return 0, ""
	}
	return versions[i].Revision, fmt.Sprintf("%s, %s after the last fault", message, (settled.At - quiet.At).Round(time.Second))
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/faults/history"
)

const (
	first   = "one" + history.InitializerDomain
	partner = "two" + history.InitializerDomain
)

// story builds a history step by step. Each step takes a second.
type story struct {
	history.History
	at           time.Duration
	kube, nsinit int64
	epoch        int
	versions     map[string]int // of lifecycles and configurations, by name
}

func newStory() *story { return &story{versions: map[string]int{}} }

// tick advances the time by a second, and returns the former time.
func (s *story) tick() time.Duration {
	s.at += time.Second
	return s.at - time.Second
}

func (s *story) mark(name string) {
	s.tick()
	s.Marks = append(s.Marks, history.Mark{Name: name, At: s.at, KubeRevision: s.kube})
}

// restore replaces the storage of nsinit by a snapshot of a revision.
func (s *story) restore(revision int64) {
	s.mark(history.MarkRestored)
	s.epoch++
	s.tick()
	latest := map[string]history.Event{}
	for _, event := range s.Events {
		if event.Store == history.Nsinit && event.Revision <= revision && event.Epoch == s.epoch-1 {
			if latest[event.Key] = event; event.Deleted {
				delete(latest, event.Key)
			}
		}
	}
	for _, event := range slices.SortedFunc(maps.Values(latest), func(a, b history.Event) int { return cmp.Compare(a.Revision, b.Revision) }) {
		event.Epoch, event.Seen, event.Created, event.Initial = s.epoch, s.tick(), false, true
		s.Events = append(s.Events, event)
	}
}

// event stores a change. It is seen half a second after the tick, in which it is committed.
func (s *story) event(store history.Store, event history.Event) history.Event {
	revision := &s.kube
	if store == history.Nsinit {
		revision = &s.nsinit
		event.Epoch = s.epoch
	}
	*revision++
	event.Store, event.Revision = store, *revision
	event.Seen = s.tick() + time.Second/2
	s.Events = append(s.Events, event)
	return event
}

func (s *story) operation(o history.Operation) {
	o.ID = int64(len(s.Operations) + 1)
	if o.Outcome == "" {
		o.Outcome = history.Acknowledged
	}
	s.Operations = append(s.Operations, o)
}

// namespace describes a version of a namespace.
type namespace struct {
	name     string
	uid      types.UID
	open     bool
	silent   bool // without conditions
	deleting bool
	ready    bool // even if it is closed
}

// put stores a namespace.
func (s *story) put(n namespace, created bool) history.Event {
	core := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.name, UID: n.uid}}
	if !n.open {
		core.Labels = map[string]string{v1alpha1.LabelInitializing: "true"}
	}
	set := func(kind corev1.NamespaceConditionType, value bool) {
		status := corev1.ConditionFalse
		if value {
			status = corev1.ConditionTrue
		}
		core.Status.Conditions = append(core.Status.Conditions, corev1.NamespaceCondition{Type: kind, Status: status, Message: "why"})
	}
	if !n.silent {
		set(v1alpha1.ConditionInitializing, !n.open)
		set(v1alpha1.ConditionReady, n.ready || n.open && !n.deleting)
	}
	return s.event(history.Kube, history.Event{Key: "/registry/namespaces/" + n.name, Created: created, Object: &history.Object{
		Kind: "Namespace", Name: n.name, UID: n.uid, Deleting: n.deleting, Core: core,
	}})
}

// create creates a closed namespace, as a tenant.
func (s *story) create(name string, uid types.UID) {
	began := s.at
	s.put(namespace{name: name, uid: uid}, true)
	s.operation(history.Operation{Role: history.RoleTenant, Verb: "create", Resource: "namespaces", Name: name, UID: uid, Start: began, End: s.at})
}

func (s *story) open(name string, uid types.UID) {
	s.put(namespace{name: name, uid: uid, open: true}, false)
}

func (s *story) terminate(name string, uid types.UID, open bool) {
	s.put(namespace{name: name, uid: uid, open: open, deleting: true}, false)
}

func (s *story) remove(name string, uid types.UID) {
	last := s.Events[len(s.Events)-1]
	for _, event := range s.Events {
		if event.Object != nil && event.Object.UID == uid {
			last = event
		}
	}
	s.event(history.Kube, history.Event{Key: last.Key, Deleted: true, Object: last.Object})
}

// object stores an object in a namespace.
func (s *story) object(namespace, name string, uid types.UID, annotations map[string]string) {
	s.event(history.Kube, history.Event{Key: "/registry/configmaps/" + namespace + "/" + name, Created: true, Object: &history.Object{
		Kind: "ConfigMap", Namespace: namespace, Name: name, UID: uid, Annotations: annotations,
	}})
}

func (s *story) removeObject(namespace, name string, uid types.UID) {
	s.event(history.Kube, history.Event{Key: "/registry/configmaps/" + namespace + "/" + name, Deleted: true, Object: &history.Object{
		Kind: "ConfigMap", Namespace: namespace, Name: name, UID: uid,
	}})
}

// resultGoes deletes the last object of an initializer.
func (s *story) resultGoes(initializer string) {
	for _, event := range slices.Backward(s.Events) {
		if event.Object != nil && event.Object.Annotations[history.AnnotationInitializer] == initializer {
			s.event(history.Kube, history.Event{Key: event.Key, Deleted: true, Object: event.Object})
			return
		}
	}
}

func (s *story) tenantWrites(namespace, name string) {
	s.object(namespace, name, types.UID(fmt.Sprintf("object-%d", s.kube)), map[string]string{history.AnnotationTenant: "alice"})
}

func (s *story) initializerActs(namespace string, uid types.UID, initializer, result string) {
	s.object(namespace, result, types.UID(fmt.Sprintf("object-%d", s.kube)), map[string]string{
		history.AnnotationInitializer: initializer, history.AnnotationNamespaceUID: string(uid),
	})
}

// lifecycle is a NamespaceLifecycle of a namespace.
func lifecycle(name string, uid types.UID, plan []string, pending ...string) *v1alpha1.NamespaceLifecycle {
	l := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "lifecycle-of-" + uid}}
	l.Spec.NamespaceUID = uid
	for _, initializer := range plan {
		l.Spec.Plan = append(l.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: initializer, Finalizer: initializer == partner}})
	}
	for _, initializer := range pending {
		if l.Spec.Initializers == nil {
			l.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
		}
		l.Spec.Initializers.Pending = append(l.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: initializer})
	}
	return l
}

// ordered gives an initializer of a plan an order: after the others that are named.
func ordered(l *v1alpha1.NamespaceLifecycle, name string, after ...string) *v1alpha1.NamespaceLifecycle {
	for i := range l.Spec.Plan {
		if l.Spec.Plan[i].Name == name {
			l.Spec.Plan[i].Ordering = &v1alpha1.InitializerOrdering{After: after}
		}
	}
	return l
}

// record stores a version of a lifecycle, without an operation.
func (s *story) record(l *v1alpha1.NamespaceLifecycle) history.Event {
	s.versions[l.Name]++
	return s.event(history.Nsinit, history.Event{
		Key: "/registry/nsinit.dev/namespacelifecycles/" + l.Name, Created: s.versions[l.Name] == 1,
		Object: &history.Object{Kind: "NamespaceLifecycle", Name: l.Name, UID: l.UID, Deleting: l.DeletionTimestamp != nil, Lifecycle: l},
	})
}

// initialize stores a version of a lifecycle, acknowledged to an initializer that had read a revision.
func (s *story) initialize(l *v1alpha1.NamespaceLifecycle, base int64) {
	began := s.at
	event := s.record(l)
	s.acknowledge("update", l, base, event.Revision, began, s.at)
}

// acknowledge adds an operation on a lifecycle.
func (s *story) acknowledge(verb string, l *v1alpha1.NamespaceLifecycle, base, revision int64, start, end time.Duration) {
	request := map[string]any{"metadata": map[string]any{}}
	if base != 0 {
		request["metadata"] = map[string]any{"resourceVersion": fmt.Sprint(base)}
	}
	data, _ := json.Marshal(request) //nolint:errchkjson // a map of strings
	s.operation(history.Operation{
		Client: first, Role: history.RoleInitializer, Verb: verb, Group: group, Resource: "namespacelifecycles", Subresource: "initialize",
		Name: l.Name, UID: l.UID, ResourceVersion: revision, Request: data, Start: start, End: end,
	})
}

// configure stores a configuration.
func (s *story) configure(name string, initializers ...string) { s.order(name, initializers, "") }

// order stores a configuration in which one initializer has an order: after the others that are named.
func (s *story) order(name string, initializers []string, one string, after ...string) {
	s.versions[name]++
	c := &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("configuration-" + name)}}
	for _, initializer := range initializers {
		c.Initializers = append(c.Initializers, v1alpha1.RegisteredInitializer{Name: initializer, Finalizer: initializer == partner})
		if initializer == one {
			c.Initializers[len(c.Initializers)-1].Ordering = &v1alpha1.InitializerOrdering{After: after}
		}
	}
	s.event(history.Nsinit, history.Event{
		Key: "/registry/nsinit.dev/namespaceinitializerconfigurations/" + name, Created: s.versions[name] == 1,
		Object: &history.Object{Kind: "NamespaceInitializerConfiguration", Name: name, UID: c.UID, Configuration: c},
	})
}

// opens is the life of a namespace with one initializer until its gate opens.
func (s *story) opens(name string, uid types.UID) {
	if s.versions["base"] == 0 {
		s.configure("base", first)
	}
	s.create(name, uid)
	created := s.record(lifecycle(name, uid, []string{first}, first))
	s.initializerActs(name, uid, first, "result")
	s.initialize(lifecycle(name, uid, []string{first}), created.Revision)
	s.open(name, uid)
}

const (
	scanner  = "scanner" + history.InitializerDomain
	approver = "approver" + history.InitializerDomain
)

// register stores a configuration of pods and Jobs, which is in force. Of the two initializers, only the first acts on Jobs.
func (s *story) register() { s.registration(1, true) }

// registration stores a version of this configuration.
func (s *story) registration(generation int64, inForce bool) {
	c := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "objects", UID: "registration", Generation: generation}}
	for name, resources := range map[string][]string{scanner: {"pods", "jobs"}, approver: {"pods"}} {
		c.Initializers = append(c.Initializers, v1alpha1.Initializer{Name: name, Rules: []v1alpha1.Rule{{APIGroups: []string{"*"}, Resources: resources}}})
	}
	slices.SortFunc(c.Initializers, func(a, b v1alpha1.Initializer) int { return -strings.Compare(a.Name, b.Name) })
	if inForce {
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionInForce, Status: metav1.ConditionTrue, ObservedGeneration: generation}}
	}
	s.storeRegistration(c)
}

// flapping stores a version of a configuration that changes.
func (s *story) flapping(generation int64, initializers ...string) {
	c := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "temporary", UID: "temporary", Generation: generation}}
	for _, name := range initializers {
		c.Initializers = append(c.Initializers, v1alpha1.Initializer{Name: name, Rules: []v1alpha1.Rule{{APIGroups: []string{"*"}, Resources: []string{"pods", "jobs"}}}})
	}
	s.storeRegistration(c)
}

func (s *story) storeRegistration(c *v1alpha1.InitializerConfiguration) {
	s.event(history.Nsinit, history.Event{Key: "/registry/nsinit.dev/initializerconfigurations/" + c.Name, Object: &history.Object{
		Kind: "InitializerConfiguration", Name: c.Name, UID: c.UID, Registration: c,
	}})
}

// pod stores a version of a pod with a node, or "", that waits for initializers.
func (s *story) pod(name, node string, waits ...string) *history.Object {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for _, initializer := range waits {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.PendingPrefix + initializer})
	}
	return s.work(&history.Object{Kind: "Pod", Name: name, Pod: pod})
}

// job stores a version of a Job that waits for initializers.
func (s *story) job(name string, suspended bool, waits ...string) *history.Object {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}, Spec: batchv1.JobSpec{Suspend: &suspended}}
	for i, initializer := range waits {
		job.Labels[v1alpha1.PendingPrefix+initializer] = fmt.Sprint(i)
	}
	if !suspended {
		job.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return s.work(&history.Object{Kind: "Job", Name: name, Job: job})
}

// work stores a version of an object, which is complete when it is returned.
func (s *story) work(object *history.Object) *history.Object {
	object.Namespace, object.UID = "f-1", types.UID("uid-of-"+object.Name)
	s.event(history.Kube, history.Event{Key: "/registry/" + object.Kind + "/f-1/" + object.Name, Object: object})
	return object
}

// removesItself acknowledges the last change of an object to a client.
func (s *story) removesItself(client string, object *history.Object) {
	s.operation(history.Operation{Client: client, Verb: "patch", Resource: resource(object), Namespace: object.Namespace, Name: object.Name, UID: object.UID,
		ResourceVersion: s.kube, Start: s.at - time.Second, End: s.at})
}

// unlabelled loses the label of initializer a, whose configuration changes, from a Job when a meddler sends a request that names a
// label.
func (s *story) unlabelled(verb, named string) {
	s.flapping(1, "a")
	s.flapping(2)
	s.job("j", true, scanner, "a")
	s.removesItself("meddler", s.job("j", true, scanner))
	last := &s.Operations[len(s.Operations)-1]
	last.Verb, last.Request = verb, fmt.Appendf(nil, `{"metadata":{"labels":{"%s%s":null}}}`, v1alpha1.PendingPrefix, named)
}

// initialized is the life of a pod until it has a node.
func (s *story) initialized(name string) {
	s.pod(name, "", scanner, approver)
	s.removesItself(scanner, s.pod(name, "", approver))
	s.removesItself(approver, s.pod(name, ""))
	s.pod(name, "node")
}

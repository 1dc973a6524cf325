/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/faults/history"
)

// labelled stores the last version of a namespace again, with or without the label of frozen ones.
func (s *story) labelled(name string, frozen bool) {
	var last *history.Object
	for _, event := range s.Events {
		if event.Object != nil && event.Object.Core != nil && event.Object.Name == name {
			last = event.Object
		}
	}
	object := *last
	object.Core = last.Core.DeepCopy()
	metav1.SetMetaDataLabel(&object.Core.ObjectMeta, v1alpha1.LabelFrozen, "true")
	if !frozen {
		delete(object.Core.Labels, v1alpha1.LabelFrozen)
	}
	s.event(history.Kube, history.Event{Key: "/registry/namespaces/" + name, Object: &object})
}

func hard(configMaps string) corev1.ResourceList {
	return corev1.ResourceList{"count/configmaps": apiresource.MustParse(configMaps)}
}

// quota stores the quota of the population in f-1.
func (s *story) quota(configMaps string, inForce bool) {
	quota := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: hard(configMaps)}}
	if inForce {
		quota.Status.Hard = hard(configMaps)
	}
	s.event(history.Kube, history.Event{Key: "/registry/resourcequotas/f-1/" + history.QuotaName, Object: &history.Object{
		Kind: "ResourceQuota", Namespace: "f-1", Name: history.QuotaName, UID: "quota", Quota: quota}})
}

// population stores a version of the population.
func (s *story) population(configMaps string) {
	template, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": history.QuotaName}, "spec": map[string]any{"hard": hard(configMaps)}}) //nolint:errchkjson // strings
	p := &v1alpha1.NamespacePopulation{}
	p.Spec.Manifests = []v1alpha1.PopulationManifest{{Name: "quota"}}
	p.Spec.Manifests[0].Template.Raw = template
	s.event(history.Nsinit, history.Event{Key: "/registry/nsinit.dev/namespacepopulations/base", Object: &history.Object{Kind: "NamespacePopulation", Name: "base", UID: "base", Population: p}})
}

// populated opens a namespace with a quota.
func (s *story) populated(inForce bool) {
	const uid = "uid-a"
	s.configure("base", populator)
	s.population("10")
	s.create("f-1", uid)
	created := s.record(lifecycle("f-1", uid, []string{populator}, populator))
	s.quota("10", inForce)
	s.initialize(lifecycle("f-1", uid, []string{populator}), created.Revision)
	s.open("f-1", uid)
}

// tenantStores is a write of a tenant in f-1.
func (s *story) tenantStores() {
	began := s.at
	s.tenantWrites("f-1", "x")
	last := s.Events[len(s.Events)-1]
	s.operation(history.Operation{Client: "alice", Role: history.RoleTenant, Verb: "create", Resource: "configmaps", Namespace: "f-1", Name: "x",
		UID: last.Object.UID, ResourceVersion: last.Revision, Start: began, End: s.at})
}

// sees is a namespace that the viewer sees.
func (s *story) sees(name string, uid types.UID) {
	s.operation(history.Operation{Client: "viewer", Role: history.RoleTenant, Verb: history.VerbSee, Resource: "accessiblenamespaces", Name: name, UID: uid, Start: s.at, End: s.at})
}

// createdFor creates a namespace whose request names a user, and that names a user itself.
func (s *story) createdFor(client, requested, stored string) {
	annotated := func(user string) metav1.ObjectMeta {
		object := metav1.ObjectMeta{Name: "f-1", UID: "uid-a", Labels: map[string]string{v1alpha1.LabelInitializing: ""}}
		if user != "" {
			object.Annotations = map[string]string{v1alpha1.AnnotationOnBehalfOf: user}
		}
		return object
	}
	request, _ := json.Marshal(corev1.Namespace{ObjectMeta: annotated(requested)}) //nolint:errchkjson // a namespace
	began := s.at
	s.event(history.Kube, history.Event{Key: "/registry/namespaces/f-1", Created: true, Object: &history.Object{Kind: "Namespace", Name: "f-1", UID: "uid-a", Core: &corev1.Namespace{ObjectMeta: annotated(stored)}}})
	s.operation(history.Operation{Client: client, Role: history.RoleTenant, Verb: "create", Resource: "namespaces", Name: "f-1", UID: "uid-a", Request: request, Start: began, End: s.at})
}

// queuesEvents begins or ends a fault that keeps kube-apiserver behind etcd.
func (s *story) queuesEvents(mark string) {
	s.mark(mark)
	s.Marks[len(s.Marks)-1].Fault = history.FaultQueuedEvents
}

// tenancyTests are the histories of what tenants may write and see, and of what namespaces contain.
func tenancyTests() map[string]checkerTest {
	return map[string]checkerTest{
		"a namespace that is frozen for a while": {play: func(s *story) {
			s.populated(true)
			s.labelled("f-1", true)
			s.tenantStores() // a server has not seen the label
			s.at += time.Minute
			s.labelled("f-1", false)
			s.tenantStores()
			s.quota("11", true)
		}},
		"a write that changes nothing": {play: func(s *story) {
			s.populated(true)
			s.labelled("f-1", true)
			s.tenantWrites("f-1", "x") // as above
			written := s.Events[len(s.Events)-1]
			s.at += time.Minute
			s.labelled("f-1", false)
			s.operation(history.Operation{Client: "alice", Role: history.RoleTenant, Verb: "patch", Resource: "configmaps", Namespace: "f-1", Name: "x",
				UID: written.Object.UID, ResourceVersion: written.Revision, Start: s.at, End: s.at})
		}},
		"a write in a frozen namespace": {check: "I7", message: `by tenant "alice" was stored although the namespace was frozen`, play: func(s *story) {
			s.populated(true)
			s.labelled("f-1", true)
			s.at += frozenDelay
			s.tenantStores()
		}},
		"a write before every kube-apiserver knows of the freeze": {play: func(s *story) {
			s.populated(true)
			s.queuesEvents(history.MarkInject)
			s.labelled("f-1", true)
			s.at += frozenDelay
			s.tenantStores()
			s.queuesEvents(history.MarkHeal)
		}},
		"a write after every kube-apiserver knew of the freeze": {check: "I7", message: `by tenant "alice" was stored although the namespace was frozen`, play: func(s *story) {
			s.populated(true)
			s.queuesEvents(history.MarkInject)
			s.labelled("f-1", true)
			s.queuesEvents(history.MarkHeal)
			s.at += frozenDelay + time.Second
			s.tenantStores()
		}},
		"a deletion in a frozen namespace": {check: "I7", message: `delete of configmaps "x"`, play: func(s *story) {
			s.populated(true)
			s.tenantWrites("f-1", "x")
			uid := s.Events[len(s.Events)-1].Object.UID
			s.labelled("f-1", true)
			s.at += frozenDelay
			began := s.at
			s.removeObject("f-1", "x", uid)
			s.operation(history.Operation{Client: "alice", Role: history.RoleTenant, Verb: "delete", Resource: "configmaps", Namespace: "f-1", Name: "x", UID: uid, Start: began, End: s.at})
		}},
		"a rollout in a frozen namespace": {check: "I7", message: `changed quota "populated" although the namespace was frozen`, play: func(s *story) {
			s.populated(true)
			s.labelled("f-1", true)
			s.at += frozenDelay
			s.quota("11", true)
		}},
		"a rollout in a terminating namespace": {check: "I7", message: "although the namespace was terminating", play: func(s *story) {
			s.populated(true)
			s.terminate("f-1", "uid-a", true)
			s.at += frozenDelay
			s.quota("11", true)
		}},
		"the status of a quota in a frozen namespace": {play: func(s *story) {
			s.populated(true)
			s.labelled("f-1", true)
			s.at += frozenDelay
			s.quota("10", false)
		}},
		"no quota": {check: "I8", message: "opened without the quota", play: func(s *story) {
			s.configure("base", populator)
			s.create("f-1", "uid-a")
			created := s.record(lifecycle("f-1", "uid-a", []string{populator}, populator))
			s.initialize(lifecycle("f-1", "uid-a", []string{populator}), created.Revision)
			s.open("f-1", "uid-a")
		}},
		"a quota that is not in force": {check: "I8", message: "before the quota was in force", play: func(s *story) { s.populated(false) }},
		"a rollout that ends": {play: func(s *story) {
			s.populated(true)
			s.population("11")
			s.mark(history.MarkQuiet)
			s.quota("11", true)
			s.mark(history.MarkSettled)
		}},
		"a rollout that does not end": {check: "I8", message: "does not have the quota", play: func(s *story) {
			s.populated(true)
			s.population("11")
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
			s.quota("11", true)
		}},
		"a namespace that a RoleBinding shows": {play: func(s *story) {
			s.opens("f-1", "uid-a")
			s.event(history.Kube, history.Event{Key: "/registry/rolebindings/f-1/" + history.ViewName, Object: &history.Object{Kind: "RoleBinding", Namespace: "f-1", Name: history.ViewName, UID: "binding"}})
			s.sees("f-1", "uid-a")
		}},
		"a namespace that nothing shows": {check: "I9", message: `"viewer" saw a namespace that it may not get`, play: func(s *story) {
			s.opens("f-1", "uid-a")
			s.sees("f-1", "uid-a")
		}},
		"created on behalf of a user":                 {play: func(s *story) { s.createdFor(history.ClientPortal, "jane", "jane") }},
		"a user who may not name another one":         {play: func(s *story) { s.createdFor("alice", "jane", "") }},
		"a user who names another one":                {check: "I9", message: `on behalf of "", and names "jane"`, play: func(s *story) { s.createdFor("alice", "jane", "jane") }},
		"a portal whose annotation is lost":           {check: "I9", message: `on behalf of "jane", and names ""`, play: func(s *story) { s.createdFor(history.ClientPortal, "jane", "") }},
		"content that goes after its holder is done":  {play: func(s *story) { held(s, true) }},
		"content that goes before its holder is done": {check: "I4", message: `before participant "` + partner + `", which holds the content, cleaned up`, play: func(s *story) { held(s, false) }},
	}
}

// held is the life of a namespace with a participant that holds the content, which goes before or after the participant has cleaned up.
func held(s *story, after bool) {
	participates(s)
	for _, event := range s.Events {
		if l := event.Object.Lifecycle; l != nil {
			for i := range l.Spec.Plan {
				if l.Spec.Plan[i].Finalizer {
					l.Spec.Plan[i].Holds = new(v1alpha1.HoldContent)
				}
			}
		}
	}
	s.terminate("f-1", "uid-a", true)
	if !after {
		s.resultGoes(partner)
	}
	s.operation(history.Operation{Client: partner, Role: history.RoleInitializer, Verb: history.VerbCleanup, Resource: "outside", Name: "f-1", NamespaceUID: "uid-a", Start: s.at, End: s.at})
	s.tick()
	if after {
		s.resultGoes(partner)
	}
	s.remove("f-1", "uid-a")
}

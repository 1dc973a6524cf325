//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const gateOfScan, gateOfApprove = v1alpha1.PendingPrefix + scan, v1alpha1.PendingPrefix + approve

// attempt is a request that tries to let a waiting object run.
type attempt struct {
	what string
	// body and change replace those of the cell. query follows its path.
	body, query string
	change      func(*unstructured.Unstructured)
	// fresh requests change new objects, whose gates and labels no field manager owns.
	fresh bool
	// want is the status code of the answer, or accepted. A policy sends 403: the guard, if policy is empty.
	want   int
	policy string
}

// accepted requests do not let the object run: kube-apiserver ignores the fields, or deletes the object.
const accepted = 0

// TestObjectsMatrix: neither the administrator of a namespace nor one of the cluster without the verbs of nsinit can let a waiting object
// run, with any verb, subresource and kind of patch that discovery lists for pods and Jobs.
func TestObjectsMatrix(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	if !c.StampsByPolicy(t) {
		t.Skip("this version of Kubernetes refuses the component, as TestObjects checks")
	}
	o := newObjectsTest(t, c)
	o.register(nil, nil)
	t.Cleanup(func() {
		_ = c.Nsinit.NsinitV1alpha1().InitializerConfigurations().Delete(context.WithoutCancel(t.Context()), o.configuration, metav1.DeleteOptions{})
	})
	allRights(t, c, "e2e-objects-owner", o.namespace)
	cells := o.cells()
	for who, client := range map[string]gateClient{
		"the administrator of the namespace": newGateClient(c, c.As("e2e-objects-owner")),
		"an administrator of the cluster":    newGateClient(c, c.User(t, "e2e-objects-admin", framework.Everything())),
	} {
		t.Run(who, func(t *testing.T) {
			o.t = t
			for _, cell := range cells {
				if cell.method == http.MethodOptions && who == "an administrator of the cluster" { // RBAC has no verb for it
					continue
				}
				for _, attempt := range objectAttempts()[attemptsOf(cell)] {
					o.try(client, cell, attempt)
				}
			}
		})
	}
}

// cells returns a cell for each verb of discovery that does not only read, and checks that the table has attempts for each.
func (o *objectsTest) cells() (cells []cell) {
	known, examples := objectAttempts(), readExamples(o.t, o.Cluster)
	for _, groupVersion := range []string{"v1", "batch/v1"} {
		list, err := o.Core.Discovery().ServerResourcesForGroupVersion(groupVersion)
		o.must("read discovery", err)
		for _, resource := range list.APIResources {
			if parent, _, _ := strings.Cut(resource.Name, "/"); slices.Contains([]string{"pods", "jobs", "bindings"}, parent) {
				cells = append(cells, examples.cellsOf(o.t, groupVersion, resource)...)
			}
		}
	}
	cells = slices.DeleteFunc(cells, func(c cell) bool { return c.method == http.MethodGet && !c.connect })
	found := map[string]bool{}
	for _, cell := range cells {
		name := attemptsOf(cell)
		if found[name] = true; len(known[name]) == 0 {
			o.t.Errorf("decide about %q: discovery lists it, and no attempt uses it", name)
		}
	}
	for name := range known {
		if !found[name] {
			o.t.Errorf("discovery does not list %q", name)
		}
	}
	return cells
}

// attemptsOf returns the key of the attempts for a cell. All methods that connect have the same answer.
func attemptsOf(c cell) string {
	name, _, _ := strings.Cut(c.name, " (")
	if c.connect {
		return "connect " + name[strings.LastIndex(name, " ")+1:]
	}
	return name
}

// try makes a request for the waiting pod or Job called there, and checks that every object still waits.
func (o *objectsTest) try(client gateClient, cell cell, a attempt) {
	o.t.Helper()
	if a.fresh {
		o.deleteAll()
	}
	framework.Eventually(o.t, "a pod and a Job wait", func(ctx context.Context) error {
		_, podErr := o.Core.CoreV1().Pods(o.namespace).Create(ctx, podOf("there"), metav1.CreateOptions{})
		_, jobErr := o.Core.BatchV1().Jobs(o.namespace).Create(ctx, plainJob("there", false), metav1.CreateOptions{})
		for _, err := range []error{podErr, jobErr} {
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		return o.allWait(ctx)
	})
	if a.body != "" || a.change != nil {
		cell.body, cell.change = a.body, a.change
	}
	cell.path += a.query
	err := client.try(o.t.Context(), cell, o.namespace, false)
	what := cell.name + ": " + a.what
	policy := a.policy
	if policy == "" {
		policy = installation.ObjectsGuard
	}
	var status apierrors.APIStatus
	switch {
	case a.want == http.StatusForbidden:
		if err := framework.RefusedBy(policy, err); err != nil {
			o.t.Errorf("%s: %v", what, err)
		}
	case a.want == accepted && err != nil, a.want != accepted && (!errors.As(err, &status) || int(status.Status().Code) != a.want):
		o.t.Errorf("%s: want status %d, got %v", what, a.want, err)
	}
	if err := o.allWait(o.t.Context()); err != nil {
		o.t.Errorf("%s: %v", what, err)
		o.deleteAll()
	}
}

// deleteAll deletes the pods and Jobs of the namespace.
func (o *objectsTest) deleteAll() {
	o.t.Helper()
	pods := o.Core.CoreV1().Pods(o.namespace).DeleteCollection(o.t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{})
	jobs := o.Core.BatchV1().Jobs(o.namespace).DeleteCollection(o.t.Context(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{})
	o.must("delete the objects", errors.Join(pods, jobs))
}

// allWait checks that each pod and Job of the namespace waits for both initializers, and that no Job has a pod.
func (o *objectsTest) allWait(ctx context.Context) error {
	pods, podErr := o.Core.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{})
	jobs, jobErr := o.Core.BatchV1().Jobs(o.namespace).List(ctx, metav1.ListOptions{})
	if err := errors.Join(podErr, jobErr); err != nil {
		return err
	}
	want := []string{scan, approve}
	for _, pod := range pods.Items {
		if !slices.Equal(helper.PendingOfObject(&pod), want) || pod.Spec.NodeName != "" || pod.Labels[batchv1.JobNameLabel] != "" {
			return fmt.Errorf("pod %s with labels %v on %q waits for %v", pod.Name, pod.Labels, pod.Spec.NodeName, pod.Spec.SchedulingGates)
		}
	}
	for _, job := range jobs.Items {
		if !slices.Equal(helper.PendingOfObject(&job), want) || !*job.Spec.Suspend || job.Annotations[v1alpha1.AnnotationSuspend] != "" {
			return fmt.Errorf("job %s with suspend %t and annotations %v waits for %v", job.Name, *job.Spec.Suspend, job.Annotations, job.Labels)
		}
	}
	return nil
}

// objectAttempts returns the attempts by verb and resource.
func objectAttempts() map[string][]attempt {
	all := map[string][]attempt{}
	maps.Copy(all, podAttempts())
	maps.Copy(all, jobAttempts())
	return all
}

// set returns a change of one field, and drop one that removes it.
func set(value any, fields ...string) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(object.Object, value, fields...)
	}
}

func drop(fields ...string) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		unstructured.RemoveNestedField(object.Object, fields...)
	}
}

func allOf(changes ...func(*unstructured.Unstructured)) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		for _, change := range changes {
			change(object)
		}
	}
}

func podAttempts() map[string][]attempt {
	const (
		pod      = `{"apiVersion":"v1","kind":"Pod"`
		spec     = `"containers":[{"name":"main","image":"none"}]`
		onNode   = `{"spec":{"nodeName":"none"}}`
		both     = `{"spec":{"nodeName":"none","schedulingGates":null}}`
		only     = `{"spec":{"schedulingGates":[{"name":"` + gateOfApprove + `"}]}}`
		own      = pod + `,"spec":{"schedulingGates":[{"name":"` + gateOfScan + `"},{"name":"` + gateOfApprove + `"}]}}`
		giveUp   = pod + `,"spec":{"schedulingGates":[]}}`
		deletes  = `{"spec":{"schedulingGates":[{"$patch":"delete","name":"` + gateOfScan + `"},{"$patch":"delete","name":"` + gateOfApprove + `"}]}}`
		removes  = `[{"op":"remove","path":"/spec/schedulingGates"}]`
		no, busy = http.StatusForbidden, http.StatusConflict
		invalid  = http.StatusUnprocessableEntity
		noNode   = http.StatusBadRequest
	)
	gate := func(name string) any { return map[string]any{"name": name} }
	gates := func(names ...any) func(*unstructured.Unstructured) { return set(names, "spec", "schedulingGates") }
	ungated := drop("spec", "schedulingGates")
	all := map[string][]attempt{
		"create pods": {
			{what: "without gates", want: accepted},
			{what: "with a gate of the last initializer", body: pod + `,"metadata":{"generateName":"new-"},` + only[1:len(only)-2] + `,` + spec + `}}`, want: accepted},
			{what: "on a node", body: pod + `,"metadata":{"generateName":"new-"},"spec":{"nodeName":"none",` + spec + `}}`, want: invalid},
		},
		"create by apply pods": {
			{what: "on a node", body: pod + `,"metadata":{"name":"applied"},"spec":{"nodeName":"none",` + spec + `}}`, want: invalid},
			{what: "without gates", body: pod + `,"metadata":{"name":"applied"},"spec":{` + spec + `}}`, want: accepted},
		},
		"update pods": {
			{what: "without gates", change: ungated, want: no},
			{what: "without the first gate", change: gates(gate(gateOfApprove)), want: no},
			{what: "in another order", change: gates(gate(gateOfApprove), gate(gateOfScan)), want: no},
			{what: "with gates of others", change: gates(gate("other.example.com/gate")), want: invalid},
			{what: "on a node", change: set("none", "spec", "nodeName"), want: invalid},
			{what: "on a node, without gates", change: allOf(ungated, set("none", "spec", "nodeName")), want: invalid},
		},
		"merge patch pods": {
			{what: "without gates", body: ungate, want: no}, {what: "without the first gate", body: only, want: no},
			{what: "on a node", body: onNode, want: invalid}, {what: "on a node, without gates", body: both, want: invalid},
		},
		"JSON patch pods": {
			{what: "without gates", body: removes, want: no}, {what: "without the first gate", body: `[{"op":"remove","path":"/spec/schedulingGates/0"}]`, want: no},
			{what: "on a node", body: `[{"op":"add","path":"/spec/nodeName","value":"none"}]`, want: invalid},
		},
		"strategic merge patch pods": {
			{what: "without gates", body: deletes, want: no}, {what: "without the list", body: ungate, want: no}, {what: "on a node", body: onNode, want: invalid},
		},
		"apply pods": {
			{what: "owns the gates", body: own, fresh: true, want: accepted}, {what: "gives the gates up", body: giveUp, want: no},
			{what: "on a node", body: pod + `,"spec":{"nodeName":"none"}}`, want: invalid},
		},
		"delete pods":                 {{what: "removes the pod", want: accepted}},
		"delete a collection of pods": {{what: "removes the pods", want: accepted}},
		"create pods/eviction":        {{what: "removes the pod", want: accepted}},
		"create pods/binding":         {{what: "to a node", want: busy}},
		"create bindings":             {{what: "to a node", want: busy}},
		"connect pods/exec":           {{what: "runs a command", query: "?command=c&stdout=true", want: noNode}},
		"connect pods/attach":         {{what: "attaches", query: "?stdout=true", want: noNode}},
		"connect pods/portforward":    {{what: "forwards", query: "?ports=80", want: noNode}},
		"connect pods/proxy":          {{what: "sends a request", want: noNode}},
	}
	for _, subresource := range []string{"status", "ephemeralcontainers", "resize"} {
		all["update pods/"+subresource] = []attempt{{what: "without gates, on a node", change: allOf(ungated, set("none", "spec", "nodeName"), set("Running", "status", "phase")), want: accepted}}
		all["merge patch pods/"+subresource] = []attempt{{what: "without gates", body: ungate, want: accepted}, {what: "on a node, without gates", body: both, want: accepted}}
		all["JSON patch pods/"+subresource] = []attempt{{what: "without gates", body: removes, want: accepted}}
		all["strategic merge patch pods/"+subresource] = []attempt{{what: "without gates", body: deletes, want: accepted}}
		all["apply pods/"+subresource] = []attempt{{what: "owns the gates", body: own, fresh: true, want: accepted}, {what: "gives the gates up", body: giveUp, want: accepted}}
	}
	return all
}

func jobAttempts() map[string][]attempt {
	const (
		job       = `{"apiVersion":"batch/v1","kind":"Job"`
		template  = `"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"none"}]}}`
		forged    = `"template":{"metadata":{"labels":{"` + gateOfScan + `":"0"}},"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"none"}]}}`
		resume    = `{"spec":{"suspend":false}}`
		unlabel   = `{"metadata":{"labels":{"` + gateOfScan + `":null,"` + gateOfApprove + `":null}}}`
		unlabelA  = `{"metadata":{"labels":{"` + gateOfScan + `":null}}}`
		noLabels  = `{"metadata":{"labels":null}}`
		both      = `{"metadata":{"labels":null},"spec":{"suspend":false}}`
		position  = `{"metadata":{"labels":{"` + gateOfScan + `":"2"}}}`
		wish      = `{"metadata":{"annotations":{"` + v1alpha1.AnnotationSuspend + `":"true"}}}`
		named     = job + `,"metadata":{"name":"there"}`
		running   = `{"status":{"active":1,"ready":1}}`
		own       = job + `,"metadata":{"name":"there","labels":{"` + gateOfScan + `":"0","` + gateOfApprove + `":"1"}}}`
		removes   = `[{"op":"remove","path":"/metadata/labels"}]`
		replaces  = `[{"op":"replace","path":"/spec/suspend","value":false}]`
		no        = http.StatusForbidden
		templates = "nsinit-objects-templates"
	)
	unlabelled, resumed := drop("metadata", "labels"), set(false, "spec", "suspend")
	merges := []attempt{
		{what: "without labels", body: unlabel, want: no}, {what: "without the first label", body: unlabelA, want: no}, {what: "without any label", body: noLabels, want: no},
		{what: "resumed", body: resume, want: no}, {what: "resumed, without labels", body: both, want: no}, {what: "with another position", body: position, want: no},
		{what: "with another wish", body: wish, want: no},
	}
	statuses := []attempt{
		{what: "without labels", body: unlabel, want: no}, {what: "without any label", body: noLabels, want: no}, {what: "with another position", body: position, want: no},
		{what: "resumed", body: resume, want: accepted}, {what: "with pods", body: running, want: accepted},
	}
	return map[string][]attempt{
		"create jobs": {
			{what: "without labels", body: job + `,"metadata":{"generateName":"new-"},"spec":{"suspend":false,` + template + `}}`, want: accepted},
			{what: "with a label of the last initializer", body: job + `,"metadata":{"generateName":"new-","labels":{"` + gateOfApprove + `":"0"}},"spec":{` + template + `}}`, want: accepted},
			{what: "with a label of the template", body: job + `,"metadata":{"generateName":"new-"},"spec":{` + forged + `}}`, want: no, policy: templates},
		},
		"create by apply jobs": {
			{what: "with a label of the template", body: job + `,"metadata":{"name":"applied"},"spec":{` + forged + `}}`, want: no, policy: templates},
			{what: "without labels", body: job + `,"metadata":{"name":"applied"},"spec":{` + template + `}}`, want: accepted},
			{what: "resumed", body: job + `,"metadata":{"name":"applied"},"spec":{"suspend":false,` + template + `}}`, want: no},
		},
		"update jobs": {
			{what: "without labels", change: unlabelled, want: no}, {what: "without the first label", change: drop("metadata", "labels", gateOfScan), want: no},
			{what: "resumed", change: resumed, want: no}, {what: "resumed, without labels", change: allOf(unlabelled, resumed), want: no},
		},
		"merge patch jobs":           merges,
		"strategic merge patch jobs": merges,
		"JSON patch jobs":            {{what: "without labels", body: removes, want: no}, {what: "resumed", body: replaces, want: no}},
		"apply jobs": {
			{what: "owns the labels", body: own, fresh: true, want: accepted}, {what: "gives the labels up", body: named + `}`, want: no},
			{what: "resumed", body: own[:len(own)-1] + `,"spec":{"suspend":false}}`, want: no},
		},
		"delete jobs":                 {{what: "removes the Job", want: accepted}},
		"delete a collection of jobs": {{what: "removes the Jobs", want: accepted}},
		"update jobs/status": {
			{what: "without labels", change: unlabelled, want: no}, {what: "resumed", change: resumed, want: accepted}, {what: "resumed, without labels", change: allOf(unlabelled, resumed), want: no},
		},
		"merge patch jobs/status":           statuses,
		"strategic merge patch jobs/status": statuses,
		"JSON patch jobs/status":            {{what: "without labels", body: removes, want: no}, {what: "resumed", body: replaces, want: accepted}},
		"apply jobs/status":                 {{what: "owns the labels", body: own, fresh: true, want: accepted}, {what: "gives the labels up", body: named + `}`, want: no}},
	}
}

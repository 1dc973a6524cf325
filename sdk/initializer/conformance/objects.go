/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/initializer"
)

// otherGate is a scheduling gate of the suite's pods that no initializer may remove. It keeps them from running.
const otherGate = "other.conformance.nsinit.dev/gate"

// objects are the tests for one of the resources on which the initializer acts.
type objects struct {
	*suite
	resource string
}

// testObjects tests the initializer on the resources that its InitializerConfiguration names.
func (s *suite) testObjects(t *testing.T) {
	entry, former, err := s.entry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Served", func(t *testing.T) {
		s.start(t)
		s.until(t, "the initializer reports that it is served", func(ctx context.Context) error {
			_, latest, err := s.entry(ctx)
			if err == nil && latest.Equal(former) {
				err = fmt.Errorf("its last report is of %s", latest)
			}
			return err
		})
	})
	for resource := range v1alpha1.HeldResources() {
		if o := (objects{s, resource}); entry.Matches(resource) {
			t.Run(resource+"/Order", o.testOrder)
			t.Run(resource+"/Retry", o.testRetry)
			t.Run(resource+"/Crash", o.testCrash)
		}
	}
}

// entry returns the entry of the initializer in an InitializerConfiguration, and the time of its last report.
func (s *suite) entry(ctx context.Context) (v1alpha1.Initializer, *metav1.MicroTime, error) {
	list, err := s.nsinit.NsinitV1alpha1().InitializerConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return v1alpha1.Initializer{}, nil, err
	}
	_, report := helper.ObjectRegistration(list.Items, s.Name)
	for _, configuration := range list.Items {
		for _, entry := range configuration.Initializers {
			if entry.Name == s.Name {
				return entry, report.ReportTime, nil
			}
		}
	}
	return v1alpha1.Initializer{}, nil, fmt.Errorf("no InitializerConfiguration registers %q", s.Name)
}

// testOrder: the initializer does not act on an object before its turn, and removes only its own name.
func (o objects) testOrder(t *testing.T) {
	o.start(t)
	namespace, other := o.createHeld(t), o.createHeld(t)
	release := o.registerHere(t, "0", before, namespace)
	o.registerHere(t, "zz", after, namespace)
	o.waitHeld(t, namespace, before, o.Name, after)
	o.createObject(t, namespace, "first")
	o.takeTurns(t, other)
	o.waitPending(t, namespace, "first", before, o.Name, after)
	release()
	o.waitPending(t, namespace, "first", after)
}

// testRetry: a policy refuses what the initializer writes to the namespace, and is deleted later.
func (o objects) testRetry(t *testing.T) {
	o.start(t)
	namespace, other := o.createHeld(t), o.createHeld(t)
	o.createObject(t, other, "earlier")
	o.waitPending(t, other, "earlier") // the program acts now
	created := "request.operation == 'CREATE' && request.resource.resource == %q && object.metadata.?name.orValue('') == 'first'"
	lift := o.refuse(t, namespace, fmt.Sprintf(created, o.resource))
	o.createObject(t, namespace, "first")
	o.takeTurns(t, other)
	o.waitObject(t, namespace, "first", o.Name) // CheckObject may return nil: the policy does not refuse what is done elsewhere
	lift()
	o.waitPending(t, namespace, "first")
}

// takeTurns has the initializer act on two objects, one after the other. It then had time to act on objects that existed before, in whatever
// order it acts on those that it finds at the same time.
func (o objects) takeTurns(t *testing.T, namespace string) {
	t.Helper()
	for _, name := range []string{"second", "third"} {
		o.createObject(t, namespace, name)
		o.waitPending(t, namespace, name)
	}
}

// testCrash: the initializer is killed repeatedly while objects are created.
func (o objects) testCrash(t *testing.T) {
	kill := o.start(t)
	namespace := o.createHeld(t)
	for i := range o.Namespaces {
		kills := i%3 == 2
		if kills { // the program must act now, so that the kill hits a step of it
			o.waitPending(t, namespace, fmt.Sprintf("object-%d", i-1))
		}
		o.createObject(t, namespace, fmt.Sprintf("object-%d", i))
		if kills {
			kill = o.restart(t, kill, time.Duration(i/3)*50*time.Millisecond)
		}
	}
	for i := range o.Namespaces {
		o.waitPending(t, namespace, fmt.Sprintf("object-%d", i))
	}
}

// registerHere registers an initializer of the suite for the objects of a namespace until the test ends, or release is called.
func (o objects) registerHere(t *testing.T, configuration, name, namespace string) (release func()) {
	t.Helper()
	client := o.nsinit.NsinitV1alpha1().InitializerConfigurations()
	configuration += "-conformance-" + uuid.NewString()[:8]
	if _, err := client.Create(t.Context(), &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configuration}, Initializers: []v1alpha1.Initializer{{
		Name: name, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		Rules: []v1alpha1.Rule{{APIGroups: []string{v1alpha1.HeldResources()[o.resource]}, APIVersions: []string{"v1"}, Resources: []string{o.resource}}},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		if err := client.Delete(context.Background(), configuration, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return release
}

// createHeld creates a namespace, and waits until new objects in it wait for the initializer.
func (o objects) createHeld(t *testing.T) string {
	t.Helper()
	namespace := o.create(t, uniqueName())
	o.waitOpen(t, namespace)
	o.waitHeld(t, namespace.Name, o.Name)
	return namespace.Name
}

// waitHeld waits until new objects wait for these initializers.
func (o objects) waitHeld(t *testing.T, namespace string, want ...string) {
	t.Helper()
	o.waitFor(t, "a new object in "+namespace, want, func(ctx context.Context) (initializer.Object, error) {
		return o.tryToCreate(ctx, namespace, "probe", metav1.DryRunAll)
	})
}

// waitFor waits until the list of pending initializers of an object is the wanted one.
func (o objects) waitFor(t *testing.T, what string, want []string, read func(ctx context.Context) (initializer.Object, error)) (object initializer.Object) {
	t.Helper()
	o.until(t, fmt.Sprintf("%s (%s) waits for %q", what, o.resource, want), func(ctx context.Context) (err error) {
		object, err = read(ctx)
		if err == nil && !slices.Equal(helper.PendingOfObject(object), want) {
			err = fmt.Errorf("it waits for %q", helper.PendingOfObject(object))
		}
		return err
	})
	return object
}

func (o objects) createObject(t *testing.T, namespace, name string) {
	t.Helper()
	if _, err := o.tryToCreate(t.Context(), namespace, name); err != nil {
		t.Fatal(err)
	}
}

// tryToCreate creates a pod that another gate holds, or a suspended Job.
func (o objects) tryToCreate(ctx context.Context, namespace, name string, dryRun ...string) (initializer.Object, error) {
	meta, options, spec := metav1.ObjectMeta{Name: name}, metav1.CreateOptions{DryRun: dryRun}, o.Pod
	if o.resource == "pods" {
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: otherGate}}
		return o.core.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: spec}, options)
	}
	job := batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{Spec: spec}}
	return o.core.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: job}, options)
}

// waitObject waits until an object waits for these initializers.
func (o objects) waitObject(t *testing.T, namespace, name string, want ...string) initializer.Object {
	t.Helper()
	return o.waitFor(t, namespace+"/"+name, want, func(ctx context.Context) (initializer.Object, error) {
		if o.resource == "pods" {
			return o.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		}
		return o.core.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	})
}

// waitPending waits until an object waits for these initializers, and checks what the initializer has done with it.
func (o objects) waitPending(t *testing.T, namespace, name string, want ...string) {
	t.Helper()
	object := o.waitObject(t, namespace, name, want...)
	if pod, ok := object.(*corev1.Pod); ok && !slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: otherGate}) {
		t.Errorf("the initializer removed the gate %s of pod %s", otherGate, name)
	}
	err := o.CheckObject(t.Context(), object)
	switch waits := slices.Contains(want, o.Name); {
	case waits && err == nil:
		t.Errorf("the initializer acted on %s before its turn", name)
	case !waits && err != nil:
		t.Errorf("the initializer has removed itself from %s, but: %v", name, err)
	}
}

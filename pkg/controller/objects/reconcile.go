/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// step is what the controller does next with an object.
type step string

const (
	// wait does nothing until the deadline, if there is one.
	wait step = ""
	// release removes initializers that no configuration registers.
	release step = "release"
	// skip removes the first initializer at its deadline.
	skip step = "skip"
	// fail ends the object at the deadline of the first initializer.
	fail step = "fail"
)

// next returns the next step for an object that waits, the initializers that it concerns, and the time until the deadline, or 0.
func next(object metav1.Object, registered map[string]*v1alpha1.Initializer, now time.Time) (step, []string, time.Duration) {
	pending := helper.PendingOfObject(object)
	if len(pending) == 0 || object.GetDeletionTimestamp() != nil {
		return wait, nil, 0
	}
	unknown := slices.DeleteFunc(slices.Clone(pending), func(name string) bool { return registered[name] != nil })
	if len(unknown) > 0 {
		return release, unknown, 0
	}
	first := registered[pending[0]]
	if first.FailurePolicy == nil {
		return wait, nil, 0
	}
	timeout := time.Duration(ptr.Deref(first.TimeoutSeconds, v1alpha1.DefaultTimeoutSeconds)) * time.Second
	if left := object.GetCreationTimestamp().Add(timeout).Sub(now); left > 0 {
		return wait, nil, left
	}
	if *first.FailurePolicy == v1alpha1.Fail {
		return fail, pending[:1], 0
	}
	return skip, pending[:1], 0
}

// byName returns the initializers of configurations that have an effect by name.
func byName(configurations []*v1alpha1.InitializerConfiguration) map[string]*v1alpha1.Initializer {
	all := map[string]*v1alpha1.Initializer{}
	for _, initializer := range ordered(configurations) {
		all[initializer.Name] = initializer.Initializer
	}
	return all
}

// Reasons of events on pods and Jobs.
const (
	// eventReleased: no InitializerConfiguration registers the initializers any more.
	eventReleased = "InitializerReleased"
	// eventSkipped: an initializer with failurePolicy Ignore missed its deadline.
	eventSkipped = "InitializerSkipped"
	// eventFailed: an initializer with failurePolicy Fail missed its deadline, so nsinit deleted
	// the pod, or the Job failed.
	eventFailed = "InitializerFailed"
)

// take takes a step with an object. Every write has the UID and the resourceVersion of the object that the decision was made for, so an
// object that was released meanwhile stays as it is.
func (s *session) take(ctx context.Context, resource string, object metav1.Object, step step, names []string) (err error) {
	eventType, reason, message := corev1.EventTypeWarning, "", ""
	switch step {
	case release:
		eventType, reason, message = corev1.EventTypeNormal, eventReleased, "no InitializerConfiguration registers "+strings.Join(names, ", ")+" any more"
		err = s.remove(ctx, resource, object, names)
	case skip:
		reason, message = eventSkipped, fmt.Sprintf("initializer %q was skipped: it was not done by its deadline (failurePolicy Ignore)", names[0])
		err = s.remove(ctx, resource, object, names)
	case fail:
		reason, message = eventFailed, fmt.Sprintf("initializer %q was not done by its deadline (failurePolicy Fail)", names[0])
		err = s.fail(ctx, resource, object, message)
	case wait:
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot take the step %s: %w", step, err)
	}
	kind := map[string]string{"pods": "Pod", "jobs": "Job"}[resource]
	s.Events.Event(&corev1.ObjectReference{APIVersion: resourceOf(resource).GroupVersion().String(), Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(),
		UID: object.GetUID()}, eventType, reason, message)
	klog.FromContext(ctx).Info("Took a step with an object that waited", "step", step, "initializers", names)
	return nil
}

// remove removes names from the list of pending initializers. kube-apiserver starts a Job with the last one.
func (s *session) remove(ctx context.Context, resource string, object metav1.Object, names []string) error {
	labels, gates := map[string]any{}, []map[string]string{}
	for _, name := range names {
		labels[v1alpha1.PendingPrefix+name] = nil
		gates = append(gates, map[string]string{"$patch": "delete", "name": v1alpha1.PendingPrefix + name})
	}
	patch := map[string]any{"metadata": map[string]any{"labels": labels}}
	if resource == "pods" {
		patch = map[string]any{"spec": map[string]any{"schedulingGates": gates}}
	}
	_, err := s.patch(ctx, resource, object, patch)
	return err
}

// fail deletes a pod, or makes a Job fail. kube-apiserver accepts the end of a Job only with a start. kube-controller-manager turns the
// condition into Failed, and starts no pod.
func (s *session) fail(ctx context.Context, resource string, object metav1.Object, message string) error {
	if resource == "pods" {
		version := &metav1.Preconditions{UID: new(object.GetUID()), ResourceVersion: new(object.GetResourceVersion())}
		return s.Metadata.Resource(resourceOf(resource)).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: version})
	}
	now := metav1.NewTime(s.Clock.Now())
	failed, err := s.patch(ctx, resource, object, map[string]any{"status": map[string]any{"startTime": now, "conditions": []batchv1.JobCondition{{
		Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, Reason: eventFailed, Message: message, LastProbeTime: now, LastTransitionTime: now,
	}}}}, "status")
	if err != nil {
		return err
	}
	return s.remove(ctx, resource, failed, helper.PendingOfObject(failed))
}

// patch patches one version of an object.
func (s *session) patch(ctx context.Context, resource string, object metav1.Object, patch map[string]any, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	versioned := unstructured.Unstructured{Object: patch}
	versioned.SetUID(object.GetUID())
	versioned.SetResourceVersion(object.GetResourceVersion())
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	client := s.Metadata.Resource(resourceOf(resource)).Namespace(object.GetNamespace())
	return client.Patch(ctx, object.GetName(), types.StrategicMergePatchType, data, metav1.PatchOptions{}, subresources...)
}

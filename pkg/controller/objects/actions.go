/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

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
	message, reason := "", ""
	switch step {
	case release:
		reason, message = eventReleased, "no InitializerConfiguration registers "+strings.Join(names, ", ")+" any more"
		err = s.remove(ctx, resource, object, names)
	case skip:
		reason, message = eventSkipped, fmt.Sprintf("initializer %q was skipped: it was not done by its deadline (failurePolicy Ignore)", names[0])
		err = s.remove(ctx, resource, object, names)
	case fail:
		reason, message = eventFailed, fmt.Sprintf("initializer %q was not done by its deadline (failurePolicy Fail)", names[0])
		if resource == "pods" {
			uid, version := object.GetUID(), object.GetResourceVersion()
			err = s.Core.CoreV1().Pods(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		} else {
			err = s.failJob(ctx, object, message)
		}
	case wait:
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot take the step %s: %w", step, err)
	}
	reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
	if resource == "jobs" {
		reference.APIVersion, reference.Kind = batchv1.SchemeGroupVersion.String(), "Job"
	}
	kind := corev1.EventTypeWarning
	if step == release {
		kind = corev1.EventTypeNormal
	}
	s.Events.Event(reference, kind, reason, message)
	klog.FromContext(ctx).Info("Took a step with an object that waited", "step", step, "initializers", names)
	return nil
}

// remove removes names from the list of pending initializers. kube-apiserver starts a Job with the last one.
func (s *session) remove(ctx context.Context, resource string, object metav1.Object, names []string) error {
	if pod, ok := object.(*corev1.Pod); ok {
		gates := slices.DeleteFunc(slices.Clone(pod.Spec.SchedulingGates), func(gate corev1.PodSchedulingGate) bool {
			name, found := strings.CutPrefix(gate.Name, v1alpha1.PendingPrefix)
			return found && slices.Contains(names, name)
		})
		patch, err := patchOf(object, nil, map[string]any{"spec": map[string]any{"schedulingGates": gates}})
		if err == nil {
			_, err = s.Core.CoreV1().Pods(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return err
	}
	labels := map[string]any{}
	for _, name := range names {
		labels[v1alpha1.PendingPrefix+name] = nil
	}
	patch, err := patchOf(object, labels, nil)
	if err == nil {
		_, err = s.Core.BatchV1().Jobs(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// failJob makes a Job fail. kube-apiserver accepts the end of a Job only with a start. kube-controller-manager turns the condition into
// Failed, and starts no pod.
func (s *session) failJob(ctx context.Context, object metav1.Object, message string) error {
	now := metav1.NewTime(s.Clock.Now())
	patch, err := patchOf(object, nil, map[string]any{"status": map[string]any{"startTime": now, "conditions": []batchv1.JobCondition{{
		Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, Reason: eventFailed, Message: message, LastProbeTime: now, LastTransitionTime: now,
	}}}})
	if err != nil {
		return err
	}
	failed, err := s.Core.BatchV1().Jobs(object.GetNamespace()).Patch(ctx, object.GetName(), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	return s.remove(ctx, "jobs", &metav1.PartialObjectMetadata{ObjectMeta: failed.ObjectMeta}, helper.PendingOfObject(failed))
}

// patchOf returns a patch of one version of an object.
func patchOf(object metav1.Object, labels, more map[string]any) ([]byte, error) {
	metadata := map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion()}
	if labels != nil {
		metadata["labels"] = labels
	}
	patch := map[string]any{"metadata": metadata}
	maps.Copy(patch, more)
	return json.Marshal(patch)
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package history

import (
	"encoding/json"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitscheme "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/scheme"
)

// decode returns what is recorded of a stored value, and whether it is: of Kubernetes, only
// namespaces and what is in them. A value that cannot be decoded is recorded without an object.
func decode(store Store, value []byte) (*Object, bool) {
	decoder := scheme.Codecs.UniversalDeserializer()
	if store == Nsinit {
		decoder = nsinitscheme.Codecs.UniversalDeserializer()
	}
	object, kind, err := decoder.Decode(value, nil, nil)
	if err != nil {
		var partial metav1.PartialObjectMetadata // a custom resource
		if json.Unmarshal(value, &partial) != nil || partial.Kind == "" {
			return nil, store == Nsinit
		}
		gvk := partial.GroupVersionKind()
		object, kind = &partial, &gvk
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, false
	}
	if store == Kube && kind.Kind != "Namespace" && (accessor.GetNamespace() == "" || noise(kind.Kind)) {
		return nil, false
	}
	recorded := &Object{
		Kind: kind.Kind, Namespace: accessor.GetNamespace(), Name: accessor.GetName(), UID: accessor.GetUID(),
		Deleting: accessor.GetDeletionTimestamp() != nil, Annotations: accessor.GetAnnotations(),
	}
	accessor.SetManagedFields(nil)
	switch typed := object.(type) {
	case *corev1.Namespace:
		recorded.Core = typed
	case *v1alpha1.NamespaceLifecycle:
		recorded.Lifecycle = typed
	case *v1alpha1.NamespaceInitializerConfiguration:
		recorded.Configuration = typed
	case *v1alpha1.InitializerConfiguration:
		recorded.Registration = typed
	case *v1alpha1.NamespacePopulation:
		recorded.Population = typed
	case *corev1.ResourceQuota:
		recorded.Quota = &corev1.ResourceQuota{Spec: typed.Spec, Status: typed.Status}
	case *corev1.Pod:
		recorded.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: typed.OwnerReferences},
			Spec: corev1.PodSpec{NodeName: typed.Spec.NodeName, SchedulingGates: typed.Spec.SchedulingGates}, Status: corev1.PodStatus{Phase: typed.Status.Phase}}
	case *batchv1.Job:
		recorded.Job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: typed.Labels}, Spec: batchv1.JobSpec{Suspend: typed.Spec.Suspend},
			Status: batchv1.JobStatus{StartTime: typed.Status.StartTime}}
	}
	return recorded, true
}

// noise reports whether a kind is what controllers write all the time, and no tenant.
func noise(kind string) bool { return kind == "Event" || kind == "Lease" }

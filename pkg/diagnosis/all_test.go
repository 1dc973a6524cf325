/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// inNamespace puts an object of the content into a namespace.
func inNamespace(object *metav1.PartialObjectMetadata, namespace string) *metav1.PartialObjectMetadata {
	object.Namespace = namespace
	return object
}

func called(namespace *corev1.Namespace, name string) *corev1.Namespace {
	namespace.Name = name
	return namespace
}

// TestDiagnoseAll: every namespace that is not healthy is found, the stuck ones first, also one that only has content or a
// NamespaceLifecycle. What cannot be read is reported.
func TestDiagnoseAll(t *testing.T) {
	w := world{
		apis: []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)},
		core: []runtime.Object{
			lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second), lease("kube-system", "kube-controller-manager", "cp-1", time.Second),
			called(terminating(closed, open), "healthy"),
			called(terminating(closed), "closed"),
			called(terminating(), "ending"),
		},
		lifecycles: []runtime.Object{lifecycle(deleting, func(r *v1alpha1.NamespaceLifecycle) { r.Name = "former" })},
		content:    []runtime.Object{inNamespace(object("ConfigMap", "a"), "orphaned"), inNamespace(object("ConfigMap", "b"), "healthy"), inNamespace(object("Pod", "p", deleted(time.Hour)), "ending")},
		refuses:    refuseOnly("list", "persistentvolumeclaims", forbidden("no")),
	}
	var diagnosed []string
	d := w.diagnoser(t)
	d.Diagnosed = func(done, total int) { diagnosed = append(diagnosed, fmt.Sprintf("%d/%d", done, total)) }
	list, err := d.DiagnoseAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range list.Items {
		got = append(got, fmt.Sprintf("%s %s %s", item.Namespace, item.State, item.Findings[0].Cause))
	}
	want := []string{"former Stuck ParticipantPending", "closed Stuck RecordMissing", "ending Stuck GracePeriod", "orphaned Stuck OrphanedContent"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list.Namespaces != 3 || list.Kind != ListKind || strings.Join(diagnosed, " ") != "0/4 1/4 2/4 3/4" {
		t.Errorf("%s of %d namespaces, %v", list.Kind, list.Namespaces, diagnosed)
	}
	if len(list.NotExamined) != 1 || !strings.HasPrefix(list.NotExamined[0], "persistentvolumeclaims: ") {
		t.Errorf("not examined: %q", list.NotExamined)
	}
}

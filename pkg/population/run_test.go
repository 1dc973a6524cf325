/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestWritten: an object counts as written only if this run changed it.
func TestWritten(t *testing.T) {
	at := func(second int64) *metav1.Time { return new(metav1.NewTime(time.Unix(second, 0))) }
	for name, test := range map[string]struct {
		before *metav1.Time
		change func(*result)
		want   int
	}{
		"created":                     {nil, func(*result) {}, 1},
		"changed":                     {at(1), func(*result) {}, 1},
		"applied without a change":    {at(2), func(*result) {}, 0},
		"only read":                   {nil, func(r *result) { r.outcome = Unchanged }, 0},
		"refused":                     {at(1), func(r *result) { r.stored, r.outcome = nil, Refused }, 0},
		"the metadata of a namespace": {nil, func(r *result) { r.Entry.Manifest = metadataManifest }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := result{Task: Task{Entry: v1alpha1.PopulatedObject{Manifest: "m", LastAppliedTime: at(2)}}, outcome: Configured, stored: &unstructured.Unstructured{}}
			test.change(&r)
			if got := written([]Task{{Entry: v1alpha1.PopulatedObject{LastAppliedTime: test.before}}}, []result{r}); len(got) != test.want {
				t.Errorf("written: %v, want %d", got, test.want)
			}
		})
	}
}

// TestDoubtful: a process that was paused changes nothing in the next namespace of the name.
func TestDoubtful(t *testing.T) {
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() != "get" || action.GetResource().Resource != "namespaces" {
			t.Errorf("%s %s", action.GetVerb(), action.GetResource())
		}
		return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
	})
	a := applier()
	a.Client = client
	object := v1alpha1.PopulatedObject{Population: "p", Manifest: "m", APIVersion: "v1", Kind: "ConfigMap", Name: "a"}
	content := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}}
	former := object
	former.Name = "b"
	tasks := []Task{{Action: Apply, Entry: object, Object: Object{Content: content}}, {Action: Prune, Entry: former}}
	for i, r := range a.run(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u"}}, Initialize, time.Now().Add(-doubtful-time.Second), tasks, nil) {
		if i == 0 && (!errors.Is(r.err, ErrChanged) || r.Entry.Message == "") || i == 1 && r.Action != Keep {
			t.Errorf("task %d: %+v", i, r)
		}
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func slimObject(t *testing.T, o *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	t.Helper()
	o.Annotations = map[string]string{"note": "large"}
	slim, err := slimmed(o)
	want := 3
	if _, has := o.Annotations[statusLast]; has {
		want++
	}
	if err != nil || slim != any(o) || len(o.Annotations) != want || o.Annotations["note"] != "" || o.ManagedFields != nil || o.Labels != nil || o.Namespace != "" && o.OwnerReferences != nil {
		t.Fatalf("%v %+v", err, o)
	}
	return o
}

// TestDrifted: what a controller writes into the status is no drift.
func TestDrifted(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return new(metav1.NewTime(time.Unix(seconds, 0))) }
	fields := metav1.NewFieldsV1
	object := func(change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "shop", UID: "u", ResourceVersion: "1", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "hook", Operation: metav1.ManagedFieldsOperationApply, Time: at(1), FieldsV1: fields(`{"f:spec":{}}`)},
			{Manager: "quota", Operation: metav1.ManagedFieldsOperationUpdate, Time: at(1), Subresource: "status", FieldsV1: fields(`{"f:status":{}}`)},
		}}}
		if change != nil {
			change(o)
		}
		return o
	}
	for name, test := range map[string]struct {
		change func(*metav1.PartialObjectMetadata)
		want   bool
	}{
		"the status": {func(o *metav1.PartialObjectMetadata) {
			o.ResourceVersion, o.ManagedFields[1].Time = "2", at(2)
			o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: "other", Subresource: "status"})
		}, false},
		"a write of another client": {func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: "tenant"})
		}, true},
		"another write of the same":           {func(o *metav1.PartialObjectMetadata) { o.ManagedFields[0].Time = at(3) }, true},
		"fields that no client owns any more": {func(o *metav1.PartialObjectMetadata) { o.ManagedFields[0].FieldsV1 = fields(`{}`) }, true},
		"a label":                             {func(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{"a": "c"} }, true},
		"an owner":                            {func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }, true},
		"a deletion":                          {func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = at(4) }, true},
		"a generation":                        {func(o *metav1.PartialObjectMetadata) { o.Generation = 2 }, true},
		"another object":                      {func(o *metav1.PartialObjectMetadata) { o.UID = "v" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := drifted(slimObject(t, object(nil)), slimObject(t, object(test.change))); got != test.want {
				t.Errorf("drifted: %v", got)
			}
		})
	}
	if drifted(slimObject(t, object(nil)), slimObject(t, object(nil))) {
		t.Error("nothing has changed")
	}
	// A second write in the same second leaves managedFields as they are.
	for name, test := range map[string]struct {
		status *metav1.Time
		want   bool
	}{
		"the status was written after the rest":       {at(2), false},
		"the status was written with the rest":        {at(1), true},
		"the status was written in the future, a lie": {at(time.Now().Add(time.Hour).Unix()), true},
	} {
		t.Run(name, func(t *testing.T) {
			written := func(version string) *metav1.PartialObjectMetadata {
				return slimObject(t, object(func(o *metav1.PartialObjectMetadata) {
					o.ResourceVersion, o.ManagedFields[1].Time = version, test.status
				}))
			}
			if got := drifted(written("1"), written("2")); got != test.want {
				t.Errorf("drifted: %v", got)
			}
		})
	}
}

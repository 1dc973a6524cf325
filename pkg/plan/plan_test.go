/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func registered(name string, initializers ...v1alpha1.RegisteredInitializer) v1alpha1.NamespaceInitializerConfiguration {
	return v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta:   metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Initializers: initializers,
	}
}

func TestMerge(t *testing.T) {
	ignore, seconds := v1alpha1.Ignore, int32(9)
	reference := func(name string) *v1alpha1.ConfigurationReference {
		return &v1alpha1.ConfigurationReference{Name: name, UID: types.UID("uid-" + name)}
	}
	deleted := registered("a-deleted", v1alpha1.RegisteredInitializer{Name: "gone.example.com"})
	now := metav1.Now()
	deleted.DeletionTimestamp = &now

	tests := map[string]struct {
		configurations []v1alpha1.NamespaceInitializerConfiguration
		want           []v1alpha1.PlannedInitializer
	}{
		"none": {nil, nil},
		"sorted by name, the order within each kept, the first of a name wins": {
			[]v1alpha1.NamespaceInitializerConfiguration{
				registered("20", v1alpha1.RegisteredInitializer{Name: "b.example.com"}, v1alpha1.RegisteredInitializer{Name: "z.example.com"}),
				registered("100", v1alpha1.RegisteredInitializer{Name: "z.example.com", FailurePolicy: &ignore, TimeoutSeconds: &seconds},
					v1alpha1.RegisteredInitializer{Name: "a.example.com"}),
				deleted,
			},
			[]v1alpha1.PlannedInitializer{
				{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "z.example.com", FailurePolicy: &ignore, TimeoutSeconds: &seconds}, Configuration: reference("100")},
				{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "a.example.com"}, Configuration: reference("100")},
				{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "b.example.com"}, Configuration: reference("20")},
			},
		},
		"a participant of the termination brings the built-in initializer": {
			[]v1alpha1.NamespaceInitializerConfiguration{
				registered("1", v1alpha1.RegisteredInitializer{Name: "a.example.com"}),
				registered("2", v1alpha1.RegisteredInitializer{Name: "b.example.com", Finalizer: true}),
			},
			[]v1alpha1.PlannedInitializer{
				{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: v1alpha1.InitializerLifecycle}},
				{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "a.example.com"}, Configuration: reference("1")},
				{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "b.example.com", Finalizer: true}, Configuration: reference("2")},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, NewMerger().Merge(test.configurations, &corev1.Namespace{}).Entries); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
)

// TestReconcile: drift is corrected in open namespaces only.
func TestReconcile(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		namespace        metav1.ObjectMeta
		cached           bool
		populate, forget bool
	}{
		"open":                 {metav1.ObjectMeta{UID: "u"}, true, true, false},
		"not yet in the cache": {metav1.ObjectMeta{UID: "u"}, false, true, false},
		"closed":               {metav1.ObjectMeta{UID: "u", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}, true, false, false},
		"frozen":               {metav1.ObjectMeta{UID: "u", Labels: map[string]string{v1alpha1.LabelFrozen: "true"}}, true, false, false},
		"being deleted":        {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &now}, true, false, false},
		"another":              {metav1.ObjectMeta{UID: "another"}, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			test.namespace.Name = "shop"
			inventories := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
			inventory := &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"}}
			if test.cached {
				if err := inventories.Add(inventory); err != nil {
					t.Fatal(err)
				}
			}
			namespaces, err := newNamespaces(metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())) // empty: they are read
			if err != nil {
				t.Fatal(err)
			}
			populated, forgotten := false, false
			c := &Controller{namespaces: namespaces, inventories: listers.NewPopulatedNamespaceLister(inventories), Config: Config{
				Core: corefake.NewClientset(&corev1.Namespace{ObjectMeta: test.namespace}), Nsinit: nsinitfake.NewClientset(inventory),
				Populator: fakePopulator{
					correct: func(context.Context, *corev1.Namespace) error { populated = true; return nil },
					forget:  func(context.Context, *v1alpha1.PopulatedNamespace) error { forgotten = true; return nil },
				},
			}}
			if err := c.reconcile(t.Context(), "shop"); err != nil || populated != test.populate || forgotten != test.forget {
				t.Errorf("populated %t, forgotten %t, %v", populated, forgotten, err)
			}
		})
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corefake "k8s.io/client-go/kubernetes/fake"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// TestOwnChanges: a change by this process starts no repair. One of another client does, but not before the process has ended what it does
// in the namespace.
func TestOwnChanges(t *testing.T) {
	for name, test := range map[string]struct {
		// during and after are what happens while the namespace is busy, and after that.
		during, after func(happens story)
		repairs       int
	}{
		"nothing": {},
		"an own change": {
			during: func(h story) { h.wrote("o", "2") },
			after:  func(h story) { h.event("o", "2") },
		},
		"an own change whose event comes first": {during: func(h story) { h.event("o", "2"); h.wrote("o", "2") }},
		"two own changes of an object": {
			during: func(h story) { h.wrote("o", "2"); h.event("o", "2"); h.wrote("o", "3"); h.event("o", "3") },
		},
		"own changes of two objects": {
			during: func(h story) { h.wrote("o", "2"); h.wrote("p", "3"); h.event("o", "2") },
			after:  func(h story) { h.event("p", "3") },
		},
		"another client, then an own change": {during: func(h story) { h.event("o", "2"); h.wrote("o", "3"); h.event("o", "3") }},
		"an own change, then another client": {
			during:  func(h story) { h.wrote("o", "2"); h.event("o", "2"); h.event("o", "3") },
			repairs: 1,
		},
		"another client later": {
			during:  func(h story) { h.wrote("o", "2") },
			after:   func(h story) { h.event("o", "2"); h.event("o", "3") },
			repairs: 1,
		},
		"an own version of another object": {
			during:  func(h story) { h.wrote("o", "2"); h.event("p", "2") },
			repairs: 1,
		},
		"an object that it created": {
			during: func(h story) { h.wrote("o", "2") },
			after:  func(h story) { h.appeared("o", "2") },
		},
		"a new object of another client": {after: func(h story) { h.appeared("o", "2") }},
		"another client takes the place of a new object": {
			during:  func(h story) { h.appeared("o", "2") },
			repairs: 1,
		},
		"only a later version is seen": {
			during:  func(h story) { h.wrote("o", "2") },
			after:   func(h story) { h.appeared("o", "3") },
			repairs: 1,
		},
		"a deletion": {
			during:  func(h story) { h.wrote("o", "2"); h.deleted("o", "2") },
			repairs: 1,
		},
	} {
		for what, busy := range map[string]func(c *Controller, during func()){
			"a rollout": func(c *Controller, during func()) {
				if err := c.begin(t.Context(), "shop"); err != nil {
					t.Error(err)
				}
				during()
				c.end("shop")
			},
			"a repair": func(c *Controller, during func()) {
				_ = c.exclusively(c.repairs)(context.WithValue(t.Context(), duringKey{}, during), "shop")
			},
		} {
			t.Run(name+" during "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					repairs := 0
					c, _, halt := runController(t, nsinitfake.NewClientset(&v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"}}),
						corefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u"}}), func(ctx context.Context, _ *corev1.Namespace) error {
							if during, ok := ctx.Value(duringKey{}).(func()); ok {
								during()
							} else {
								repairs++
							}
							return nil
						})
					defer halt(func() {})
					repairs = 0
					busy(c, func() {
						if test.during != nil {
							test.during(story{c})
						}
						if synctest.Wait(); repairs != 0 {
							t.Error("it is repaired while it is busy")
						}
					})
					if test.after != nil {
						test.after(story{c})
					}
					settled()
					if repairs != test.repairs || repairs == 0 && len(c.written) > 0 {
						t.Errorf("%d repairs, want %d; still expected: %v", repairs, test.repairs, c.written)
					}
				})
			})
		}
	}
}

// duringKey is the key of a context for what happens in a reconciliation.
type duringKey struct{}

// story is what happens to objects in the namespace shop.
type story struct{ c *Controller }

func objectOf(uid types.UID, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: string(uid), Namespace: "shop", UID: uid, ResourceVersion: version}}
}

func (s story) wrote(uid types.UID, version string) {
	stored := &unstructured.Unstructured{}
	stored.SetUID(uid)
	stored.SetResourceVersion(version)
	s.c.Wrote("shop", stored)
}

func (s story) event(uid types.UID, version string) {
	s.c.observed(objectOf(uid, version), false, sets.New("shop"))
}

func (s story) appeared(uid types.UID, version string) {
	s.c.observed(objectOf(uid, version), true, sets.New("shop"))
}

func (s story) deleted(uid types.UID, version string) { s.c.deleted(objectOf(uid, version)) }

// TestRepairIsNext: what has changed in a busy namespace is repaired before others change, although the namespace changes, too.
func TestRepairIsNext(t *testing.T) {
	c := &Controller{busy: map[string]*busy{}, repairs: newQueue("repairs", nil), changes: newQueue("changes", nil)}
	defer c.repairs.ShutDown()
	defer c.changes.ShutDown()
	err := c.begin(t.Context(), "shop")
	for _, from := range []workers.Queue{c.repairs, c.changes} {
		err = errors.Join(err, c.exclusively(from)(t.Context(), "shop"))
	}
	c.end("shop")
	if err != nil || c.repairs.Len() != 1 || c.changes.Len() != 0 {
		t.Errorf("%d to repair, %d to change, %v", c.repairs.Len(), c.changes.Len(), err)
	}
}

// TestDeletedNamespace: nothing is expected of a deleted namespace.
func TestDeletedNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, halt := runController(t, nsinitfake.NewClientset(), corefake.NewClientset(), nil)
		defer halt(func() {})
		namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
		err := objects(c).Create(namespaces, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, "")
		settled()
		story{c}.wrote("o", "2")
		err = errors.Join(err, objects(c).Delete(namespaces, "", "shop"))
		settled()
		if err != nil || len(c.written) != 0 {
			t.Errorf("still expected: %v, %v", c.written, err)
		}
	})
}

// TestBegin: a rollout waits until a namespace is not busy.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx, halt := runController(t, nsinitfake.NewClientset(), corefake.NewClientset(), nil)
		defer halt(func() {})
		began := 0
		for range 3 {
			go func() {
				if c.begin(ctx, "shop") == nil {
					began++
				}
			}()
		}
		for want := 1; want <= 3; want++ {
			if synctest.Wait(); began != want {
				t.Fatalf("%d have begun, want %d", began, want)
			}
			c.end("shop")
		}
		ended, cancel := context.WithCancel(ctx)
		if err := c.begin(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := c.begin(ended, "shop"); err == nil {
			t.Error("it begins twice")
		}
	})
}

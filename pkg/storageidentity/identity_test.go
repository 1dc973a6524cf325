/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storageidentity

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

type memory struct {
	id  string
	err error
}

func (m *memory) Read(context.Context) (string, error) { return m.id, m.err }

func (m *memory) Create(_ context.Context, id string) (string, error) {
	if m.err == nil && m.id == "" {
		m.id = id
	}
	return m.id, m.err
}

func published(id string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "storage"}, Data: map[string]string{Key: id}}
}

// TestCompare is the table of the package's documentation, and what cannot be told.
func TestCompare(t *testing.T) {
	unreachable := errors.New("unreachable")
	tests := map[string]struct {
		store     memory
		configMap *corev1.ConfigMap
		core      error
		problem   string
		want      string // in both places, if there is no problem
	}{
		"a new installation":           {want: "made"},
		"the ConfigMap was deleted":    {store: memory{id: "a"}, want: "a"},
		"all is well":                  {store: memory{id: "a"}, configMap: published("a"), want: "a"},
		"the storage was lost":         {configMap: published("a"), problem: `was lost: it is empty, but "a" is in use`},
		"another storage":              {store: memory{id: "b"}, configMap: published("a"), problem: `is another one: it is "b", but "a" is in use`},
		"nothing is named":             {configMap: published(""), problem: "was lost"},
		"another storage, none named":  {store: memory{id: "b"}, configMap: published(""), problem: "is another one"},
		"the storage does not answer":  {store: memory{err: unreachable}, configMap: published("a"), problem: "cannot read the identity of the storage: unreachable"},
		"the core API does not answer": {store: memory{id: "a"}, core: unreachable, problem: "cannot read the ConfigMap system/storage"},
		"neither does":                 {store: memory{err: unreachable}, core: unreachable, problem: "cannot read"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			core := fake.NewClientset()
			if test.configMap != nil {
				core = fake.NewClientset(test.configMap)
			}
			if test.core != nil {
				core.PrependReactor("*", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.core })
			}
			identity := New(&test.store, core.CoreV1(), "system", "storage", testingclock.NewFakeClock(time.Now()))
			if identity.Problem() == nil || identity.Verify(t.Context()) == nil {
				t.Fatal("it is trusted before anybody looked")
			}
			before := test.store.id
			identity.review(t.Context())
			problem, verified := identity.Problem(), identity.Verify(t.Context())
			if test.problem != "" {
				if problem == nil || !strings.Contains(problem.Error(), test.problem) || verified == nil {
					t.Errorf("the problem is %v, want %q; verified: %v", problem, test.problem, verified)
				}
				if test.store.id != before {
					t.Errorf("the storage got the identity %q", test.store.id)
				}
				return
			}
			if problem != nil || verified != nil {
				t.Fatalf("%v, %v", problem, verified)
			}
			configMap, err := core.CoreV1().ConfigMaps("system").Get(t.Context(), "storage", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if test.store.id == "" || configMap.Data[Key] != test.store.id || test.want != "made" && test.store.id != test.want {
				t.Errorf("the storage is %q, the ConfigMap says %v", test.store.id, configMap.Data)
			}
		})
	}
}

// TestLossAndAcknowledgement follows one storage through its life.
func TestLossAndAcknowledgement(t *testing.T) {
	ctx := t.Context()
	store, core := &memory{}, fake.NewClientset()
	identity := New(store, core.CoreV1(), "system", "storage", testingclock.NewFakeClock(time.Now()))
	replica := New(store, core.CoreV1(), "system", "storage", testingclock.NewFakeClock(time.Now()))
	for _, i := range []*Identity{identity, replica} {
		if i.review(ctx); i.Problem() != nil {
			t.Fatal(i.Problem())
		}
	}
	first := store.id

	// The core API is away. What was known stays, but the storage itself is read.
	core.PrependReactor("*", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("away")
	})
	if identity.review(ctx); identity.Problem() != nil || identity.Verify(ctx) != nil {
		t.Errorf("%v, %v", identity.Problem(), identity.Verify(ctx))
	}
	store.err = errors.New("no leader")
	if err := identity.Verify(ctx); err == nil || identity.Problem() != nil {
		t.Errorf("while the storage cannot be read: %v, %v", err, identity.Problem())
	}
	store.err, store.id = nil, ""
	if err := identity.Verify(ctx); err == nil || identity.Problem() == nil {
		t.Errorf("after the loss: %v, %v", err, identity.Problem())
	}
	if len(identity.suspect) != 1 {
		t.Error("nobody looks at it again soon")
	}
	// It stays lost while the core API cannot be asked.
	if identity.review(ctx); identity.Problem() == nil || !strings.Contains(identity.Problem().Error(), "was lost") {
		t.Errorf("the problem is %v", identity.Problem())
	}
	core.ReactionChain = core.ReactionChain[1:]
	if identity.review(ctx); identity.Problem() == nil {
		t.Error("the loss was not acknowledged")
	}

	// The acknowledgement.
	if err := core.CoreV1().ConfigMaps("system").Delete(ctx, "storage", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if identity.review(ctx); identity.Problem() != nil || store.id == "" || store.id == first {
		t.Errorf("after it: %v, the storage is %q", identity.Problem(), store.id)
	}
	if replica.Verify(ctx) == nil {
		t.Error("the replica takes the new storage for the former one")
	}
	if replica.review(ctx); replica.Problem() != nil || replica.Verify(ctx) != nil {
		t.Errorf("the replica: %v, %v", replica.Problem(), replica.Verify(ctx))
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

import (
	"context"
	"errors"
	"fmt"
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

// TestCompare is the table of the package's documentation, and comparisons that fail.
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
			identity := NewIdentity(&test.store, core.CoreV1(), "system", "storage", testingclock.NewFakeClock(time.Now()))
			if identity.Problem() == nil || identity.Verify(t.Context()) == nil {
				t.Fatal("it is trusted before a comparison")
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

// unanswered loses the response to the first write.
type unanswered struct {
	memory
	lost bool
}

func (u *unanswered) Create(ctx context.Context, id string) (string, error) {
	stored, err := u.memory.Create(ctx, id)
	if !u.lost {
		u.lost = true
		return "", context.DeadlineExceeded
	}
	return stored, err
}

// TestLostResponse: a new storage whose identity was written without a response, as on a busy machine, was not replaced.
func TestLostResponse(t *testing.T) {
	store := &unanswered{}
	identity := NewIdentity(store, fake.NewClientset().CoreV1(), "system", "storage", testingclock.NewFakeClock(time.Now()))
	if identity.review(t.Context()); !errors.Is(identity.Problem(), context.DeadlineExceeded) {
		t.Errorf("the problem is %v", identity.Problem())
	}
	if identity.review(t.Context()); identity.Problem() != nil {
		t.Errorf("the problem is %v", identity.Problem())
	}
	store.id = "another"
	if identity.review(t.Context()); identity.Problem() == nil {
		t.Error("another storage is trusted")
	}
}

// TestLossAndAcknowledgement follows one storage through its life.
func TestLossAndAcknowledgement(t *testing.T) {
	ctx := t.Context()
	store, core := &memory{}, fake.NewClientset()
	identity := NewIdentity(store, core.CoreV1(), "system", "storage", testingclock.NewFakeClock(time.Now()))
	replica := NewIdentity(store, core.CoreV1(), "system", "storage", testingclock.NewFakeClock(time.Now()))
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
		t.Error("no comparison follows soon")
	}
	// It stays lost while the core API cannot be asked.
	if identity.review(ctx); identity.Problem() == nil || !strings.Contains(identity.Problem().Error(), "was lost") {
		t.Errorf("the problem is %v", identity.Problem())
	}
	core.ReactionChain = core.ReactionChain[1:]
	if identity.review(ctx); identity.Problem() == nil {
		t.Error("the loss was not acknowledged")
	}

	// The acknowledgement. The watch caches of a process that served the former storage cannot be
	// trusted: it ends.
	if err := core.CoreV1().ConfigMaps("system").Delete(ctx, "storage", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if identity.review(ctx); !errors.Is(identity.Problem(), errExchanged) || store.id == "" || store.id == first {
		t.Errorf("after it: %v, the storage is %q", identity.Problem(), store.id)
	}
	if replica.Verify(ctx) == nil {
		t.Error("the replica takes the new storage for the former one")
	}
	if err := replica.Run(ctx); !errors.Is(err, errExchanged) {
		t.Errorf("the replica goes on: %v", err)
	}
	identity = NewIdentity(store, core.CoreV1(), "system", "storage", testingclock.NewFakeClock(time.Now()))
	if identity.review(ctx); identity.Problem() != nil || identity.Confirm(ctx) != nil {
		t.Errorf("after a restart: %v, %v", identity.Problem(), identity.Confirm(ctx))
	}
}

// TestConfirm: a change in either place is detected immediately, ends watches, and can be undone.
func TestConfirm(t *testing.T) {
	tests := map[string]struct {
		change, undo func(*memory, *corev1.ConfigMap)
		problem      string
		exchanged    bool // after it is undone
	}{
		"the storage is another one": {
			change:    func(m *memory, _ *corev1.ConfigMap) { m.id = "b" },
			undo:      func(m *memory, _ *corev1.ConfigMap) { m.id = "a" },
			problem:   `it is "b", but "a" is in use`,
			exchanged: true,
		},
		"the storage is empty": {
			change:    func(m *memory, _ *corev1.ConfigMap) { m.id = "" },
			undo:      func(m *memory, _ *corev1.ConfigMap) { m.id = "a" },
			problem:   `it is empty, but "a" is in use`,
			exchanged: true,
		},
		"the identity cannot be decoded": {
			change:    func(m *memory, _ *corev1.ConfigMap) { m.err = fmt.Errorf("%w: garbage", ErrUndecodable) },
			undo:      func(m *memory, _ *corev1.ConfigMap) { m.err = nil },
			problem:   "storage is damaged: the identity of the storage cannot be decoded: garbage",
			exchanged: true,
		},
		"the ConfigMap names another one": {
			change:  func(_ *memory, c *corev1.ConfigMap) { c.Data[Key] = "b" },
			undo:    func(_ *memory, c *corev1.ConfigMap) { c.Data[Key] = "a" },
			problem: `it is "a", but "b" is in use`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			store, configMap := &memory{id: "a"}, published("a")
			core := fake.NewClientset(configMap)
			identity := NewIdentity(store, core.CoreV1(), "system", "storage", testingclock.NewFakeClock(time.Now()))
			if identity.review(ctx); identity.Confirm(ctx) != nil {
				t.Fatal(identity.Confirm(ctx))
			}
			trust := identity.Trust()
			apply := func(change func(*memory, *corev1.ConfigMap)) {
				change(store, configMap)
				if _, err := core.CoreV1().ConfigMaps("system").Update(ctx, configMap, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			apply(test.change)
			if err := identity.Confirm(ctx); err == nil || !strings.Contains(err.Error(), test.problem) || identity.Problem() == nil {
				t.Errorf("%v, the problem is %v", err, identity.Problem())
			}
			if trust.Err() == nil {
				t.Error("what watches is not told")
			}
			if identity.review(ctx); identity.Problem() == nil || !strings.Contains(identity.Problem().Error(), test.problem) {
				t.Errorf("the problem is %v", identity.Problem())
			}
			apply(test.undo)
			identity.review(ctx)
			if problem := identity.Problem(); errors.Is(problem, errExchanged) != test.exchanged || !test.exchanged && problem != nil {
				t.Errorf("afterwards: %v", problem)
			}
		})
	}
}

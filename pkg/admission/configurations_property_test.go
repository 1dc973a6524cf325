/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// model is a storage, and callers of a Reader. A list waits in two places: until the storage evaluates it,
// and until its answer arrives. Between the actions, every goroutine waits.
type model struct {
	*Reader
	// revision is that of the last acknowledged write.
	revision int
	// lists is the number of lists that have begun, and inFlight the one that has not ended, or nil.
	lists    int
	inFlight *inFlight
	overlap  bool
	// wrong is true while another storage answers.
	wrong   bool
	waiting []*waiting
}

type inFlight struct {
	// evaluated is the revision of the answer, or -1 before the storage has evaluated the list.
	evaluated int
	answer    chan error
}

// waiting is a caller without an answer.
type waiting struct {
	// revision is that of the last write that was acknowledged before the call, and lists is the number of
	// lists that had begun before it.
	revision, lists int
	leave           context.CancelFunc
	answers         <-chan answer
}

func (m *model) list(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	m.lists++
	m.overlap = m.overlap || m.inFlight != nil
	list := &inFlight{-1, make(chan error)}
	m.inFlight = list
	defer func() { m.inFlight = nil }()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case err := <-list.answer:
		name := fmt.Sprintf("%d from list %d", list.evaluated, m.lists)
		return []v1alpha1.NamespaceInitializerConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: name}}}, err
	}
}

func (m *model) verify(context.Context) error {
	if m.wrong {
		return errors.New("the storage was lost")
	}
	return nil
}

// call adds a caller.
func (m *model) call() {
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiting{revision: m.revision, lists: m.lists, leave: cancel}
	w.answers = ask(ctx, m.Reader) // in its own statement: the list that it begins counts itself
	m.waiting = append(m.waiting, w)
	synctest.Wait()
}

// leave ends the context of a caller.
func (m *model) leave(t *rapid.T) {
	if len(m.waiting) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.waiting)-1).Draw(t, "caller")
	w := m.waiting[i]
	m.waiting = slices.Delete(m.waiting, i, i+1)
	w.leave()
	synctest.Wait()
	if got := <-w.answers; !errors.Is(got.err, context.Canceled) {
		t.Fatalf("a caller that left got %+v", got)
	}
}

// evaluate determines the result of the list in flight.
func (m *model) evaluate() {
	if m.inFlight != nil && m.inFlight.evaluated < 0 {
		m.inFlight.evaluated = m.revision
	}
}

// end lets the list in flight end, with or without an error.
func (m *model) end(t *rapid.T) {
	if m.inFlight == nil {
		return
	}
	m.evaluate()
	var err error
	if rapid.IntRange(0, 3).Draw(t, "fails") == 3 {
		err = fmt.Errorf("list %d failed", m.lists)
	}
	m.answer(err)
	answered := 0
	for _, w := range m.waiting {
		if len(w.answers) == 0 {
			continue
		}
		answered++
		got := <-w.answers
		if (err != nil || m.wrong) != (got.err != nil) {
			t.Fatalf("the list ended with %v, another storage answers: %v, and a caller got %+v", err, m.wrong, got)
		}
		w.answers = returned(got)
	}
	if answered == 0 {
		t.Fatal("a list ended, and no caller got its result")
	}
}

// answer lets the answer of the list in flight arrive.
func (m *model) answer(err error) {
	m.evaluate()
	m.inFlight.answer <- err
	synctest.Wait()
}

// judge takes the answers that have arrived. Each is of a list that began after the call, and has every write
// that was acknowledged before it. A failure is one of such a list.
func (m *model) judge(t *rapid.T) {
	var left []*waiting
	for _, w := range m.waiting {
		select {
		default:
			left = append(left, w)
		case got := <-w.answers:
			w.leave()
			var revision, list int
			switch _, err := fmt.Sscanf(got.revision, "%d from list %d", &revision, &list); {
			case got.err != nil && errors.Is(got.err, context.Canceled):
				t.Fatalf("a caller that waits got %v", got.err)
			case got.err != nil:
				if _, err := fmt.Sscanf(got.err.Error(), "cannot read the configurations: list %d failed", &list); err == nil && list <= w.lists {
					t.Fatalf("a caller that arrived after list %d got the error of list %d", w.lists, list)
				}
			case err != nil:
				t.Fatalf("a caller got %q", got.revision)
			case revision < w.revision:
				t.Fatalf("revision %d was acknowledged before the call, and the answer has %d", w.revision, revision)
			case list <= w.lists:
				t.Fatalf("a caller that arrived after list %d got list %d", w.lists, list)
			}
		}
	}
	m.waiting = left
	if m.overlap {
		t.Fatal("two lists were in flight")
	}
	if (m.inFlight != nil) != (len(m.waiting) > 0) {
		t.Fatalf("%d callers wait, and a list is in flight: %v", len(m.waiting), m.inFlight != nil)
	}
}

// TestReaderProperties: whatever the storage and the callers do, a caller gets every write that was acknowledged
// before its call, and only a list of the right storage that began after its call. One list is in flight while
// callers wait, and none otherwise. At the end, no goroutine is left: synctest would panic.
func TestReaderProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failure any // which rapid raises as a panic
		synctest.Test(t, func(*testing.T) {
			m := &model{}
			var err error
			if m.Reader, err = NewReader(m.list, m.verify, clock.RealClock{}, metrics.NewKubeRegistry().Register); err != nil {
				panic(err)
			}
			defer func() {
				failure = recover()
				for _, w := range m.waiting {
					w.leave()
				}
			}()
			rt.Repeat(map[string]func(*rapid.T){
				"":                               m.judge,
				"a write":                        func(*rapid.T) { m.revision++ },
				"the storage changes":            func(*rapid.T) { m.wrong = !m.wrong },
				"a call":                         func(*rapid.T) { m.call() },
				"a caller leaves":                m.leave,
				"the storage evaluates the list": func(*rapid.T) { m.evaluate() },
				"the list ends":                  m.end,
			})
			for m.inFlight != nil {
				m.answer(nil)
			}
			m.judge(rt)
		})
		if failure != nil {
			panic(failure)
		}
	})
}

// returned returns a channel with an answer.
func returned(a answer) chan answer {
	answers := make(chan answer, 1)
	answers <- a
	return answers
}

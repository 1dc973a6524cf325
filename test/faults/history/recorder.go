/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package history

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Recorder collects a History. It is safe for concurrent use.
type Recorder struct {
	began time.Time
	ids   atomic.Int64

	mu      sync.Mutex
	history History
	stores  map[Store]*progress
	// changed is closed, and replaced, when an event was added.
	changed chan struct{}
}

// progress is how far the watch of a store is.
type progress struct {
	epoch    int
	revision int64
	err      error
	// replaced is closed when the store is replaced.
	replaced chan struct{}
	// restored means that the store was replaced by a snapshot.
	restored bool
}

// NewRecorder returns a Recorder whose history begins now.
func NewRecorder() *Recorder {
	return &Recorder{began: time.Now(), stores: map[Store]*progress{}, changed: make(chan struct{})}
}

// Now is the time since the history began.
func (r *Recorder) Now() time.Duration { return time.Since(r.began) }

// Mark adds a mark, and fills in its time.
func (r *Recorder) Mark(mark Mark) {
	mark.At = r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Marks = append(r.history.Marks, mark)
}

// Begin returns an operation that begins now.
func (r *Recorder) Begin(client, role string) Operation {
	return Operation{ID: r.ids.Add(1), Client: client, Role: role, Start: r.Now()}
}

// End adds an operation that ends now.
func (r *Recorder) End(operation Operation) {
	operation.End = r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Operations = append(r.history.Operations, operation)
}

// History returns a copy of what was recorded so far.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &History{
		Operations: slices.Clone(r.history.Operations),
		Events:     slices.Clone(r.history.Events),
		Marks:      slices.Clone(r.history.Marks),
	}
}

// add adds events of a store, and notes how far its watch is.
func (r *Recorder) add(store Store, revision int64, events ...Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.progress(store)
	p.revision = max(p.revision, revision)
	for _, event := range events {
		event.Store, event.Epoch = store, p.epoch
		r.history.Events = append(r.history.Events, event)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// progress returns how far the watch of a store is. The caller holds the lock.
func (r *Recorder) progress(store Store) *progress {
	p, ok := r.stores[store]
	if !ok {
		p = &progress{replaced: make(chan struct{})}
		r.stores[store] = p
	}
	return p
}

// Replaced notes that a store was replaced: by an empty one, with whose first revision Follow goes on, or by a snapshot, with whose keys it
// goes on.
func (r *Recorder) Replaced(store Store, restored bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.progress(store)
	p.epoch++
	p.revision, p.restored = 0, restored
	close(p.replaced)
	p.replaced = make(chan struct{})
}

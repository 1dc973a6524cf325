/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
)

// first is the first key of an etcd.
const first = "\x00"

// retryInterval is the time between two tries to reach an etcd.
const retryInterval = 200 * time.Millisecond

// Follow records every change of a store until the context ends. It begins with the keys that exist or, when the store was replaced
// by an empty one, with the first revision. It ends with an error when changes were lost, because then the history proves nothing.
func (r *Recorder) Follow(ctx context.Context, store Store, client *clientv3.Client) error {
	next, err := r.initial(ctx, store, client)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		r.mu.Lock()
		replaced := r.progress(store).replaced
		r.mu.Unlock()
		watching, cancel := context.WithCancel(ctx)
		go func() {
			select {
			case <-replaced:
				cancel()
			case <-watching.Done():
			}
		}()
		err := r.watch(watching, store, client, &next)
		cancel()
		select {
		case <-ctx.Done():
		case <-replaced:
			if next, err = r.beginning(ctx, store, client); err != nil {
				return err
			}
		case <-time.After(retryInterval):
			if errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev) {
				return r.failed(store, fmt.Errorf("changes of the %s store after revision %d were lost: %w", store, next-1, err))
			}
		}
	}
	return nil
}

// beginning returns the revision from which to watch a store that was replaced.
func (r *Recorder) beginning(ctx context.Context, store Store, client *clientv3.Client) (int64, error) {
	r.mu.Lock()
	restored := r.progress(store).restored
	r.mu.Unlock()
	if restored {
		return r.initial(ctx, store, client)
	}
	return 1, nil
}

func (r *Recorder) failed(store Store, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress(store).err = err
	return err
}

// initial records the keys that there are now, and returns the revision from which to watch.
func (r *Recorder) initial(ctx context.Context, store Store, client *clientv3.Client) (next int64, err error) {
	err = wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		response, err := client.Get(ctx, first, clientv3.WithFromKey(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
		if err != nil {
			return false, nil //nolint:nilerr // tried again
		}
		var events []Event
		for _, kv := range response.Kvs {
			if object, keep := decode(store, kv.Value); keep {
				events = append(events, Event{Revision: kv.ModRevision, Key: string(kv.Key), Initial: true, Seen: r.Now(), Object: object})
			}
		}
		next = response.Header.Revision + 1
		r.add(store, next-1, events...)
		return true, nil
	})
	return next, err
}

// watch records changes from a revision on, until the watch ends.
func (r *Recorder) watch(ctx context.Context, store Store, client *clientv3.Client, next *int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range client.Watch(ctx, first, clientv3.WithFromKey(), clientv3.WithRev(*next), clientv3.WithPrevKV(), clientv3.WithProgressNotify()) {
		if err := response.Err(); err != nil {
			return err
		}
		var events []Event
		reached := *next - 1
		if response.IsProgressNotify() {
			reached = response.Header.Revision
		}
		for _, e := range response.Events {
			reached = max(reached, e.Kv.ModRevision) // the header may be ahead of the events
			if event, keep := r.event(store, e); keep {
				events = append(events, event)
			}
		}
		*next = reached + 1
		r.add(store, reached, events...)
	}
	return ctx.Err()
}

// event returns what is recorded of a change, if anything.
func (r *Recorder) event(store Store, e *clientv3.Event) (Event, bool) {
	value := e.Kv.Value
	deleted := e.Type == mvccpb.Event_DELETE
	if deleted && e.PrevKv != nil {
		value = e.PrevKv.Value
	}
	if store == Kube && !deleted && e.PrevKv != nil && bytes.Equal(value, e.PrevKv.Value) {
		return Event{}, false // the fault that floods watches changes nothing
	}
	object, keep := decode(store, value)
	return Event{
		Revision: e.Kv.ModRevision, Key: string(e.Kv.Key), Created: e.IsCreate(), Deleted: deleted, Seen: r.Now(), Object: object,
	}, keep
}

// CatchUp waits until everything that a store holds now is recorded.
func (r *Recorder) CatchUp(ctx context.Context, store Store, client *clientv3.Client) (int64, error) {
	var revision int64
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		response, err := client.Get(ctx, first)
		if err == nil {
			revision = response.Header.Revision
		}
		return err == nil, nil
	})
	if err != nil {
		return 0, fmt.Errorf("the %s store does not answer: %w", store, err)
	}
	for {
		r.mu.Lock()
		p, changed := *r.progress(store), r.changed
		r.mu.Unlock()
		switch {
		case p.err != nil:
			return 0, p.err
		case p.revision >= revision:
			return revision, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the watch of the %s store is at revision %d of %d: %w", store, p.revision, revision, ctx.Err())
		case <-changed:
		}
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// watcher sends the changes of what a user sees.
type watcher struct {
	index     *Index
	view      *view
	selection selection
	options   *internalversion.ListOptions
	// initial are sent first.
	initial []watch.Event
	// from is the version until which the client has the changes.
	from   uint64
	result chan watch.Event
	stop   context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.stop() }

// start decides what the client gets first: what exists, unless it has a version or refuses. A client that asked for initial events gets a
// bookmark after them. A version that is not of this view is 0, which changes answers with an error.
func (w *watcher) start() {
	w.from = w.index.parse(w.view, w.options.ResourceVersion)
	if asks := w.options.SendInitialEvents; asks != nil && *asks && (w.from != 0 || anyVersion(w.options)) || asks == nil && anyVersion(w.options) {
		var found []state
		found, w.from = w.index.list(w.view, w.selection)
		for _, seen := range found {
			w.initial = append(w.initial, watch.Event{Type: watch.Added, Object: w.view.object(seen)})
		}
		if asks != nil && w.options.AllowWatchBookmarks {
			w.initial = append(w.initial, bookmark(w.from, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		}
	} else if anyVersion(w.options) {
		_, w.from = w.index.list(w.view, w.selection)
	}
}

// run sends changes until its context ends, or until the client is too slow. It has the permissions reviewed that may have changed, and
// again once the change has settled.
func (w *watcher) run(ctx context.Context) {
	ticker := w.index.clock.NewTicker(bookmarkInterval)
	defer ticker.Stop()
	var review <-chan time.Time
	delay, pause := reviewDelay, settleTime
	sent := w.send(ctx, w.initial...)
	utilflowcontrol.WatchInitialized(ctx) // until then, the watch counts as one of the requests that the server handles at the same time
	for w.initial = nil; sent; {
		p, err := w.index.changes(w.view, w.from, w.selection)
		if err != nil {
			w.send(ctx, watch.Event{Type: watch.Error, Object: &err.ErrStatus})
			return
		}
		if !w.send(ctx, p.events...) {
			return
		}
		w.from = p.version
		switch {
		case !p.stale:
			review, delay = nil, reviewDelay
		case review == nil:
			review = w.index.clock.After(delay)
		}
		select {
		case <-p.next:
		case <-review:
			review, delay = nil, settleTime
			if err := w.index.review(ctx, w.view, 0, nil); err == nil {
				pause = settleTime
			} else if ctx.Err() == nil {
				delay, pause = pause, min(2*pause, bookmarkInterval)
				klog.FromContext(ctx).Error(err, "Cannot review which namespaces a user may get, retrying", "user", w.view.user.GetName(), "after", delay)
			}
		case <-ticker.C():
			if w.options.AllowWatchBookmarks {
				sent = w.send(ctx, bookmark(w.from, nil))
			}
		case <-ctx.Done():
			return
		}
	}
}

func bookmark(version uint64, annotations map[string]string) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &nsinit.AccessibleNamespace{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: text(version), Annotations: annotations}}}
}

// send sends events, and returns false if the watch has ended.
func (w *watcher) send(ctx context.Context, events ...watch.Event) bool {
	for _, e := range events {
		select {
		case w.result <- e:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

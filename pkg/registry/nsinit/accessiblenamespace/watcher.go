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

// start decides what the client gets first: what exists, unless it has a version or refuses. Who asks for it gets a bookmark afterwards.
func (w *watcher) start() error {
	asks := w.options.SendInitialEvents
	known := false
	if w.from, known = w.index.parse(w.view, w.options.ResourceVersion); !known && !anyVersion(w.options) {
		return expired(w.options.ResourceVersion)
	}
	if known && (asks == nil || !*asks) {
		return nil
	}
	var found []state
	found, w.from = w.index.list(w.view, w.selection)
	if asks != nil && !*asks {
		return nil
	}
	for _, seen := range found {
		w.initial = append(w.initial, watch.Event{Type: watch.Added, Object: w.view.object(seen)})
	}
	if asks != nil {
		w.initial = append(w.initial, bookmark(w.from, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	}
	return nil
}

// run sends changes until its context ends, or until the client is too slow. It has the permissions reviewed that may have changed, and
// again once the change has settled.
func (w *watcher) run(ctx context.Context) {
	ticker := w.index.clock.NewTicker(bookmarkInterval)
	defer ticker.Stop()
	var review <-chan time.Time
	delay := reviewDelay
	for sent := w.send(ctx, w.initial...); sent; {
		events, to, next, stale, err := w.index.changes(w.view, w.from, w.selection)
		if err != nil {
			w.send(ctx, watch.Event{Type: watch.Error, Object: &err.ErrStatus})
			return
		}
		if !w.send(ctx, events...) {
			return
		}
		w.from = to
		switch {
		case !stale:
			review, delay = nil, reviewDelay
		case review == nil:
			review = w.index.clock.After(delay)
		}
		select {
		case <-next:
		case <-review:
			if err := w.index.review(ctx, w.view, 0, ""); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot review which namespaces a user may get, retrying", "user", w.view.user.GetName())
			}
			review, delay = nil, settleTime
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

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

const (
	// cachePeriod is how long an answer of the authorizer counts for new requests, as in delegated authorization.
	cachePeriod = 10 * time.Second
	// reviewDelay is the time between a change of a binding and the review for an open watch, which is one for several changes.
	reviewDelay = 50 * time.Millisecond
	// settleTime is how long after a change of a binding an answer of the authorizer may be older than the change.
	settleTime = time.Second
	// idlePeriod is how long a view is kept after the last request. In this time, a watch can be resumed.
	idlePeriod = 5 * time.Minute
	// bookmarkInterval is the time between two bookmarks, and between two removals of views.
	bookmarkInterval = time.Minute
	// maxViews is how many views can exist before all that no request uses are removed.
	maxViews = 4096
	// questioners is how many questions of one review are asked at the same time.
	questioners = 8

	byCreator = "creator"
)

// Index knows which namespaces each user sees. It follows the namespaces and the bindings of RBAC. The authorizer decides about each
// namespace that a binding proposes: for users with open watches after each change, and for others with their next request.
type Index struct {
	clock      clock.WithTicker
	authorizer authorizer.UnconditionalAuthorizer
	grants     *grants
	namespaces cache.Indexer
	synced     []cache.InformerSynced
	instance   uint64

	mu    sync.Mutex
	views map[string]*view
}

// NewIndex returns an index, which Run completes, of the namespaces of an informer. The authorizer must not cache its answers.
func NewIndex(core kubernetes.Interface, namespaces cache.SharedIndexInformer, a authorizer.UnconditionalAuthorizer, c clock.WithTicker) (*Index, error) {
	i := &Index{clock: c, authorizer: a, namespaces: namespaces.GetIndexer(), views: map[string]*view{},
		instance: rand.Uint64N(1 << instanceBits)} //nolint:gosec // not a secret
	if err := namespaces.AddIndexers(cache.Indexers{byCreator: func(object any) ([]string, error) {
		if namespace := object.(*corev1.Namespace); helper.IsClosed(namespace) {
			return []string{helper.Creator(namespace)}, nil
		}
		return nil, nil
	}}); err != nil {
		return nil, err
	}
	registration, err := follow(namespaces, i.onNamespace)
	if err != nil {
		return nil, err
	}
	if i.grants, err = newGrants(core, i.onGrants); err != nil {
		return nil, err
	}
	i.synced = append(i.grants.synced, registration)
	return i, nil
}

// Run follows the bindings until its context ends.
func (i *Index) Run(ctx context.Context) {
	i.grants.informers.StartWithContext(ctx)
	wait.UntilWithContext(ctx, func(context.Context) { i.forget() }, bookmarkInterval)
}

// onNamespace updates the views of a namespace to its state now. A permission in a namespace does not count for another one of the name.
func (i *Index) onNamespace(old, updated *corev1.Namespace) {
	i.mu.Lock()
	defer i.mu.Unlock()
	namespace := cmp.Or(updated, old)
	for _, v := range i.views {
		d := v.granted[namespace.Name]
		if d != nil && (old == nil || updated == nil || old.UID != updated.UID) {
			d.set(false, time.Time{})
			v.wake()
		}
		if d != nil || v.everything.allowed || v.user.GetName() == helper.Creator(namespace) {
			i.update(v, namespace.Name)
		}
	}
}

// onGrants makes the permissions stale that a change of a binding may concern.
func (i *Index) onGrants(subjects, namespaces []string, everywhere bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.clock.Now()
	for _, v := range i.views {
		if !v.subjects.HasAny(subjects...) {
			continue
		}
		if everywhere {
			v.everything.stale, v.initialize.stale = now, now
		}
		for _, name := range namespaces {
			v.permission(name).stale = now
		}
		v.wake()
	}
}

// namespace returns a namespace, or nil.
func (i *Index) namespace(name string) *corev1.Namespace {
	if object, exists, _ := i.namespaces.GetByKey(name); exists {
		return object.(*corev1.Namespace)
	}
	return nil
}

// update updates how a user sees the namespace of a name.
func (i *Index) update(v *view, name string) { v.update(name, v.see(i.namespace(name))) }

// use returns the view of the user of a request, and the function that ends its use. The error is 503 until everything is known.
func (i *Index) use(ctx context.Context) (*view, func(), error) {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, nil, errors.New("the request carries no user")
	}
	if slices.ContainsFunc(i.synced, func(synced cache.InformerSynced) bool { return !synced() }) {
		return nil, nil, utilapierrors.NewUnavailable(errors.New("nsinit-apiserver has not read all namespaces and RBAC bindings yet"))
	}
	key, err := json.Marshal(user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()})
	if err != nil {
		return nil, nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	v := i.views[string(key)]
	if v == nil {
		v = i.newView(u)
		i.views[string(key)] = v
	}
	v.uses++
	return v, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		v.uses--
		v.used = i.clock.Now()
	}, nil
}

func (i *Index) newView(u user.Info) *view {
	if len(i.views) >= maxViews {
		i.removeUnused(0)
	}
	v := &view{user: u, subjects: subjectsOfUser(u), granted: map[string]*decision{}, seen: map[string]state{},
		versions: versions{clock: i.clock, instance: i.instance}, reviewing: make(chan struct{}, 1), changed: make(chan struct{})}
	v.since = v.now()
	for name := range i.grants.candidates(v.subjects) {
		v.permission(name)
	}
	created, _ := i.namespaces.IndexKeys(byCreator, u.GetName()) // the index exists
	for _, name := range created {
		i.update(v, name)
	}
	return v
}

// removeUnused removes the views that no request has used for some time.
func (i *Index) removeUnused(period time.Duration) {
	now := i.clock.Now()
	for key, v := range i.views {
		if v.uses == 0 && now.Sub(v.used) >= period {
			delete(i.views, key)
		}
	}
}

// forget removes unused views, and permissions in namespaces that neither exist nor are in a binding.
func (i *Index) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.removeUnused(idlePeriod)
	for _, v := range i.views {
		candidates := i.grants.candidates(v.subjects)
		for name := range v.granted {
			if i.namespace(name) == nil && !candidates.Has(name) {
				delete(v.granted, name)
			}
		}
	}
}

// question is whether a user may get a namespace, with the answer of the authorizer.
type question struct {
	decision *decision
	name     string
	uid      types.UID
	allowed  bool
}

// open returns which permissions of a user a function selects: those on all namespaces, and those on single ones, or on one name only.
func (i *Index) open(v *view, only string, selects func(*decision) bool) (everything bool, questions []*question) {
	everything = selects(&v.everything) || selects(&v.initialize)
	if v.everything.allowed && !everything {
		return false, nil
	}
	for name, d := range v.granted {
		if only != "" && name != only || !selects(d) {
			continue
		}
		q := &question{decision: d, name: name}
		if namespace := i.namespace(name); namespace != nil {
			q.uid = namespace.UID
		}
		if q.uid != "" || only != "" { // in a get, a name is asked for in the same way whether it exists or not
			questions = append(questions, q)
		}
	}
	return everything, questions
}

// review asks the authorizer about the permissions of a user that are stale or older than maxAge, which is 0 for any age. With a name, it
// asks for this namespace only.
func (i *Index) review(ctx context.Context, v *view, maxAge time.Duration, only string) error {
	select {
	case v.reviewing <- struct{}{}:
		defer func() { <-v.reviewing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	now := i.clock.Now()
	i.mu.Lock()
	again, questions := i.open(v, only, func(d *decision) bool { return !d.fresh(now, maxAge) && !d.recent(now) })
	everything, initialize := v.everything.allowed, v.initialize.allowed
	i.mu.Unlock()
	if again {
		var err error
		if everything, err = i.ask(ctx, v.user, "list", ""); err == nil && !everything {
			everything, err = i.ask(ctx, v.user, "get", "")
		}
		if err == nil {
			initialize, err = i.ask(ctx, v.user, v1alpha1.VerbInitialize, "")
		}
		if err != nil {
			return err
		}
	}
	if everything {
		questions = nil
	}
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(questioners)
	for _, q := range questions {
		group.Go(func() (err error) {
			q.allowed, err = i.ask(asking, v.user, "get", q.name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	changed := again && v.everything.set(everything, now)
	if changed = again && v.initialize.set(initialize, now) || changed; changed {
		for _, name := range i.namespaces.ListKeys() {
			i.update(v, name)
		}
	}
	for _, q := range questions {
		if namespace := i.namespace(q.name); q.uid == "" || namespace != nil && namespace.UID == q.uid {
			q.decision.set(q.allowed, now)
			i.update(v, q.name)
		}
	}
	return nil
}

// ask asks the authorizer whether a user has a verb on a namespace, or on every namespace.
func (i *Index) ask(ctx context.Context, u user.Info, verb, name string) (bool, error) {
	decision, _, err := i.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: verb, APIVersion: "v1", Resource: "namespaces", Namespace: name, Name: name, ResourceRequest: true,
	})
	if err != nil && decision != authorizer.DecisionAllow {
		return false, utilapierrors.NewUnavailable(fmt.Errorf("cannot ask which namespaces the user may get: %w", err))
	}
	return decision == authorizer.DecisionAllow, nil
}

// get returns a namespace as a user sees it. The authorizer is asked even if no binding proposes the namespace.
func (i *Index) get(ctx context.Context, v *view, name string) (state, error) {
	i.mu.Lock()
	v.permission(name)
	i.mu.Unlock()
	err := i.review(ctx, v, cachePeriod, name)
	i.mu.Lock()
	defer i.mu.Unlock()
	return v.seen[name], err
}

// list returns the namespaces that a user sees and a selection has, in the order of their names, and the version of the list.
func (i *Index) list(v *view, s selection) (found []state, version uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, seen := range v.seen {
		if s.has(seen) {
			found = append(found, seen)
		}
	}
	slices.SortFunc(found, func(a, b state) int { return cmp.Compare(a.namespace.Name, b.namespace.Name) })
	return found, v.now()
}

// changes returns what changed for a user after a version, the version now, and a channel that is closed with the next change. It returns
// whether permissions have to be reviewed.
func (i *Index) changes(v *view, from uint64, s selection) (events []watch.Event, to uint64, next <-chan struct{}, stale bool, err *apierrors.StatusError) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if from < v.since {
		return nil, 0, nil, false, expired(from)
	}
	first := sort.Search(len(v.log), func(k int) bool { return v.log[k].after.version > from })
	for _, t := range v.log[first:] {
		switch had, has := s.has(t.before), s.has(t.after); {
		case has && had:
			events = append(events, watch.Event{Type: watch.Modified, Object: v.object(t.after)})
		case has:
			events = append(events, watch.Event{Type: watch.Added, Object: v.object(t.after)})
		case had:
			t.before.version = t.after.version
			events = append(events, watch.Event{Type: watch.Deleted, Object: v.object(t.before)})
		}
	}
	everything, questions := i.open(v, "", func(d *decision) bool { return !d.fresh(i.clock.Now(), 0) })
	return events, v.now(), v.changed, everything || len(questions) > 0, nil
}

// parse returns the version of a view that a client has, or false.
func (i *Index) parse(v *view, text string) (uint64, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return v.parse(text)
}

// expired is the answer to a version that is too old, or of another process.
func expired(version any) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("the resourceVersion %v is too old, or from another nsinit-apiserver: list again", version))
}

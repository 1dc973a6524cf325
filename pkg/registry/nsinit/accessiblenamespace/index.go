/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

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
	idlePeriod = time.Minute
	// bookmarkInterval is the time between two bookmarks, and between two removals of unused views.
	bookmarkInterval = time.Minute
	// keepPeriod is how long a view keeps changes. A watch that gets bookmarks can be resumed after an interruption of idlePeriod.
	keepPeriod = bookmarkInterval + idlePeriod
	// maxEntries is the number of decisions and namespaces in all views at which all unused views are removed.
	maxEntries = 1 << 19
	// maxWatches is how many watches one user can have.
	maxWatches = 20
	// questioners is how many questions about one user are asked at the same time.
	questioners = 16
	// questionTimeout is how long an answer may take, as in delegated authorization. Other requests of the user wait meanwhile.
	questionTimeout = 10 * time.Second

	byCreator = "creator"

	// every is the key of the views that see every namespace.
	every = "*"
)

// Index knows which namespaces each user sees. It follows the namespaces and the bindings of RBAC. The authorizer decides about each
// namespace that a binding proposes: for users with open watches after each change, and for others with their next request.
type Index struct {
	clock      clock.WithTicker
	authorizer authorizer.UnconditionalAuthorizer
	grants     *grants
	namespaces cache.Indexer
	synced     []cache.InformerSynced

	mu    sync.Mutex
	views map[string]*view
	// concerned has the few views that an event concerns: for a namespace, those that ask about its name, those of its creator, and those
	// of every; for a binding, those of its subjects.
	concerned relation
	// granted is when a binding last changed.
	granted time.Time
}

// NewIndex returns an index, which Run completes, of the namespaces of an informer. The authorizer must not cache its answers.
func NewIndex(core kubernetes.Interface, namespaces cache.SharedIndexInformer, a authorizer.UnconditionalAuthorizer, c clock.WithTicker) (*Index, error) {
	i := &Index{clock: c, authorizer: a, namespaces: namespaces.GetIndexer(), views: map[string]*view{}, concerned: relation{}}
	if err := namespaces.AddIndexers(cache.Indexers{byCreator: func(object any) ([]string, error) {
		if namespace := object.(*corev1.Namespace); helper.IsClosed(namespace) {
			return []string{helper.Creator(namespace)}, nil
		}
		return nil, nil
	}}); err != nil {
		return nil, err
	}
	registration, err := namespaces.AddEventHandler(eachState(i.onNamespace, func(a, b *corev1.Namespace) bool { return a.UID == b.UID && sameForUsers(a, b) }))
	if err != nil {
		return nil, err
	}
	if i.grants, err = newGrants(core, i.onGrants); err != nil {
		return nil, err
	}
	i.synced = append(i.grants.synced, registration.HasSynced)
	return i, nil
}

// Run follows the bindings until its context ends.
func (i *Index) Run(ctx context.Context) {
	i.grants.informers.StartWithContext(ctx)
	wait.UntilWithContext(ctx, func(context.Context) { i.forget() }, bookmarkInterval)
}

// onNamespace updates the views of a namespace to its state now.
func (i *Index) onNamespace(n *corev1.Namespace) {
	i.mu.Lock()
	defer i.mu.Unlock()
	namespace := i.namespace(n.Name)
	for v := range i.concerned[n.Name] {
		if namespace != nil && v.decisions[question{"get", n.Name}].uid != namespace.UID {
			v.stale = true // another namespace of the name has to be reviewed
			v.wake()
		}
	}
	for v := range i.concerned[n.Name].Union(i.concerned[userKey(helper.Creator(n))]).Union(i.concerned[every]) {
		i.update(v, n.Name)
	}
}

// onGrants makes the permissions stale that a change of a binding may concern.
func (i *Index) onGrants(subjects, namespaces []string, everywhere bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now, concerned := i.clock.Now(), sets.Set[*view]{}
	i.granted = now
	for subject := range sets.New(subjects...) { // a binding can repeat them
		maps.Copy(concerned, i.concerned[subject])
	}
	for v := range concerned {
		for _, name := range namespaces {
			v.decision(question{"get", name}).stale = now
		}
		if everywhere {
			for q, d := range v.decisions {
				if q.name == "" {
					d.stale = now
				}
			}
		}
		v.stale = true
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
func (i *Index) update(v *view, name string) {
	namespace, d := i.namespace(name), v.decisions[question{"get", name}]
	may := v.everything(nil) || namespace != nil && d != nil && d.allowed && d.uid == namespace.UID
	v.update(name, v.see(namespace, may, v.decisions[initializeAll()].allowed))
}

// use returns the view of the user of a request, and the function that ends its use. The error is 503 until everything is known.
func (i *Index) use(ctx context.Context) (*view, func(), error) {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, nil, errors.New("the request carries no user")
	}
	if slices.ContainsFunc(i.synced, func(synced cache.InformerSynced) bool { return !synced() }) {
		return nil, nil, utilapierrors.NewUnavailable(errors.New("nsinit-apiserver has not read all namespaces and RBAC bindings yet"))
	}
	// Tokens of one user are the same user.
	extra := maps.Clone(u.GetExtra())
	delete(extra, user.CredentialIDKey)
	identity := &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
	key := fmt.Sprintf("%#v", *identity)
	i.mu.Lock()
	defer i.mu.Unlock()
	v := i.views[key]
	if v == nil {
		v = i.newView(identity)
		i.views[key] = v
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
	entries := 0
	for _, v := range i.views {
		entries += len(v.decisions) + len(v.seen)
	}
	if entries > maxEntries {
		i.removeUnused(0)
	}
	stale := i.granted // an answer to a new view may be older than the change, too
	v := &view{user: u, subjects: subjectsOfUser(u), concerned: i.concerned, seen: map[string]state{},
		decisions: map[question]*decision{listAll(): {stale: stale}, getAll(): {stale: stale}, initializeAll(): {stale: stale}},
		versions:  versions{clock: i.clock, random: rand.Uint64N(1 << randomBits)}, //nolint:gosec // not a secret
		reviewing: make(chan struct{}, 1), changed: make(chan struct{})}
	v.since = v.now()
	for subject := range v.subjects {
		i.concerned.add(subject, v)
	}
	for name := range i.grants.candidates(v.subjects) {
		v.decision(question{"get", name}).stale = stale
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
		if v.uses > 0 || now.Sub(v.used) < period {
			continue
		}
		delete(i.views, key)
		i.concerned.remove(every, v)
		for subject := range v.subjects {
			i.concerned.remove(subject, v)
		}
		for q := range v.decisions {
			i.concerned.remove(q.name, v)
		}
	}
}

// forget removes unused views, decisions about namespaces that no binding proposes any more, and changes that every watch has sent long ago.
func (i *Index) forget() {
	i.mu.Lock()
	i.removeUnused(idlePeriod)
	views := slices.Collect(maps.Values(i.views))
	i.mu.Unlock()
	for _, v := range views {
		candidates := i.grants.candidates(v.subjects)
		i.mu.Lock()
		old := uint64(i.clock.Now().Add(-keepPeriod).UnixMilli()) << randomBits //nolint:gosec // not before 1970
		v.shorten(sort.Search(len(v.log), func(k int) bool { return v.log[k].after.version > old }))
		for q, d := range v.decisions {
			if q.name != "" && !candidates.Has(q.name) && i.clock.Since(d.stale) > bookmarkInterval && (!d.allowed || i.namespace(q.name) == nil) {
				v.drop(q)
			}
		}
		i.mu.Unlock()
	}
}

// answer is what the authorizer said about a question, for a namespace with a UID.
type answer struct {
	uid            types.UID
	asked, allowed bool
}

// open returns the questions of a view whose decisions a function selects: about every namespace and, unless the user sees everything, about
// single ones that exist.
func (i *Index) open(v *view, everything bool, selects func(*decision) bool) map[question]*answer {
	questions := map[question]*answer{}
	for q, d := range v.decisions {
		a, namespace := &answer{}, i.namespace(q.name)
		if namespace != nil {
			a.uid = namespace.UID
		}
		if (q.name == "" || namespace != nil && !everything) && (selects(d) || d.uid != a.uid) {
			questions[q] = a
		}
	}
	return questions
}

// review asks the authorizer about the permissions of a user that are stale or older than maxAge, which is 0 for any age. With other
// questions, it asks these instead of those about single namespaces, unless the user loses the permission on all of them.
func (i *Index) review(ctx context.Context, v *view, maxAge time.Duration, others map[question]*answer) (err error) {
	began := i.clock.Now()
	select {
	case v.reviewing <- struct{}{}:
		defer func() { <-v.reviewing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	now, answers := i.clock.Now(), map[question]*answer{}
	// A user probably sees single namespaces, so a few of them are asked for in the first step. The others are, if the user does not see all.
	for _, first := range []bool{true, false} {
		i.mu.Lock()
		everything := v.everything(answers)
		asked := i.open(v, everything || others != nil && !v.everything(nil), func(d *decision) bool {
			return !d.fresh(began, maxAge) && !d.recent(began) // what was asked while this waited counts
		})
		i.mu.Unlock()
		many := first && len(asked) > questioners
		if !everything {
			maps.Copy(asked, others)
		}
		maps.DeleteFunc(asked, func(q question, _ *answer) bool {
			return answers[q] != nil || many && q.name != "" || !first && q.name == ""
		})
		if err == nil {
			err = i.ask(ctx, v.user, asked)
		}
		maps.Copy(answers, asked)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	v.stale = true // until a watch finds that all answers are settled
	before, all := v.everything(nil), false
	for q, a := range answers {
		if d := v.decisions[q]; a.asked && d != nil { // after an error, the rest is asked again
			all = all || q.name == "" && d.allowed != a.allowed
			d.allowed, d.uid, d.reviewed = a.allowed, a.uid, now
		}
	}
	if v.everything(nil) {
		i.concerned.add(every, v)
	} else {
		i.concerned.remove(every, v)
	}
	if before && !v.everything(nil) {
		for q, d := range v.decisions {
			if q.name != "" {
				d.stale = now // a kube-apiserver that answered may still have known the permission on all of them
			}
		}
	}
	for q := range answers {
		i.update(v, q.name)
	}
	if all {
		for _, name := range i.namespaces.ListKeys() {
			i.update(v, name)
		}
	}
	if err == nil && others == nil && !v.filled { // no watch can ask for what was before
		v.filled, v.log, v.since = true, nil, v.now()
	}
	return err
}

// ask has the authorizer answer questions about a user.
func (i *Index) ask(ctx context.Context, u user.Info, questions map[question]*answer) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(questioners)
	for q, a := range questions {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, questionTimeout)
			defer cancel()
			decision, _, err := i.authorizer.Authorize(ctx, authorizer.AttributesRecord{
				User: u, Verb: q.verb, APIVersion: "v1", Resource: "namespaces", Namespace: q.name, Name: q.name, ResourceRequest: true,
			})
			if a.allowed = decision == authorizer.DecisionAllow; err != nil && !a.allowed {
				return utilapierrors.NewUnavailable(fmt.Errorf("cannot ask which namespaces the user may get: %w", err))
			}
			a.asked = true
			return nil
		})
	}
	return group.Wait()
}

// get returns a namespace as a user sees it. The authorizer is asked the same whether the namespace exists or not.
func (i *Index) get(ctx context.Context, v *view, name string) (state, error) {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return state{}, nil
	}
	a := &answer{}
	if namespace := i.namespace(name); namespace != nil {
		a.uid = namespace.UID
	}
	err := i.review(ctx, v, cachePeriod, map[question]*answer{{"get", name}: a})
	i.mu.Lock()
	defer i.mu.Unlock()
	namespace := i.namespace(name)
	may := v.everything(nil) || a.allowed && namespace != nil && namespace.UID == a.uid
	seen := v.see(namespace, may, v.decisions[initializeAll()].allowed)
	if seen.version = v.seen[name].version; seen.version == 0 {
		seen.version = v.now()
	}
	return seen, err
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

// progress is what a watch has to send.
type progress struct {
	events []watch.Event
	// version is the version now.
	version uint64
	// next is closed with the next change.
	next <-chan struct{}
	// stale says that permissions have to be reviewed.
	stale bool
}

// changes returns what changed for a user after a version.
func (i *Index) changes(v *view, from uint64, s selection) (p progress, err *apierrors.StatusError) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if from < v.since {
		return p, expired(from)
	}
	first := sort.Search(len(v.log), func(k int) bool { return v.log[k].after.version > from })
	for _, t := range v.log[first:] {
		switch had, has := s.has(t.before), s.has(t.after); {
		case has && had:
			p.events = append(p.events, watch.Event{Type: watch.Modified, Object: v.object(t.after)})
		case has:
			p.events = append(p.events, watch.Event{Type: watch.Added, Object: v.object(t.after)})
		case had:
			t.before.version = t.after.version
			p.events = append(p.events, watch.Event{Type: watch.Deleted, Object: v.object(t.before)})
		}
	}
	v.stale = v.stale && len(i.open(v, v.everything(nil), func(d *decision) bool { return !d.fresh(i.clock.Now(), 0) })) > 0
	p.version, p.next, p.stale = v.now(), v.changed, v.stale
	return p, nil
}

// parse returns the version of a view that a client has, or 0.
func (i *Index) parse(v *view, text string) uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return v.parse(text)
}

// admit returns whether a user may open another watch. The request itself is one of the uses.
func (i *Index) admit(v *view) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return v.uses <= maxWatches
}

// expired is the answer to a version that is too old, or of another process.
func expired(version any) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("the resourceVersion %v is too old, or from another nsinit-apiserver or user: list again", version))
}

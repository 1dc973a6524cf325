/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const (
	// randomBits are the low bits of a resourceVersion.
	randomBits = 20
	// maxLog is how many changes of the last minutes a view keeps at least.
	maxLog = 1024
)

// versions creates the resourceVersions of one view. They grow with the time in milliseconds, or faster if there are several changes in one.
// So a user cannot count the changes of namespaces that the user does not see.
type versions struct {
	clock clock.PassiveClock
	// random identifies the view, because another one has another log of changes.
	random uint64
	time   uint64
}

// now returns the version of the state after all changes so far.
func (v *versions) now() uint64 {
	v.time = max(v.time, uint64(v.clock.Now().UnixMilli())) //nolint:gosec // not before 1970
	return v.time<<randomBits | v.random
}

// next returns the version of a change. It is greater than all that were returned before.
func (v *versions) next() uint64 {
	v.time++
	return v.now()
}

// parse returns the version that a client has of this view, or 0.
func (v *versions) parse(text string) uint64 {
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || version&(1<<randomBits-1) != v.random || version > v.now() {
		return 0
	}
	return version
}

// question is whether a user has a verb on a namespace or, without a name, on every namespace.
type question struct{ verb, name string }

// listAll, getAll and initializeAll are the questions about every namespace.
func listAll() question       { return question{"list", ""} }
func getAll() question        { return question{"get", ""} }
func initializeAll() question { return question{v1alpha1.VerbInitialize, ""} }

// decision is what the authorizer answered.
type decision struct {
	allowed bool
	// uid is that of the namespace for which the authorizer was asked. The answer does not count for the next one of the name.
	uid types.UID
	// reviewed is when the authorizer was asked. It is zero before it was.
	reviewed time.Time
	// stale is when a binding last changed that may concern the permission.
	stale time.Time
}

// fresh returns whether the decision still holds. With a maxAge, it must not be older. An answer soon after a change of a binding may be
// older than the change, because kube-apiserver can learn of the change later than this process.
func (d *decision) fresh(now time.Time, maxAge time.Duration) bool {
	return !d.reviewed.IsZero() && !d.reviewed.Before(d.stale.Add(settleTime)) && (maxAge == 0 || now.Sub(d.reviewed) < maxAge)
}

// recent returns whether another watch of the user has just asked, or has asked since.
func (d *decision) recent(now time.Time) bool {
	return !d.reviewed.Before(d.stale) && now.Sub(d.reviewed) < reviewDelay
}

// state is a namespace as a user sees it. The namespace is nil if the user may not get it, or it does not exist.
type state struct {
	namespace *corev1.Namespace
	// hidden says that only requests with a selector on status.phase see it.
	hidden bool
	// version is that of the last change.
	version uint64
}

// transition is a change of what a user sees. The version of after is that of the change.
type transition struct{ before, after state }

// view is what one user sees, with the last changes. The lock of its index protects it.
type view struct {
	versions
	user     user.Info
	subjects sets.Set[string]
	// concerned has this view for each name that its decisions are about.
	concerned relation
	// decisions are about every namespace, and about single ones that a binding proposes.
	decisions map[question]*decision
	// seen are the namespaces that the user sees, and log the changes after the version since.
	seen  map[string]state
	log   []transition
	since uint64
	// stale says that decisions may not be fresh. A watch has them reviewed, or finds that all are.
	stale bool
	// filled says that seen is complete.
	filled bool
	// uses is how many requests use the view, and used when the last one ended.
	uses int
	used time.Time
	// reviewing is held while the authorizer is asked.
	reviewing chan struct{}
	// changed is closed when log grows or a permission is stale.
	changed chan struct{}
}

// relation is the views of each key.
type relation map[string]sets.Set[*view]

func (r relation) add(key string, v *view) {
	if r[key] == nil {
		r[key] = sets.Set[*view]{}
	}
	r[key].Insert(v)
}

func (r relation) remove(key string, v *view) {
	if r[key].Delete(v); len(r[key]) == 0 {
		delete(r, key)
	}
}

// wake wakes the watches.
func (v *view) wake() {
	close(v.changed)
	v.changed = make(chan struct{})
}

// decision returns the decision about a question.
func (v *view) decision(q question) *decision {
	if v.decisions[q] == nil {
		v.decisions[q] = &decision{}
		v.concerned.add(q.name, v)
	}
	return v.decisions[q]
}

// drop removes the decision about a question.
func (v *view) drop(q question) {
	delete(v.decisions, q)
	v.concerned.remove(q.name, v)
}

// everything returns whether the user may list all namespaces, or get each, according to answers or, without one, to decisions.
func (v *view) everything(answers map[question]*answer) bool {
	return slices.ContainsFunc([]question{listAll(), getAll()}, func(q question) bool {
		if a := answers[q]; a != nil {
			return a.allowed
		}
		return v.decisions[q].allowed
	})
}

// see returns how the user sees a namespace if it may get and initialize it. Its creator sees it without a permission while it is closed.
func (v *view) see(namespace *corev1.Namespace, get, initialize bool) state {
	switch closed := namespace != nil && helper.IsClosed(namespace); {
	case closed && helper.Creator(namespace) == v.user.GetName():
		return state{namespace: namespace}
	case namespace != nil && get:
		return state{namespace: namespace, hidden: closed && !initialize}
	}
	return state{}
}

// update sets how the user sees the namespace of a name, and adds the change to the log.
func (v *view) update(name string, after state) {
	before := v.seen[name]
	switch {
	case before.namespace == nil && after.namespace == nil:
		return
	case before.namespace == nil || after.namespace == nil:
	case before.namespace.UID != after.namespace.UID:
		v.update(name, state{})
		before = state{}
	case before.hidden == after.hidden && sameForUsers(before.namespace, after.namespace):
		return
	}
	after.version = v.next()
	if v.seen[name] = after; after.namespace == nil {
		delete(v.seen, name)
	}
	v.log = append(v.log, transition{before, after})
	if len(v.log) > 2*maxLog {
		v.shorten(maxLog)
	}
	v.wake()
}

// shorten removes the first changes of the log.
func (v *view) shorten(n int) {
	if n > 0 {
		v.since, v.log = v.log[n-1].after.version, slices.Clone(v.log[n:])
	}
}

// sameForUsers returns whether two states of a namespace give the same object.
func sameForUsers(a, b *corev1.Namespace) bool {
	return a.DeletionTimestamp.Equal(b.DeletionTimestamp) && helper.Creator(a) == helper.Creator(b) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Status, b.Status)
}

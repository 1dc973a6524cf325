/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apiserver/scheme"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const (
	recordName = "ns"
	privileged = "opener"
)

var errUnavailable = errors.New("no authorizer answered")

// model is the storage of one NamespaceLifecycle, with random writes by random users.
type model struct {
	t       *rapid.T
	storage *served
	clock   *testingclock.FakeClock
	// versions are all records that were ever read, of former incarnations, too.
	versions []*nsinit.NamespaceLifecycle
	// deaf says that the authorizer does not answer.
	deaf bool
}

// served is what serves a NamespaceLifecycle.
type served struct {
	Lifecycle          *REST
	Finalize           *generic.PostableREST
	Status, Initialize *generic.SubresourceREST
}

func servedBy(storages map[string]rest.Storage, err error) (*served, error) {
	if err != nil {
		return nil, err
	}
	const resource = "namespacelifecycles"
	return &served{
		Lifecycle:  storages[resource].(*REST),
		Finalize:   storages[resource+"/finalize"].(*generic.PostableREST),
		Status:     storages[resource+"/status"].(*generic.SubresourceREST),
		Initialize: storages[resource+"/initialize"].(*generic.SubresourceREST),
	}, nil
}

func newModel(t *rapid.T) *model {
	m := &model{t: t, clock: testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	trusted := func(context.Context) error { return nil }
	storage, err := servedBy(New(scheme.New(), newMemory().RESTOptions(), authorization.New(authorizer.AuthorizerFunc(m.authorize)), Options{
		Clock: m.clock, Identified: trusted, Confirmed: trusted,
	}))
	if err != nil {
		t.Fatal(err)
	}
	m.storage = storage
	return m
}

// authorize: each initializer is a user of its name, and one user is privileged.
func (m *model) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	name := a.GetUser().GetName()
	switch {
	case m.deaf:
		return authorizer.DecisionNoOpinion, "", errUnavailable
	case a.GetVerb() == v1alpha1.VerbOpen:
		return decide(name == privileged)
	case a.GetResource() == "namespaces":
		return decide(slices.Contains(initializers(), name))
	}
	return decide(a.GetName() == name || name == privileged && a.GetName() == string(v1alpha1.FinalizerKubernetes))
}

func decide(allowed bool) (authorizer.Decision, string, error) {
	if allowed {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func initializers() []string {
	return []string{"a.example.com", "b.example.com", "ignored.example.com", "ignored.example.org", "participant.example.com"}
}

// stored returns the record, or nil. The main endpoint of the storage behind it repairs nothing.
func (m *model) stored() *nsinit.NamespaceLifecycle {
	object, err := m.storage.Lifecycle.REST.Get(request("admin", ""), recordName, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return object.(*nsinit.NamespaceLifecycle).DeepCopy()
}

func request(name, subresource string) context.Context {
	ctx := genericapirequest.WithNamespace(genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: name}), metav1.NamespaceNone)
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version,
		Resource: "namespacelifecycles", Subresource: subresource, Name: recordName,
	})
}

// create creates a record as admission would hand it over: with its plan, and whatever the
// sender put into the rest.
func (m *model) create(*rapid.T) {
	before := m.stored()
	record := &nsinit.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: recordName}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u"}}
	for _, name := range initializers() {
		if !rapid.Bool().Draw(m.t, name) {
			continue
		}
		planned := v1alpha1.PlannedInitializer{
			RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name, Finalizer: name == "participant.example.com"},
			Configuration:         &v1alpha1.ConfigurationReference{Name: "c", UID: "c"},
		}
		if rapid.IntRange(0, 2).Draw(m.t, "ordered") > 0 {
			after := rapid.SliceOfNDistinct(rapid.SampledFrom(initializers()), 0, 3, rapid.ID).Draw(m.t, "after")
			planned.Ordering = &v1alpha1.InitializerOrdering{After: slices.DeleteFunc(after, func(other string) bool { return other == name })}
		}
		if strings.HasPrefix(name, "ignored.") {
			planned.FailurePolicy, planned.TimeoutSeconds = new(v1alpha1.Ignore), new(int32(30))
		}
		if planned.Finalizer {
			record.Spec.Finalizers = append(record.Spec.Finalizers, v1alpha1.FinalizerName(name))
		}
		record.Spec.Plan = append(record.Spec.Plan, planned)
		if record.Spec.Initializers == nil {
			record.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
		}
		record.Spec.Initializers.Pending = append(record.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name})
	}
	for len(record.Spec.Plan) > 0 && hasCycle(record) { // until none waits for a later one
		breakCycle(record)
	}
	record.Spec.Skipped = rapid.SampledFrom([][]string{nil, {"a.example.com"}}).Draw(m.t, "sent as skipped")
	record.Status.Phase = rapid.SampledFrom([]v1alpha1.LifecyclePhase{"", v1alpha1.LifecycleActive}).Draw(m.t, "sent as phase")
	_, err := m.storage.Lifecycle.Create(request(privileged, ""), record, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if (err == nil) != (before == nil) {
		m.t.Fatalf("created over %v: %v", before, err)
	}
	after := m.stored()
	if before == nil {
		if after.Spec.Skipped != nil || !slices.Contains(after.Spec.Finalizers, v1alpha1.FinalizerKubernetes) {
			m.t.Fatalf("created as %+v", after.Spec)
		}
		m.checkStatus(after)
	}
	m.versions = append(m.versions, after)
}

// hasCycle says whether at some time none of the pending initializers could act.
func hasCycle(record *nsinit.NamespaceLifecycle) bool {
	rest := record.DeepCopy()
	for len(turns(rest)) > 0 {
		rest = without(rest, turns(rest)...)
	}
	return len(rest.Pending()) > 0
}

// breakCycle lets one initializer not wait for a later one.
func breakCycle(record *nsinit.NamespaceLifecycle) {
	for i, planned := range record.Spec.Plan {
		for j, later := range record.Spec.Plan {
			if j > i && planned.Ordering != nil && slices.Contains(planned.Ordering.After, later.Name) {
				planned.Ordering.After = slices.DeleteFunc(planned.Ordering.After, func(name string) bool { return name == later.Name })
				return
			}
		}
	}
}

// write sends some version of the record, changed in any way, to an endpoint.
func (m *model) write(t *rapid.T) {
	if len(m.versions) == 0 {
		t.Skip()
	}
	before := m.stored()
	sent := m.versions[len(m.versions)-1-rapid.IntRange(0, len(m.versions)-1).Draw(t, "versions ago")].DeepCopy()
	m.forge(sent)
	if before != nil {
		switch rapid.SampledFrom([]string{"current", "as read", "none"}).Draw(t, "resourceVersion") {
		case "current":
			sent.ResourceVersion = before.ResourceVersion
		case "none":
			sent.ResourceVersion = ""
		}
		sent.UID = rapid.SampledFrom([]types.UID{sent.UID, before.UID, ""}).Draw(t, "uid")
	}
	users := append(initializers(), privileged, "stranger")
	if before != nil && pending(before) > 0 { // more often those who may write something
		users = append(users, privileged, privileged)
		users = append(users, turns(before)...)
		users = append(users, turns(before)...)
	}
	who := rapid.SampledFrom(users).Draw(t, "user")
	endpoint := rapid.SampledFrom([]string{"", "status", "initialize", "initialize", "initialize", "finalize", "POST finalize"}).Draw(t, "endpoint")
	if before == nil && endpoint != "" && rapid.Bool().Draw(t, "without preconditions") {
		sent.ResourceVersion, sent.UID = "", ""
	}
	m.deaf = rapid.IntRange(0, 9).Draw(t, "the authorizer answers") == 9
	allowCreate := rapid.Bool().Draw(t, "forceAllowCreate")
	err := m.send(endpoint, who, sent.DeepCopy(), allowCreate)
	deaf := m.deaf
	m.deaf = false
	after := m.stored()
	if err == nil && before != nil && (sent.ResourceVersion != before.ResourceVersion || sent.UID != before.UID && sent.UID != "") {
		t.Fatalf("a write of resourceVersion %q, UID %q was accepted over %q, %q", sent.ResourceVersion, sent.UID, before.ResourceVersion, before.UID)
	}
	m.check(transition{before, after, endpoint, who, deaf, err})
	if after != nil {
		m.versions = append(m.versions, after)
	}
}

func (m *model) send(endpoint, who string, sent *nsinit.NamespaceLifecycle, allowCreate bool) error {
	info := rest.DefaultUpdatedObjectInfo(sent)
	put := func(updater rest.Updater) error {
		_, _, err := updater.Update(request(who, endpoint), recordName, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, allowCreate, &metav1.UpdateOptions{})
		return err
	}
	switch endpoint {
	case "status":
		return put(m.storage.Status)
	case "initialize":
		return put(m.storage.Initialize)
	case "finalize":
		return put(m.storage.Finalize)
	case "POST finalize":
		_, err := m.storage.Finalize.Create(request(who, "finalize"), recordName, sent, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		return err
	}
	return put(m.storage.Lifecycle)
}

// remove sends a DELETE, with any precondition.
func (m *model) remove(t *rapid.T) {
	before := m.stored()
	if before == nil {
		t.Skip()
	}
	uid := rapid.SampledFrom([]types.UID{before.UID, "another", ""}).Draw(t, "precondition")
	options := metav1.NewDeleteOptions(0)
	if uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	_, _, err := m.storage.Lifecycle.Delete(request(privileged, ""), recordName, rest.ValidateAllObjectFunc, options)
	after := m.stored()
	switch {
	case uid == "another":
		if !apierrors.IsConflict(err) || after == nil || after.ResourceVersion != before.ResourceVersion {
			t.Fatalf("the UID of a deletion is another: %v", err)
		}
	case err != nil:
		t.Fatal(err)
	case before.DeletionTimestamp == nil && (after == nil || after.DeletionTimestamp == nil):
		t.Fatalf("the first deletion made of it: %+v", after)
	case after == nil && len(before.Spec.Finalizers)+len(before.Finalizers) > 0:
		t.Fatalf("removed before these acted: %q", before.Spec.Finalizers)
	case after != nil:
		m.checkStatus(after)
		m.versions = append(m.versions, after)
	}
}

// TestAnySequenceOfWrites: after random writes to random endpoints by random users, the
// NamespaceLifecycle keeps the promises that check verifies.
func TestAnySequenceOfWrites(t *testing.T) {
	accepted := map[string]int{}
	for range 5 { // times rapid's number of checks
		rapid.Check(t, func(t *rapid.T) {
			m := newModel(t)
			m.create(t)
			t.Repeat(map[string]func(*rapid.T){
				"create": m.create, "delete": m.remove,
				"write": m.write, "write again": m.write, "write once more": m.write, "initialize": m.proceed, "fail": m.fail, "skip": m.skip,
				"time passes": func(*rapid.T) {
					m.clock.Step(time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second)
				},
			})
			for i := 1; i < len(m.versions); i++ {
				was, is := m.versions[i-1], m.versions[i]
				accepted["initialized"] += max(0, pending(was)-pending(is))
				accepted["finalized"] += max(0, len(was.Spec.Finalizers)-len(is.Spec.Finalizers))
				if was.UID != is.UID {
					accepted["recreated"]++
				}
			}
		})
	}
	for _, what := range []string{"initialized", "finalized", "recreated"} {
		if accepted[what] == 0 {
			t.Errorf("nothing was %s: %v", what, accepted)
		}
	}
}

func pending(record *nsinit.NamespaceLifecycle) int {
	if record.Spec.Initializers == nil {
		return 0
	}
	return len(record.Spec.Initializers.Pending)
}

// proceed writes what an initializer or a participant that behaves would write. It must be
// accepted.
func (m *model) proceed(t *rapid.T) {
	record := m.stored()
	switch {
	case record == nil:
		t.Skip()
	case record.DeletionTimestamp != nil && len(record.Spec.Finalizers) > 0:
		who := string(record.Spec.Finalizers[0])
		if who == string(v1alpha1.FinalizerKubernetes) {
			who = privileged
		}
		sent := record.DeepCopy()
		sent.Spec.Finalizers = sent.Spec.Finalizers[1:]
		m.mustSend("finalize", who, record, sent)
	case record.DeletionTimestamp == nil && pending(record) > 0 && record.Spec.Initializers.Result == nil:
		who := rapid.SampledFrom(turns(record)).Draw(t, "who")
		m.mustSend("initialize", who, record, without(record, who))
	default:
		t.Skip()
	}
}

// without returns a copy of a record in which some initializers are not pending.
func without(record *nsinit.NamespaceLifecycle, names ...string) *nsinit.NamespaceLifecycle {
	sent := record.DeepCopy()
	sent.Spec.Initializers.Pending = slices.DeleteFunc(sent.Spec.Initializers.Pending, func(p v1alpha1.NamespaceInitializer) bool { return slices.Contains(names, p.Name) })
	return sent
}

// skip writes what an administrator writes who skips some initializers and all that they wait for.
func (m *model) skip(t *rapid.T) {
	record := m.stored()
	if record == nil || record.DeletionTimestamp != nil || pending(record) == 0 || record.Spec.Initializers.Result != nil {
		t.Skip()
	}
	waiting := record.Pending()
	names := []string{rapid.SampledFrom(waiting).Draw(t, "skipped")}
	for i := 0; i < len(names); i++ {
		names = merge(names, waitsFor(record.Spec.Plan, names[i], waiting))
	}
	sent := without(record, names...)
	sent.Spec.Skipped = append(sent.Spec.Skipped, names...)
	m.mustSend("initialize", privileged, record, sent)
}

func merge(names, more []string) []string {
	for _, name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// fail writes what an initializer writes that cannot succeed. Half of the times, one that does not
// behave then writes that it is done.
func (m *model) fail(t *rapid.T) {
	record := m.stored()
	if record == nil || record.DeletionTimestamp != nil || pending(record) == 0 || record.Spec.Initializers.Result != nil {
		t.Skip()
	}
	sent := record.DeepCopy()
	sent.Spec.Initializers.Result = result("it cannot succeed")
	who := rapid.SampledFrom(turns(record)).Draw(t, "who")
	if len(turns(record)) > 1 || rapid.Bool().Draw(t, "it says who it is") {
		sent.Spec.Initializers.FailedInitializer = who
	}
	m.mustSend("initialize", who, record, sent)
	if rapid.Bool().Draw(t, "it goes on") {
		failed := m.stored()
		err := m.send("initialize", who, without(failed, who), false)
		m.check(transition{before: failed, after: m.stored(), endpoint: "initialize", user: who, err: err})
	}
}

func (m *model) mustSend(endpoint, who string, before, sent *nsinit.NamespaceLifecycle) {
	if !slices.Contains(append(initializers(), privileged), who) {
		m.t.Skip() // a finalizer that was forged
	}
	if err := m.send(endpoint, who, sent, false); err != nil {
		m.t.Fatal(fmt.Errorf("%s by %q was refused: %w", endpoint, who, err))
	}
	after := m.stored()
	m.check(transition{before: before, after: after, endpoint: endpoint, user: who})
	if after != nil {
		m.versions = append(m.versions, after)
	}
}

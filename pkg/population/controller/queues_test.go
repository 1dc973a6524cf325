/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

// fakePopulator does what a test says, and nothing else.
type fakePopulator struct {
	Populator
	correct   func(context.Context, *corev1.Namespace) error
	forget    func(context.Context, *v1alpha1.PopulatedNamespace) error
	readiness func(context.Context, *v1alpha1.NamespacePopulation) metav1.Condition
}

func (f fakePopulator) Populate(ctx context.Context, namespace *corev1.Namespace, _ population.Mode) error {
	return f.correct(ctx, namespace)
}

func (f fakePopulator) Forget(ctx context.Context, inventory *v1alpha1.PopulatedNamespace) error {
	if f.forget == nil {
		return nil
	}
	return f.forget(ctx, inventory)
}

func (f fakePopulator) Readiness(ctx context.Context, p *v1alpha1.NamespacePopulation) metav1.Condition {
	if f.readiness == nil {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "R"}
	}
	return f.readiness(ctx, p)
}

// noExemptions are those of a cluster in which no namespace is exempt.
type noExemptions struct{}

func (noExemptions) Has(string, string) (exempt, known bool) { return false, true }
func (noExemptions) OnChange(func())                         {}
func (noExemptions) HasSynced() bool                         { return true }

// reconciliations are the calls of Populate, which block until end is called.
type reconciliations struct {
	mu sync.Mutex
	// began counts the calls by namespace, and running has those that have not returned.
	began   map[string]int
	running map[string]chan error
	twice   bool
}

func (r *reconciliations) populate(_ context.Context, namespace *corev1.Namespace) error {
	done := make(chan error)
	r.mu.Lock()
	r.began[namespace.Name]++
	if r.running[namespace.Name] != nil {
		r.twice = true
		r.mu.Unlock()
		return nil
	}
	r.running[namespace.Name] = done
	r.mu.Unlock()
	return <-done
}

// end lets the call for a namespace return.
func (r *reconciliations) end(name string, err error) {
	r.mu.Lock()
	done := r.running[name]
	delete(r.running, name)
	r.mu.Unlock()
	done <- err
	synctest.Wait()
}

// runController runs a Controller in a bubble, and returns when its informers have synced. A ConfigMap of a population is in the
// namespace "late". halt ends the context, calls drain, and waits until Run has returned.
func runController(t *testing.T, nsinit *nsinitfake.Clientset, core *corefake.Clientset, populate func(context.Context, *corev1.Namespace) error) (_ *Controller, ctx context.Context, halt func(drain func())) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metadata := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "late", Labels: map[string]string{v1alpha1.LabelPopulation: "p"}}})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := New(Config{Core: core, Nsinit: nsinit, Metadata: metadata, Mapper: mapper, Populator: fakePopulator{correct: populate}, Exemptions: noExemptions{}, Clock: clock.RealClock{}, Retry: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() { c.Run(ctx); close(returned) }()
	settled()
	return c, ctx, func(drain func()) {
		cancel()
		drain()
		<-returned
	}
}

// settled waits until informers have synced and workers are idle.
func settled() {
	time.Sleep(time.Second) // of the bubble
	synctest.Wait()
}

// TestBeforeTheWatch: objects may have changed or disappeared between their application and the first list of their resource. So
// every namespace is reconciled after that list, also one whose inventory is not in the cache yet.
func TestBeforeTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inventory := func(name string) *v1alpha1.PopulatedNamespace {
			return &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"}}
		}
		namespace := func(name string) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}}
		}
		nsinit := nsinitfake.NewClientset(inventory("known"))
		nsinit.PrependReactor("get", "populatednamespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return true, inventory(action.(clienttesting.GetAction).GetName()), nil
		})
		var mu sync.Mutex
		reconciled := map[string]int{}
		c, ctx, halt := runController(t, nsinit, corefake.NewClientset(namespace("known"), namespace("late")), func(_ context.Context, namespace *corev1.Namespace) error {
			mu.Lock()
			defer mu.Unlock()
			reconciled[namespace.Name]++
			return nil
		})
		defer halt(func() {})
		if diff := cmp.Diff(map[string]int{"known": 1}, reconciled); diff != "" {
			t.Fatalf("at the start: %s", diff)
		}
		if err := c.follow(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap")); err != nil {
			t.Fatal(err)
		}
		settled()
		if diff := cmp.Diff(map[string]int{"known": 2, "late": 1}, reconciled); diff != "" {
			t.Errorf("after the first list: %s", diff)
		}
	})
}

// TestFollow: a resource is watched if the drift of one of its objects is repaired, once, and only while the Controller runs.
func TestFollow(t *testing.T) {
	for hash, want := range map[string]int{"h": 1, "": 0} {
		synctest.Test(t, func(t *testing.T) {
			p := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
			inventory := func(namespace string) *v1alpha1.PopulatedNamespace {
				return &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Status: v1alpha1.PopulatedNamespaceStatus{Objects: []v1alpha1.PopulatedObject{
					{Population: "p", Manifest: "m", APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "u", ContentHash: hash},
				}}}
			}
			c, _, halt := runController(t, nsinitfake.NewClientset(p, inventory("a"), inventory("b")), corefake.NewClientset(), nil)
			defer halt(func() {})
			c.statuses.Add("p")
			settled()
			watches := 0
			for _, action := range c.Metadata.(*metadatafake.FakeMetadataClient).Actions() {
				if action.GetVerb() == "watch" && action.GetResource().Resource == "configmaps" {
					watches++
				}
			}
			if watches != want {
				t.Errorf("with the hash %q: %d watches", hash, watches)
			}
		})
	}
}

// TestGoneResource: a resource that the cluster does not have any more is not watched, until a population has it again.
func TestGoneResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx, halt := runController(t, nsinitfake.NewClientset(), corefake.NewClientset(), func(context.Context, *corev1.Namespace) error { return nil })
		defer halt(func() {})
		gone, lists := true, 0
		c.Metadata.(*metadatafake.FakeMetadataClient).PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			lists++
			return gone, nil, apierrors.NewNotFound(corev1.Resource("configmaps"), "")
		})
		if err := c.follow(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap")); err != nil {
			t.Fatal(err)
		}
		settled()
		time.Sleep(time.Hour)
		if lists != 1 || c.followed.Len() != 0 {
			t.Errorf("after %d lists, %v are followed", lists, c.followed)
		}
		gone = false
		if err := c.follow(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap")); err != nil {
			t.Fatal(err)
		}
		settled()
		if lists != 2 || c.followed.Len() != 1 {
			t.Errorf("when it exists again: after %d lists, %v are followed", lists, c.followed)
		}
	})
}

// populated returns a number of namespaces, and their inventories.
func populated(count int) (namespaces, inventories []runtime.Object) {
	for i := range count {
		name := fmt.Sprintf("namespace-%d", i)
		namespaces = append(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}})
		inventories = append(inventories, &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"}})
	}
	return namespaces, inventories
}

// runBlocked runs a Controller with a number of namespaces. It returns when as many as possible are reconciled because the
// population has changed.
func runBlocked(t *testing.T, count int) (c *Controller, ctx context.Context, calls *reconciliations, stop func()) {
	t.Helper()
	namespaces, inventories := populated(count)
	calls = &reconciliations{began: map[string]int{}, running: map[string]chan error{}}
	c, ctx, halt := runController(t, nsinitfake.NewClientset(inventories...), corefake.NewClientset(namespaces...), calls.populate)
	c.populationChanged("p")
	synctest.Wait()
	if len(calls.running) == 0 || len(calls.running) == count {
		t.Errorf("%d of %d namespaces are reconciled, the others must wait", len(calls.running), count)
	}
	return c, ctx, calls, func() {
		halt(func() {
			for synctest.Wait(); len(calls.running) > 0; {
				for name := range calls.running {
					calls.end(name, nil)
				}
			}
		})
		if calls.twice {
			t.Error("a namespace was reconciled twice at the same time")
		}
	}
}

// drift reports that an object in a namespace has changed.
func (c *Controller) drift(namespace string) {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: namespace}}
	c.observed(o, false, namespacesOf(o))
	synctest.Wait()
}

// TestRepairDoesNotWait: a namespace with a changed object is reconciled although those with a changed population block every
// worker, and although they have changed objects, too.
func TestRepairDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, calls, stop := runBlocked(t, 20)
		defer stop()
		for blocked := range calls.began {
			c.drift(blocked)
		}
		repaired := 0
		for i := range 20 {
			name := fmt.Sprintf("namespace-%d", i)
			if calls.began[name] > 0 {
				continue
			}
			if c.drift(name); calls.began[name] != 1 {
				t.Fatalf("namespace %q waits behind %v", name, calls.began)
			}
			calls.end(name, nil)
			repaired++
		}
		if repaired < 10 {
			t.Errorf("only %d namespaces were repaired", repaired)
		}
	})
}

// TestOneAtATime: a namespace is never reconciled twice at the same time. It is reconciled again after what happened meanwhile,
// and after an error.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, calls, stop := runBlocked(t, 20)
		defer stop()
		var name string
		for name = range calls.running {
		}
		expect := func(began int, running bool) {
			t.Helper()
			if calls.began[name] != began || (calls.running[name] != nil) != running || calls.twice {
				t.Fatalf("reconciled %d times, running %t, twice at the same time %t; want %d, %t", calls.began[name], calls.running[name] != nil, calls.twice, began, running)
			}
		}
		c.drift(name)
		c.drift(name)
		expect(1, true)
		calls.end(name, nil)
		expect(2, true) // the repair
		c.changes.Add(name)
		c.drift(name)
		for other := range calls.running { // so that a worker reaches the change
			if other != name {
				calls.end(other, nil)
			}
		}
		expect(2, true)
		calls.end(name, errors.New("it fails"))
		expect(3, true)
	})
}

// TestFailedRepair: a repair that fails, which can be so in every namespace, is tried again as a change. A temporary error is not.
func TestFailedRepair(t *testing.T) {
	for want, err := range map[string]error{"changes": errors.New("forbidden"), "repairs": context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			failing := false
			c, _, halt := runController(t, nsinitfake.NewClientset(&v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"}}),
				corefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u"}}), func(context.Context, *corev1.Namespace) error {
					if failing {
						return err
					}
					return nil
				})
			defer halt(func() {})
			failing = true
			c.drift("shop")
			if got := map[string]bool{"changes": c.changes.NumRequeues("shop") > 0, "repairs": c.repairs.NumRequeues("shop") > 0}; !got[want] || got["changes"] == got["repairs"] {
				t.Errorf("after %v, it is in %v, want %s", err, got, want)
			}
		})
	}
}

// TestHandlers: what happens to a watched object is repaired although changes block their workers.
func TestHandlers(t *testing.T) {
	for name, happens := range map[string]func(c *Controller, o *metav1.PartialObjectMetadata) error{
		"a change": func(c *Controller, o *metav1.PartialObjectMetadata) error {
			o.Labels["x"] = "y"
			return objects(c).Update(corev1.SchemeGroupVersion.WithResource("configmaps"), o, o.Namespace)
		},
		"a deletion": func(c *Controller, o *metav1.PartialObjectMetadata) error {
			return objects(c).Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), o.Namespace, o.Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, ctx, calls, stop := runBlocked(t, 20)
				defer stop()
				if err := c.follow(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap")); err != nil {
					t.Fatal(err)
				}
				settled()
				namespace := ""
				for i := range 20 {
					if n := fmt.Sprintf("namespace-%d", i); calls.began[n] == 0 {
						namespace = n
					}
				}
				object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: namespace, Labels: map[string]string{v1alpha1.LabelPopulation: "p"}}}
				if err := objects(c).Create(corev1.SchemeGroupVersion.WithResource("configmaps"), object.DeepCopy(), namespace); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err := happens(c, object); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if calls.began[namespace] != 1 {
					t.Fatalf("namespace %s waits", namespace)
				}
				calls.end(namespace, nil)
			})
		})
	}
}

// objects are those that the Controller watches.
func objects(c *Controller) clienttesting.ObjectTracker {
	client, _ := c.Metadata.(*metadatafake.FakeMetadataClient)
	return client.Tracker()
}

// TestOpened: what happened while a namespace was closed is repaired when it opens. Others are not reconciled then.
func TestOpened(t *testing.T) {
	applied := func(status metav1.ConditionStatus, hash string) v1alpha1.PopulatedNamespaceStatus {
		return v1alpha1.PopulatedNamespaceStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: status}},
			Objects:    []v1alpha1.PopulatedObject{{Population: "p", Manifest: "m", ContentHash: hash}},
		}
	}
	for name, test := range map[string]struct {
		before, after func(*Controller) // the inventory exists
		status        v1alpha1.PopulatedNamespaceStatus
		silent        bool // the inventory was created with the status
		repaired      bool
	}{
		"applied": {status: applied(metav1.ConditionTrue, "1")},
		"applied here, and read": {status: applied(metav1.ConditionTrue, "1"), after: func(c *Controller) {
			c.Populated(&v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "i", ResourceVersion: "2"}, Status: applied(metav1.ConditionTrue, "1")})
		}},
		"with drift":                {status: applied(metav1.ConditionTrue, "1"), after: func(c *Controller) { c.drift("shop") }, repaired: true},
		"it was never concluded":    {status: v1alpha1.PopulatedNamespaceStatus{Objects: applied(metav1.ConditionTrue, "").Objects}, silent: true, repaired: true},
		"an object failed":          {status: applied(metav1.ConditionFalse, ""), repaired: true},
		"a population changed":      {status: applied(metav1.ConditionTrue, "1"), before: func(c *Controller) { c.populationChanged("p") }, repaired: true},
		"it changed later":          {status: applied(metav1.ConditionTrue, "1"), after: func(c *Controller) { c.populationChanged("p") }, repaired: true},
		"it drifted and was opened": {after: func(c *Controller) { c.drift("shop") }, repaired: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}}
				core, nsinit, calls := corefake.NewClientset(namespace), nsinitfake.NewClientset(), 0
				c, ctx, halt := runController(t, nsinit, core, func(context.Context, *corev1.Namespace) error { calls++; return nil })
				defer halt(func() {})
				metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: *namespace.ObjectMeta.DeepCopy()}
				err := objects(c).Create(corev1.SchemeGroupVersion.WithResource("namespaces"), metadata.DeepCopy(), "")
				happens := func(what func(*Controller)) {
					settled()
					if what != nil {
						what(c)
						settled()
					}
				}
				happens(test.before)
				inventories := nsinit.NsinitV1alpha1().PopulatedNamespaces()
				inventory := &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "i", ResourceVersion: "1"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"}}
				if test.silent {
					inventory.Status = test.status
				}
				_, createErr := inventories.Create(ctx, inventory.DeepCopy(), metav1.CreateOptions{})
				settled()
				inventory.ResourceVersion, inventory.Status = "2", test.status
				var updateErr error
				if !test.silent {
					_, updateErr = inventories.UpdateStatus(ctx, inventory, metav1.UpdateOptions{})
				}
				happens(test.after)
				open := namespace.DeepCopy()
				open.Labels, metadata.Labels = nil, nil
				_, openErr := core.CoreV1().Namespaces().Update(ctx, open, metav1.UpdateOptions{})
				if err := errors.Join(err, createErr, updateErr, openErr, objects(c).Update(corev1.SchemeGroupVersion.WithResource("namespaces"), metadata, "")); err != nil {
					t.Fatal(err)
				}
				settled()
				if _, closed := c.closed.Load("shop"); (calls > 0) != test.repaired || closed || len(c.written) > 0 {
					t.Errorf("reconciled %d times; it is closed: %t; still expected: %v", calls, closed, c.written)
				}
			})
		})
	}
}

// TestOpenedBeforeRead: a namespace that the initializer has populated is not reconciled if the event of its inventory comes after that of
// the opening. It is if it may have drifted before the inventory had its objects.
func TestOpenedBeforeRead(t *testing.T) {
	inventory := func(version string, status metav1.ConditionStatus) *v1alpha1.PopulatedNamespace {
		return &v1alpha1.PopulatedNamespace{
			ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "i", ResourceVersion: version}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"},
			Status: v1alpha1.PopulatedNamespaceStatus{
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: status}},
				Objects:    []v1alpha1.PopulatedObject{{Population: "p", Manifest: "m", ContentHash: version}},
			},
		}
	}
	populated := func(c *Controller) { c.Populated(inventory("2", metav1.ConditionTrue)) }
	for name, test := range map[string]struct {
		before, after func(*Controller) // the namespace is known to be open
		want          int
	}{
		"populated by this process":           {before: populated},
		"populated by another one":            {want: 2},
		"an object failed":                    {before: func(c *Controller) { c.Populated(inventory("2", metav1.ConditionFalse)) }, want: 2},
		"an object failed in a second turn":   {before: func(c *Controller) { populated(c); c.Populated(inventory("3", metav1.ConditionFalse)) }, want: 2},
		"opened before it was populated":      {after: populated, want: 2},
		"another inventory than the one read": {before: func(c *Controller) { c.Populated(inventory("3", metav1.ConditionTrue)) }, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}}
				metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: *namespace.ObjectMeta.DeepCopy()}
				core, nsinit, calls := corefake.NewClientset(namespace), nsinitfake.NewClientset(), 0
				c, ctx, halt := runController(t, nsinit, core, func(context.Context, *corev1.Namespace) error { calls++; return nil })
				defer halt(func() {})
				err := objects(c).Create(corev1.SchemeGroupVersion.WithResource("namespaces"), metadata.DeepCopy(), "")
				announced := inventory("1", metav1.ConditionFalse)
				announced.Status = v1alpha1.PopulatedNamespaceStatus{}
				_, createErr := nsinit.NsinitV1alpha1().PopulatedNamespaces().Create(ctx, announced, metav1.CreateOptions{})
				settled()
				if test.before != nil {
					test.before(c)
				}
				open := namespace.DeepCopy()
				open.Labels, metadata.Labels = nil, nil
				_, openErr := core.CoreV1().Namespaces().Update(ctx, open, metav1.UpdateOptions{})
				err = errors.Join(err, createErr, openErr, objects(c).Update(corev1.SchemeGroupVersion.WithResource("namespaces"), metadata, ""))
				settled()
				if test.after != nil {
					test.after(c)
				}
				_, updateErr := nsinit.NsinitV1alpha1().PopulatedNamespaces().UpdateStatus(ctx, inventory("2", metav1.ConditionTrue), metav1.UpdateOptions{})
				settled()
				if err := errors.Join(err, updateErr); err != nil || calls != test.want {
					t.Errorf("reconciled %d times, want %d, %v", calls, test.want, err)
				}
			})
		})
	}
}

// TestConcluded: when an inventory gets what another process applied, its namespace is reconciled: what drifted before was not repaired.
func TestConcluded(t *testing.T) {
	for name, own := range map[string]bool{"of another process": false, "its own": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inventory := &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "i", ResourceVersion: "1"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"}}
				nsinit, calls := nsinitfake.NewClientset(inventory), 0
				c, _, halt := runController(t, nsinit, corefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u"}}),
					func(context.Context, *corev1.Namespace) error { calls++; return nil })
				defer halt(func() {})
				before, want := calls, 1
				inventory = inventory.DeepCopy()
				inventory.ResourceVersion, inventory.Status.Objects = "2", []v1alpha1.PopulatedObject{{Population: "p", Manifest: "m", UID: "o", ContentHash: "new"}}
				if own {
					c.Wrote("shop", inventory)
					want = 0
				}
				if _, err := nsinit.NsinitV1alpha1().PopulatedNamespaces().UpdateStatus(t.Context(), inventory, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				settled()
				if calls != before+want {
					t.Errorf("reconciled %d times, want %d", calls-before, want)
				}
			})
		})
	}
}

// TestResync: every namespace is reconciled every ten minutes, or one in a second.
func TestResync(t *testing.T) {
	for count, want := range map[int]int{2: 2, 1000: 600} {
		synctest.Test(t, func(t *testing.T) {
			namespaces, inventories := populated(count)
			var mu sync.Mutex
			calls := map[string]int{}
			_, _, halt := runController(t, nsinitfake.NewClientset(inventories...), corefake.NewClientset(namespaces...), func(_ context.Context, namespace *corev1.Namespace) error {
				mu.Lock()
				defer mu.Unlock()
				calls[namespace.Name]++
				return nil
			})
			defer halt(func() {})
			time.Sleep(time.Second / 2) // between two of them
			mu.Lock()
			before := len(calls)
			clear(calls)
			mu.Unlock()
			time.Sleep(resync)
			mu.Lock()
			defer mu.Unlock()
			if most := slices.Max(slices.Collect(maps.Values(calls))); before != count || len(calls) != want || most != 1 {
				t.Errorf("%d namespaces of %d were reconciled at the start, and %d in ten minutes, want %d, one of them %d times", before, count, len(calls), want, most)
			}
		})
	}
}

// TestTenantsInTurn: the namespaces of one user do not delay a repair in one of another user.
func TestTenantsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, calls, stop := runBlocked(t, 20)
		defer stop()
		for i := range 20 {
			name, creator := fmt.Sprintf("namespace-%d", i), "eve"
			if i == 19 {
				creator = "ann"
			}
			if err := objects(c).Create(corev1.SchemeGroupVersion.WithResource("namespaces"), &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: creator}}}, ""); err != nil {
				t.Fatal(err)
			}
		}
		settled()
		for i := range 20 {
			c.drift(fmt.Sprintf("namespace-%d", i))
		}
		if calls.began["namespace-19"] > 0 {
			t.Fatal("it does not wait")
		}
		for range 2 { // each worker continues twice
			for _, name := range slices.Collect(maps.Keys(calls.running)) {
				calls.end(name, nil)
			}
		}
		if calls.began["namespace-19"] != 1 {
			t.Errorf("the namespace of another user waits behind %v", calls.began)
		}
	})
}

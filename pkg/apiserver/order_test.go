/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// parallel returns a configuration in which a and b act immediately, and c acts after both.
func parallel() *v1alpha1.NamespaceInitializerConfiguration {
	configuration := testserver.Configuration("parallel", "a.example.com", "b.example.com", "c.example.com")
	for i := range 2 {
		configuration.Initializers[i].Ordering = &v1alpha1.InitializerOrdering{}
	}
	return configuration
}

// remove returns a change that removes initializers from the pending ones.
func remove(names ...string) func(*v1alpha1.NamespaceLifecycle) {
	return func(l *v1alpha1.NamespaceLifecycle) {
		l.Spec.Initializers.Pending = slices.DeleteFunc(l.Spec.Initializers.Pending, func(p v1alpha1.NamespaceInitializer) bool { return slices.Contains(names, p.Name) })
	}
}

// skip returns a change that skips initializers.
func skip(names ...string) func(*v1alpha1.NamespaceLifecycle) {
	return func(l *v1alpha1.NamespaceLifecycle) {
		remove(names...)(l)
		l.Spec.Skipped = append(l.Spec.Skipped, names...)
	}
}

// fail returns a change that fails the initialization for an initializer.
func fail(name string) func(*v1alpha1.NamespaceLifecycle) {
	return func(l *v1alpha1.NamespaceLifecycle) {
		l.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}
		l.Spec.Initializers.FailedInitializer = name
	}
}

// TestOrderAuthority shows who may remove and fail what while two initializers have their turn.
func TestOrderAuthority(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, parallel())
	const a, b = "a.example.com", "b.example.com"
	asInitializer(server.Core, "hook-a", a)
	asInitializer(server.Core, "hook-b", b)
	asInitializer(server.Core, "hook-ab", a, b)
	asInitializer(server.Core, "opener")
	server.Core.Allow("opener", append(server.Core.Rules("opener"), testserver.Rule{Verb: "open", Group: "", Resource: "namespaces", Name: "*"})...)
	checkAuthority(t, server, "initialize", map[string]attempt{
		"a removes itself":           {"hook-a", remove(a), true},
		"b removes itself":           {"hook-b", remove(b), true},
		"b removes a":                {"hook-b", remove(a), false},
		"a removes both":             {"hook-a", remove(a, b), false},
		"one that is both":           {"hook-ab", remove(a, b), true},
		"b skips itself":             {"hook-b", skip(b), true},
		"b skips a":                  {"hook-b", skip(a), false},
		"the privileged skips b":     {"opener", skip(b), true},
		"the privileged skips all":   {"opener", skip(a, b, "c.example.com"), true},
		"the privileged removes b":   {"opener", remove(b), false},
		"a fails":                    {"hook-a", fail(a), true},
		"b fails":                    {"hook-b", fail(b), true},
		"b fails in place of a":      {"hook-b", fail(a), false},
		"the privileged fails for b": {"opener", fail(b), true},
	})
}

// TestOrderErrors: an initializer acts in its turn only, and a failure names its initializer and is final.
func TestOrderErrors(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, parallel())
	client := server.Client(t, "admin").NsinitV1alpha1()
	try := func(record *v1alpha1.NamespaceLifecycle, verb string, changes ...func(*v1alpha1.NamespaceLifecycle)) error {
		sent := record.DeepCopy()
		for _, change := range changes {
			change(sent)
		}
		return testserver.Write(client.RESTClient(), verb, "namespacelifecycles", "initialize", record, sent)
	}
	const pending = `spec.initializers.pending: Invalid value: `
	for want, changes := range map[string][]func(*v1alpha1.NamespaceLifecycle){
		pending + `["a.example.com","b.example.com"]: "c.example.com" waits for ["a.example.com" "b.example.com"], and can only be removed after them`: {skip("c.example.com")},
		pending + `["b.example.com"]: "c.example.com" waits for ["b.example.com"], and can only be removed after them`:                                 {skip("a.example.com", "c.example.com")},
		`spec.initializers.failedInitializer: Required value: name the initializer that failed, one of ["a.example.com" "b.example.com"]`:              {fail("")},
		`spec.initializers.failedInitializer: Invalid value: "c.example.com": only an initializer that has its turn can fail, one of ["a.example.com" "b.example.com"]`: {
			fail("c.example.com")},
		`spec.initializers.failedInitializer: Invalid value: "x.example.com": is not in spec.initializers.pending, which is ["a.example.com" "b.example.com" "c.example.com"]`: {
			fail("x.example.com")},
		`spec.initializers.result: Forbidden: an initializer either fails or removes itself: send one of the two`: {remove("a.example.com"), fail("b.example.com")},
		`spec.initializers.failedInitializer: Forbidden: may only be set together with result`: {func(l *v1alpha1.NamespaceLifecycle) {
			l.Spec.Initializers.FailedInitializer = "a.example.com"
		}},
	} {
		for _, verb := range testserver.Verbs("initialize") {
			if err := try(server.MustLifecycle(t, uniqueName()), verb, changes...); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v\nwant %s", verb, err, want)
			}
		}
	}
	for _, verb := range append(testserver.Verbs("initialize"), string(types.ApplyPatchType)) {
		record := server.MustLifecycle(t, uniqueName())
		if err := try(record, verb, fail("b.example.com")); err != nil {
			t.Fatal(err)
		}
		record, err := client.NamespaceLifecycles().Get(t.Context(), record.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const message = `initializer "b.example.com" failed: no; nsinit deletes the namespace`
		if states := statesOf(record); record.Status.Conditions[0].Message != message || states != "Running Failed Waiting" || currentOf(record) != "" {
			t.Errorf("%s: after the failure: %q, states %s, current %q", verb, record.Status.Conditions[0].Message, states, currentOf(record))
		}
		for what, change := range map[string]func(*v1alpha1.NamespaceLifecycle){"a removes itself": remove("a.example.com"), "a fails, too": fail("a.example.com")} {
			if err := try(record, verb, change); verb != string(types.ApplyPatchType) && !apierrors.IsInvalid(err) {
				t.Errorf("%s: after the failure, %s: %v", verb, what, err)
			}
		}
		if err := try(record, put, func(l *v1alpha1.NamespaceLifecycle) { l.Spec.Initializers.FailedInitializer = "" }); err != nil { // as an old client sends it
			t.Errorf("%s: after the failure, a write that leaves out what it does not know: %v", verb, err)
		}
	}
	// With one current initializer, there is no choice.
	record := server.MustLifecycle(t, uniqueName())
	if err := try(record, put, skip("a.example.com", "b.example.com")); err != nil {
		t.Fatal(err)
	}
	record, err := client.NamespaceLifecycles().Get(t.Context(), record.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fail("")(record)
	if record, err = client.NamespaceLifecycles().Initialize(t.Context(), record.Name, record, metav1.UpdateOptions{}); err != nil || record.Spec.Initializers.FailedInitializer != "c.example.com" {
		t.Errorf("a failure without a name: %v, %+v", err, record.Spec.Initializers)
	}
}

const put = http.MethodPut

func statesOf(record *v1alpha1.NamespaceLifecycle) string {
	var states []string
	for _, entry := range record.Status.Initializers {
		states = append(states, string(entry.State))
	}
	return strings.Join(states, " ")
}

// TestConcurrentTurns: initializers that have their turn at the same time remove themselves, by every verb, and retry when
// they conflict. None removes another one, and the namespace opens after the last one.
func TestConcurrentTurns(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	names := []string{"a.example.com", "b.example.com", "c.example.com", "d.example.com"}
	configuration := testserver.Configuration("concurrent", names...)
	for i := range names {
		configuration.Initializers[i].Ordering = &v1alpha1.InitializerOrdering{}
		asInitializer(server.Core, names[i], names[i])
	}
	server.MustConfigure(t, configuration)
	conflicts := sets.New[string]()
	var mu sync.Mutex
	act := func(client versioned.Interface, verb, namespace, name string) error {
		lifecycles := client.NsinitV1alpha1().NamespaceLifecycles()
		for range 100 {
			record, err := lifecycles.Get(t.Context(), namespace, metav1.GetOptions{})
			if err != nil {
				return err
			}
			done := record.DeepCopy()
			remove(name)(done)
			switch err = testserver.Write(client.NsinitV1alpha1().RESTClient(), verb, "namespacelifecycles", "initialize", record, done); {
			case err == nil:
				return nil
			case apierrors.IsConflict(err), apierrors.IsInvalid(err): // a list that names one that is done
				mu.Lock()
				conflicts.Insert(verb)
				mu.Unlock()
			default:
				return err
			}
		}
		return fmt.Errorf("%s of %q conflicts every time", verb, name)
	}
	for range 5 {
		for _, verb := range testserver.Verbs("initialize") {
			namespace := server.MustLifecycle(t, uniqueName()).Name
			var group sync.WaitGroup
			for _, name := range names {
				client := server.Client(t, name)
				group.Go(func() {
					if err := act(client, verb, namespace, name); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			record, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), namespace, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range record.Status.Initializers {
				if entry.State != v1alpha1.InitializerDone || entry.LastActor != entry.Name {
					t.Errorf("%s: the entry is %+v", verb, entry)
				}
			}
			if record.Spec.Initializers != nil || record.Status.Phase != v1alpha1.LifecycleActive {
				t.Errorf("%s: at the end: %+v, phase %q", verb, record.Spec.Initializers, record.Status.Phase)
			}
		}
	}
	if !conflicts.Has(put) {
		t.Errorf("no PUT conflicted, only %v", conflicts)
	}
}

// TestWatchOwnTurns: a watch on the current initializer has a namespace from the start of the turn of that initializer to
// its end, whichever others have their turn.
func TestWatchOwnTurns(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, parallel())
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	follow := func(selector string) func(want watch.EventType) {
		w, err := client.Watch(t.Context(), metav1.ListOptions{FieldSelector: selector, ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		return func(want watch.EventType) {
			t.Helper()
			select {
			case event := <-w.ResultChan():
				if event.Type != want {
					t.Fatalf("%s: got %s, want %s", selector, event.Type, want)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("%s: no event, want %s", selector, want)
			}
		}
	}
	a, b, c := follow("status.currentInitializer=a.example.com"), follow("status.currentInitializer=b.example.com"), follow("status.currentInitializer=c.example.com")
	notB, none := follow("status.currentInitializer!=b.example.com"), follow("status.currentInitializer=")
	listed := func(want map[string]int) {
		t.Helper()
		for selector, number := range want {
			list, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: "status.currentInitializer" + selector})
			if err != nil || len(list.Items) != number {
				t.Errorf("%s lists %d, want %d: %v", selector, len(list.Items), number, err)
			}
		}
	}
	initialize := func(record *v1alpha1.NamespaceLifecycle, change func(*v1alpha1.NamespaceLifecycle)) *v1alpha1.NamespaceLifecycle {
		t.Helper()
		change(record)
		record, err := client.Initialize(t.Context(), record.Name, record, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	record := server.MustLifecycle(t, "turns")
	a(watch.Added)
	b(watch.Added)
	listed(map[string]int{"=a.example.com": 1, "=b.example.com": 1, "=c.example.com": 0, "!=b.example.com": 0, "!=c.example.com": 1, "=": 0, "!=": 1, "=true": 0})
	record = initialize(record, skip("b.example.com"))
	a(watch.Modified)
	b(watch.Deleted)
	notB(watch.Added)
	record = initialize(record, skip("a.example.com"))
	a(watch.Deleted)
	c(watch.Added)
	notB(watch.Modified)
	initialize(record, skip("c.example.com"))
	c(watch.Deleted)
	notB(watch.Modified)
	none(watch.Added)
	listed(map[string]int{"=c.example.com": 0, "!=c.example.com": 1, "=": 1, "!=": 0})
	if _, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: "status.currentInitializers[a.example.com]=true"}); !apierrors.IsBadRequest(err) {
		t.Errorf("the field of the server: %v, want a bad request", err)
	}
}

// TestOrderOfConfigurations: a write that makes initializers wait for each other is refused, and one that names an unknown
// initializer returns a warning.
func TestOrderOfConfigurations(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	var got warnings
	config := server.Config("admin")
	config.WarningHandler = &got
	client := server.ClientFor(t, config).NsinitV1alpha1().NamespaceInitializerConfigurations()
	after := func(name, initializer string, others ...string) *v1alpha1.NamespaceInitializerConfiguration {
		configuration := testserver.Configuration(name, initializer)
		configuration.Initializers[0].Ordering = &v1alpha1.InitializerOrdering{After: others}
		return configuration
	}
	if _, err := client.Create(t.Context(), after("1", "a.example.com", "b.example.com"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := `initializers[0].ordering.after[0]: no configuration registers "b.example.com", so it has no effect: check the name`; !slices.Contains(got, want) {
		t.Errorf("the warnings are %q", got)
	}
	const want = `initializers[0].ordering.after: Invalid value: ["a.example.com"]: the initializers wait for each other: ` +
		`"a.example.com" waits for "b.example.com", "b.example.com" waits for "a.example.com": remove one of these names, or set ordering of an initializer that has none`
	if _, err := client.Create(t.Context(), after("2", "b.example.com", "a.example.com"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("a cycle: %v", err)
	}
	got = nil
	if _, err := client.Create(t.Context(), after("2", "b.example.com"), metav1.CreateOptions{}); err != nil || strings.Contains(strings.Join(got, " "), "no configuration registers") {
		t.Errorf("without the cycle: %v, warnings %q", err, got)
	}
}

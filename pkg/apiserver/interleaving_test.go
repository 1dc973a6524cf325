/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func pendingNames(record *v1alpha1.NamespaceLifecycle) []string {
	var names []string
	if record.Spec.Initializers != nil {
		for _, entry := range record.Spec.Initializers.Pending {
			names = append(names, entry.Name)
		}
	}
	return names
}

// TestInterleavings makes random writes, from what was read at random times, by random users,
// and checks the NamespaceLifecycle after each: entries are removed only from the front, each by its
// own initializer, or skipped by a user with the verb open.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	const runs, steps = 15, 50
	server := testserver.Start(t)
	names := []string{"a.example.com", "b.example.com", "c.example.com", "d.example.com"}
	server.MustConfigure(t, testserver.Configuration("four", names...))
	for _, name := range names {
		asInitializer(server.Core, "hook-"+name, name)
	}
	asInitializer(server.Core, "opener")
	server.Core.Allow("opener", append(server.Core.Rules("opener"), testserver.Rule{Verb: "open", Group: "", Resource: "namespaces", Name: "*"})...)
	users := []string{"hook-" + names[0], "hook-" + names[1], "hook-" + names[2], "hook-" + names[3], "opener"}
	admin := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	accepted, completed := 0, 0
	for seed := range uint64(runs) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
		before := server.MustLifecycle(t, uniqueName())
		read := []*v1alpha1.NamespaceLifecycle{before}
		for step := range steps {
			user := users[random.IntN(len(users))]
			old := read[random.IntN(len(read))]
			sent, what := randomChange(random, old, names)
			verb := []string{http.MethodPut, string(types.MergePatchType), string(types.JSONPatchType)}[random.IntN(3)]
			err := testserver.Write(server.Client(t, user).NsinitV1alpha1().RESTClient(), verb, "namespacelifecycles", "initialize", old, sent)
			after, getErr := admin.Get(t.Context(), before.Name, metav1.GetOptions{})
			if getErr != nil {
				t.Fatal(getErr)
			}
			at := fmt.Sprintf("seed %d, step %d: %s by %s of %s", seed, step, what, verb, user)
			was, is := pendingNames(before), pendingNames(after)
			switch {
			case err != nil && after.ResourceVersion != before.ResourceVersion:
				t.Fatalf("%s: refused with %v, and the record changed", at, err)
			case len(is) > len(was) || !slices.Equal(was[len(was)-len(is):], is):
				t.Fatalf("%s: pending was %v and became %v", at, was, is)
			}
			for _, removed := range was[:len(was)-len(is)] {
				skipped := slices.Contains(after.Spec.Skipped, removed)
				if user != "hook-"+removed && (user != "opener" || !skipped) {
					t.Fatalf("%s: %s has left", at, removed)
				}
				accepted++
			}
			before, read = after, append(read, after)
		}
		if len(pendingNames(before)) == 0 {
			completed++
		}
		for i, entry := range before.Status.Initializers {
			waits := slices.Contains(pendingNames(before), entry.Name)
			ended := entry.State == v1alpha1.InitializerDone || entry.State == v1alpha1.InitializerSkipped
			if entry.Name != names[i] || waits == ended || ended != (entry.EndTime != nil) {
				t.Errorf("seed %d: at the end, pending is %v, and entry %d is %+v", seed, pendingNames(before), i, entry)
			}
		}
	}
	if accepted < runs || completed == 0 {
		t.Errorf("%d removals and %d complete initializations show too little", accepted, completed)
	}
}

// randomChange returns a record with another list, and what was done to it.
func randomChange(random *rand.Rand, old *v1alpha1.NamespaceLifecycle, names []string) (*v1alpha1.NamespaceLifecycle, string) {
	sent := old.DeepCopy()
	pending := pendingNames(old)
	var what string
	switch random.IntN(7) {
	case 0, 1:
		what, pending = "remove the first", pending[min(1, len(pending)):]
	case 2:
		what, sent.Spec.Skipped = "skip the first", append(sent.Spec.Skipped, pending[:min(1, len(pending))]...)
		pending = pending[min(1, len(pending)):]
	case 3:
		what, pending = "remove any", slices.DeleteFunc(slices.Clone(pending), func(string) bool { return random.IntN(2) == 0 })
	case 4:
		what, pending = "bring all back", names
	case 5:
		what, pending = "another order", slices.Clone(pending)
		random.Shuffle(len(pending), func(i, j int) { pending[i], pending[j] = pending[j], pending[i] })
	case 6:
		what, pending = "as it was", slices.Clone(pending)
	}
	sent.Spec.Initializers = &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{}}
	for _, name := range pending {
		sent.Spec.Initializers.Pending = append(sent.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name})
	}
	return sent, fmt.Sprintf("%s (%s)", what, strings.Join(pending, " "))
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	client "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// history holds the pending lists that a watch has shown, by NamespaceLifecycle.
type history struct {
	mu   sync.Mutex
	seen map[types.UID]*v1alpha1.NamespaceLifecycle
	errs []string
}

// add compares a NamespaceLifecycle with its former state: entries are removed only from the front,
// in the order of the plan, and skipped initializers stay skipped.
func (h *history) add(lifecycle *v1alpha1.NamespaceLifecycle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.seen[lifecycle.UID]
	h.seen[lifecycle.UID] = lifecycle
	if before == nil {
		before = lifecycle.DeepCopy()
		before.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
		before.Spec.Skipped = nil
		for _, planned := range lifecycle.Spec.Plan {
			before.Spec.Initializers.Pending = append(before.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: planned.Name})
		}
	}
	oldPending, newPending := helper.Pending(before), helper.Pending(lifecycle)
	if len(newPending) > len(oldPending) || !slices.Equal(oldPending[len(oldPending)-len(newPending):], newPending) {
		h.errs = append(h.errs, fmt.Sprintf("%s: pending was %v and became %v", lifecycle.Name, oldPending, newPending))
	}
	if len(lifecycle.Spec.Skipped) < len(before.Spec.Skipped) || !slices.Equal(lifecycle.Spec.Skipped[:len(before.Spec.Skipped)], before.Spec.Skipped) {
		h.errs = append(h.errs, fmt.Sprintf("%s: skipped was %v and became %v", lifecycle.Name, before.Spec.Skipped, lifecycle.Spec.Skipped))
	}
}

// TestInterleavings lets several initializers remove themselves from many NamespaceLifecycles at the same time, by
// every kind of write, while stale writes are repeated and the controller is killed and started.
// No entry is lost, reappears, or is removed out of order, and every namespace becomes Ready.
func TestInterleavings(t *testing.T) {
	const namespaces, kills = 20, 4
	seed := framework.Seed(t)
	c := framework.Connect(t)
	names := []string{"a.example.com", "b.example.com", "absent.example.com", "d.example.com", "e.example.com"}
	ignore, seconds := v1alpha1.Ignore, int32(1)
	initializers := framework.Initializers(names...)
	initializers[2].FailurePolicy, initializers[2].TimeoutSeconds = &ignore, &seconds
	c.Configure(t, initializers...)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	seen := &history{seen: map[types.UID]*v1alpha1.NamespaceLifecycle{}}
	var group sync.WaitGroup
	group.Go(func() { follow(ctx, c, seen) })
	for i, name := range names {
		if name == "absent.example.com" {
			continue
		}
		actor := newActor(t, c, name)
		group.Go(func() { actor.act(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) }) //nolint:gosec // not a secret
	}
	// A user who may remove every entry repeats stale writes.
	privileged := &actor{names: names, client: c.Nsinit.NsinitV1alpha1().NamespaceLifecycles()}
	group.Go(func() { privileged.repeat(ctx, rand.New(rand.NewPCG(seed, 99))) }) //nolint:gosec // not a secret

	var created []string
	for range kills {
		for range namespaces / kills {
			created = append(created, c.CreateNamespace(t, c.Admin).Name)
		}
		c.KillController(t)
	}
	for _, namespace := range created {
		c.WaitReady(t, namespace)
	}
	stop()
	group.Wait()

	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, err := range seen.errs {
		t.Error(err)
	}
	for _, namespace := range created {
		lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var end time.Time
		for i, entry := range lifecycle.Status.Initializers {
			want, by := v1alpha1.InitializerDone, "e2e-"+names[i]
			if names[i] == "absent.example.com" {
				want, by = v1alpha1.InitializerSkipped, "system:serviceaccount:nsinit-system:nsinit-controller-manager"
			}
			if entry.Name != names[i] || entry.State != want || entry.LastActor != by {
				t.Errorf("%s: entry %d is %+v", namespace, i, entry)
			}
			if entry.StartTime == nil || entry.EndTime == nil || entry.StartTime.Time.Before(end) || entry.EndTime.Time.Before(entry.StartTime.Time) {
				t.Errorf("%s: entry %d acted out of its turn: %+v", namespace, i, entry)
			} else {
				end = entry.EndTime.Time
			}
		}
	}
	t.Logf("%d namespaces, %d NamespaceLifecycles watched, the controller was killed %d times, %d stale writes", namespaces, len(seen.seen), kills, privileged.writes)
}

// follow watches all NamespaceLifecycles.
func follow(ctx context.Context, c *framework.Cluster, seen *history) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Watch(ctx, options)
		},
	}
	_, _ = watchtools.UntilWithSync(ctx, lw, &v1alpha1.NamespaceLifecycle{}, nil, func(event watch.Event) (bool, error) {
		if lifecycle, ok := event.Object.(*v1alpha1.NamespaceLifecycle); ok && event.Type != watch.Deleted {
			seen.add(lifecycle.DeepCopy())
		}
		return false, nil
	})
}

// actor writes to NamespaceLifecycles.
type actor struct {
	names  []string
	client client.NamespaceLifecycleInterface
	writes int
}

// newActor returns an actor with the permissions of one initializer.
func newActor(t *testing.T, c *framework.Cluster, name string) *actor {
	t.Helper()
	config := c.User(t, "e2e-"+name,
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.ResourceInitializers}, ResourceNames: []string{name}, Verbs: []string{v1alpha1.VerbInitialize}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"namespacelifecycles", "namespacelifecycles/initialize"}, Verbs: []string{"get", "list", "update", "patch"}},
		framework.Initialize())
	return &actor{names: []string{name}, client: versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceLifecycles()}
}

// act removes the initializer when it is its turn, by a random verb, and sometimes when it is not.
func (a *actor) act(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		list, err := a.client.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, lifecycle := range list.Items {
			pending := helper.Pending(&lifecycle)
			i := slices.Index(pending, a.names[0])
			if i < 0 || i > 0 && random.IntN(10) > 0 {
				continue
			}
			_ = a.remove(ctx, &lifecycle, slices.Delete(pending, i, i+1), random.IntN(4))
		}
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
	}
}

// remove sends a list, by one of the verbs.
func (a *actor) remove(ctx context.Context, read *v1alpha1.NamespaceLifecycle, pending []string, verb int) error {
	entries := []v1alpha1.NamespaceInitializer{}
	for _, name := range pending {
		entries = append(entries, v1alpha1.NamespaceInitializer{Name: name})
	}
	patch := func(kind types.PatchType, body any) error {
		data, err := json.Marshal(body)
		if err == nil {
			_, err = a.client.Patch(ctx, read.Name, kind, data, metav1.PatchOptions{FieldManager: "e2e"}, "initialize")
		}
		return err
	}
	list := map[string]any{"initializers": map[string]any{"pending": entries}}
	switch verb {
	case 0:
		lifecycle := read.DeepCopy()
		if lifecycle.Spec.Initializers == nil {
			return nil
		}
		lifecycle.Spec.Initializers.Pending = entries
		_, err := a.client.Initialize(ctx, lifecycle.Name, lifecycle, metav1.UpdateOptions{})
		return err
	case 1: // without a resourceVersion: what it says may be long out of date
		return patch(types.MergePatchType, map[string]any{"spec": list})
	case 2:
		return patch(types.JSONPatchType, []map[string]any{
			{"op": "test", "path": "/spec/initializers/pending/0/name", "value": a.names[0]}, {"op": "remove", "path": "/spec/initializers/pending/0"}})
	default:
		return patch(types.StrategicMergePatchType, map[string]any{"spec": map[string]any{"initializers": map[string]any{
			"pending": []map[string]any{{"name": a.names[0], "$patch": "delete"}}}}})
	}
}

// repeat sends former lists and lists that never existed. None may take effect. It never omits an initializer that has
// not had its turn, because this user may remove it.
func (a *actor) repeat(ctx context.Context, random *rand.Rand) {
	var before []v1alpha1.NamespaceLifecycle
	for ctx.Err() == nil {
		list, err := a.client.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		before = append(before, list.Items...)
		for range min(20, len(before)) {
			old := before[random.IntN(len(before))]
			pending := helper.Pending(&old)
			if len(pending) == 0 || !strings.HasSuffix(pending[0], ".example.com") {
				continue
			}
			switch random.IntN(3) {
			case 0: // as it was
			case 1: // all of them
				pending = a.names
			case 2: // in another order
				random.Shuffle(len(pending), func(i, j int) { pending[i], pending[j] = pending[j], pending[i] })
				if slices.IsSorted(pending) {
					continue
				}
			}
			if err := a.remove(ctx, &old, pending, random.IntN(2)); err != nil {
				a.writes++
			}
		}
		before = before[max(0, len(before)-200):]
		time.Sleep(20 * time.Millisecond)
	}
}

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
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	names "github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	typednsinit "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const (
	// roundsVariable is the environment variable with the number of rounds.
	roundsVariable = "NSINIT_E2E_ROUNDS"
	defaultRounds  = 100
	roundWorkers   = 8
	// deletions is how many configurations each worker deletes, in intervals of at least fewestBetween rounds. Deleted
	// configurations stay while namespaces wait for them, and each plan reads them.
	deletions, fewestBetween = 5, 5
)

// inForce writes a configuration and creates a namespace immediately, in many rounds. The plan of each namespace must
// have the write. The writes go to the replicas in turn, and the lifecycles are created through the aggregator.
func (r *replicas) inForce(t *testing.T) {
	rounds := defaultRounds
	if value := os.Getenv(roundsVariable); value != "" {
		var err error
		if rounds, err = strconv.Atoi(value); err != nil {
			t.Fatalf("%s=%q: give a number of rounds", roundsVariable, value)
		}
	}
	r.node.WaitReady(t, "nsinit-apiserver", 2)
	service, err := aggregator.NewForConfigOrDie(r.Admin).ApiregistrationV1().APIServices().Get(t.Context(), framework.APIService, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var direct []typednsinit.NamespaceInitializerConfigurationInterface
	for _, address := range r.node.Addresses("nsinit-apiserver") {
		config := rest.CopyConfig(r.Direct(t))
		config.Host, config.ServerName = "https://"+address, names.ServingNames(names.DefaultNamespace)[0]
		config.CAFile, config.CAData = "", service.Spec.CABundle
		direct = append(direct, versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceInitializerConfigurations())
	}
	plans := r.watchPlans(t)
	var misses, done atomic.Int64
	began := time.Now()
	var work sync.WaitGroup
	for worker := range roundWorkers {
		work.Go(func() {
			w := &roundWorker{replicas: r, name: framework.UniqueName(fmt.Sprintf("worker-%d", worker)), direct: direct, plans: plans,
				between: max(fewestBetween, rounds/roundWorkers/deletions)}
			defer w.end(t)
			for round := 1; done.Add(1) <= int64(rounds) && !t.Failed(); round++ {
				missed, err := w.round(t.Context(), round)
				if err != nil {
					t.Error(err)
					return
				}
				if missed != "" {
					misses.Add(1)
					t.Error(missed)
				}
			}
		})
	}
	work.Wait()
	took := time.Since(began)
	t.Logf("%d rounds in %.1f s, %.1f a second: %d misses", rounds, took.Seconds(), float64(rounds)/took.Seconds(), misses.Load())
}

// roundWorker writes one configuration, so that it knows which of its initializers a new plan must have.
type roundWorker struct {
	*replicas
	name   string
	direct []typednsinit.NamespaceInitializerConfigurationInterface
	plans  *planWatch
	// configuration is the current one, or nil after its deletion. number counts them.
	configuration *v1alpha1.NamespaceInitializerConfiguration
	number        int
	// between is the number of rounds between two deletions of the configuration.
	between int
}

// round writes the configuration and creates a namespace. It returns how the plan differs from the write, or "".
func (w *roundWorker) round(ctx context.Context, round int) (string, error) {
	suffix := "." + w.name + ".example.com"
	wrote, want := "", []string{fmt.Sprintf("v%d%s", round, suffix)}
	client := w.direct[round%len(w.direct)]
	var err error
	switch {
	case w.configuration == nil:
		w.number++
		wrote = "created"
		w.configuration, err = client.Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", w.name, w.number)}, Initializers: w.selected(want),
		}, metav1.CreateOptions{})
	case round%w.between == 0:
		wrote, want = "deleted", nil
		err = client.Delete(ctx, w.configuration.Name, metav1.DeleteOptions{})
		w.configuration = nil
	default:
		wrote = "changed"
		if round%2 == 0 { // a removal
			want = nil
		}
		err = w.write(ctx, client, want)
	}
	if err != nil {
		return "", fmt.Errorf("round %d of %s: the configuration could not be %s: %w", round, w.name, wrote, err)
	}
	name := fmt.Sprintf("%s-%d", w.name, round)
	namespace, err := w.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	plan, err := w.plans.wait(ctx, namespace.Name)
	if err != nil {
		return "", err
	}
	got := slices.DeleteFunc(plan, func(entry string) bool { return !strings.HasSuffix(entry, suffix) })
	if !slices.Equal(got, want) {
		return fmt.Sprintf("round %d of %s: the configuration was %s, and the plan of the next namespace has %q, want %q", round, w.name, wrote, got, want), nil
	}
	return "", nil
}

// write replaces the initializers of the configuration. The controller writes its status meanwhile, so the write is a patch.
func (w *roundWorker) write(ctx context.Context, client typednsinit.NamespaceInitializerConfigurationInterface, initializers []string) error {
	patch, err := json.Marshal(map[string]any{"initializers": w.selected(initializers)})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, w.configuration.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// selected returns initializers that select the namespaces of the worker.
func (w *roundWorker) selected(names []string) []v1alpha1.RegisteredInitializer {
	entries := framework.Initializers(names...)
	for i := range entries {
		entries[i].MatchConditions = []v1alpha1.MatchCondition{{Name: "worker", Expression: fmt.Sprintf("namespaceObject.metadata.name.startsWith(%q)", w.name+"-")}}
	}
	return entries
}

// end removes the initializers of the worker from the plans of later namespaces.
func (w *roundWorker) end(t *testing.T) {
	if w.configuration == nil {
		return
	}
	if err := w.direct[0].Delete(context.Background(), w.configuration.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// planWatch has the plan of each NamespaceLifecycle that was created.
type planWatch struct {
	mu    sync.Mutex
	plans map[string]chan []string
}

// watchPlans watches NamespaceLifecycles until the test ends.
func (r *replicas) watchPlans(t *testing.T) *planWatch {
	t.Helper()
	p := &planWatch{plans: map[string]chan []string{}}
	lifecycles := r.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return lifecycles.List(ctx, o)
			},
			WatchFuncWithContext: lifecycles.Watch,
		},
		ObjectType: &v1alpha1.NamespaceLifecycle{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
			lifecycle, ok := object.(*v1alpha1.NamespaceLifecycle)
			if !ok {
				return
			}
			var plan []string
			for _, entry := range lifecycle.Spec.Plan {
				plan = append(plan, entry.Name)
			}
			select {
			case p.of(lifecycle.Name) <- plan:
			default: // the watch was interrupted, and has it again
			}
		}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	return p
}

// of returns the channel for the plan of a namespace.
func (p *planWatch) of(namespace string) chan []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	plan, ok := p.plans[namespace]
	if !ok {
		plan = make(chan []string, 1)
		p.plans[namespace] = plan
	}
	return plan
}

// wait returns the plan of a namespace.
func (p *planWatch) wait(ctx context.Context, namespace string) ([]string, error) {
	select {
	case plan := <-p.of(namespace):
		return plan, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(framework.Patience):
		return nil, fmt.Errorf("namespace %q had no NamespaceLifecycle within %s", namespace, framework.Patience)
	}
}

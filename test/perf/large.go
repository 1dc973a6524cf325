/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const (
	// largeBurst is how many namespaces are created at a time.
	largeBurst = 500
	// largeRate is how many namespaces are created in a second when the time of each counts.
	largeRate = 10
	// largePopulation and largeQuota are names in the example of policy-population.
	largePopulation, largeQuota = "default", "default"
	// largeLimit is how long a change may take until every namespace has it, and how long a repair of an object in the last one may take.
	largeLimit = time.Hour
)

// largeOptions are the sizes of a large cluster.
type largeOptions struct {
	planes                                 string
	namespaces, deletions, changes, drifts int
}

// largeCommand adds the flags of the command, and returns what it does.
func largeCommand(ctx context.Context, flags *flag.FlagSet) func() error {
	var o largeOptions
	planesFlag(flags, &o.planes)
	flags.IntVar(&o.namespaces, "namespaces", 10000, "the number of namespaces, at least 10")
	flags.IntVar(&o.deletions, "deletions", 1000, "the number of namespaces that are deleted at the end")
	flags.IntVar(&o.changes, "changes", 100, "the number of changes of a configuration")
	flags.IntVar(&o.drifts, "drifts", 100, "the number of repairs")
	return func() error { return measureLarge(ctx, o) }
}

// large is a large cluster that is measured.
type large struct {
	*plane
	largeOptions
	// names are those of the namespaces that exist.
	names []string
}

// measureLarge fills a cluster with namespaces, each with an initializer and the four objects of the example of policy-population. Then it
// does what happens in such a cluster, and prints what each step takes and costs.
func measureLarge(ctx context.Context, o largeOptions) (err error) {
	if o.namespaces < 10 || o.deletions < 1 || o.deletions > o.namespaces {
		return fmt.Errorf("--namespaces %d, --deletions %d: give at least 10 namespaces, and delete at least one of them", o.namespaces, o.deletions)
	}
	p, err := startPlaneAt(ctx, filepath.Join(o.planes, "large"), true, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop(ctx)) }()
	l := &large{plane: p, largeOptions: o}
	if _, err := p.Admin(ctx, "apply", "-f", p.example()); err != nil {
		return err
	}
	populations := p.nsinit.NsinitV1alpha1().NamespacePopulations()
	if _, err := populations.Patch(ctx, largePopulation, types.MergePatchType, []byte(`{"spec":{"scope":"All","rollout":"Apply"}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := p.startHelper(ctx, repairs, p.Process(repairs).Program, p.Process(repairs).Args...); err != nil {
		return err
	}
	if _, err := (initializers{count: 1}).start(ctx, p); err != nil {
		return err
	}
	programs := []string{"nsinit-apiserver", "nsinit-etcd", "nsinit-controller-manager", repairs, "kube-apiserver", "etcd"}
	fmt.Printf("| step | time, s | times of each: p50, p99, max, ms | CPU, s | requests | %s, MB | data of nsinit-etcd and etcd, MB |\n%s|\n",
		strings.Join(programs, ", "), strings.Repeat("| --- ", 7))
	type step struct {
		name string
		do   func(context.Context) ([]float64, error)
	}
	var steps []step
	for part := range 9 {
		upTo := o.namespaces * (part + 1) / 10
		steps = append(steps, step{fmt.Sprintf("create namespaces until there are %d", upTo), func(ctx context.Context) ([]float64, error) { return l.fill(ctx, upTo) }})
	}
	steps = append(steps, []step{
		{fmt.Sprintf("create namespaces until there are %d, %d per second", o.namespaces, largeRate), l.pace},
		{fmt.Sprintf("repair %d objects, one after the other", o.drifts), func(ctx context.Context) ([]float64, error) { return l.repairQuotas(ctx, nil, "50") }},
		{fmt.Sprintf("change a configuration %d times", o.changes), l.configure},
		{"change the population everywhere", func(ctx context.Context) ([]float64, error) { return nil, l.rollOut(ctx, "50", "60") }},
		{"the same, and repair objects meanwhile", l.repairDuringRollout},
		{"list AccessibleNamespaces, ten times", l.list},
		{"open 20 watches with initial events", l.watchAll},
		{"kubectl nsinit why --all", func(ctx context.Context) ([]float64, error) { return nil, l.plugin(ctx, "why", "--all") }},
		{"kubectl nsinit check", func(ctx context.Context) ([]float64, error) { return nil, l.plugin(ctx, "check") }},
		{"kill every program but the initializer, until a new namespace is Ready", l.restart},
		{fmt.Sprintf("delete %d namespaces with %d clients", o.deletions, clients), l.remove},
	}...)
	for _, s := range steps {
		fmt.Fprintln(os.Stderr, s.name)
		if err := l.row(ctx, s.name, programs, s.do); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// row measures a step. CPU time and requests are those until the programs are idle again. A restart resets the counts, which are then left
// out.
func (l *large) row(ctx context.Context, name string, programs []string, do func(context.Context) ([]float64, error)) error {
	before, err := l.spending(ctx)
	if err != nil {
		return err
	}
	cpuBefore, err := l.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	times, err := do(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if _, err := l.idle(ctx, 2*time.Second); err != nil {
		return err
	}
	cpu, err := l.cpu()
	if err != nil {
		return err
	}
	after, err := l.spending(ctx)
	if err != nil {
		return err
	}
	memory, err := l.memory()
	if err != nil {
		return err
	}
	each, used, requests := "-", "-", "-"
	if len(times) > 0 {
		q := quantiles(times)
		each = fmt.Sprintf("%.0f, %.0f, %.0f", q[0], q[1], q[2])
	}
	if spent := after.since(before); spent.kube >= 0 && total(cpu) >= total(cpuBefore) {
		used, requests = fmt.Sprintf("%.1f", total(cpu)-total(cpuBefore)), fmt.Sprintf("%.0f", spent.kube)
	}
	var resident []string
	for _, program := range programs {
		resident = append(resident, fmt.Sprintf("%.0f", memory[program]/1e6))
	}
	fmt.Printf("| %s | %.1f | %s | %s | %s | %s | %.0f, %.0f |\n", name, took.Seconds(), each, used, requests, strings.Join(resident, ", "),
		size(filepath.Join(l.Dir, "nsinit-etcd")), size(filepath.Join(l.Dir, "etcd")))
	return nil
}

// size returns the size of the databases in a folder in MB, without the write-ahead log.
func size(dir string) float64 {
	sum := int64(0)
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "db" {
			if info, err := entry.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return float64(sum) / 1e6
}

// fill creates namespaces in bursts until there are a number of them.
func (l *large) fill(ctx context.Context, upTo int) (times []float64, err error) {
	for len(l.names) < upTo {
		prefix, count := fmt.Sprintf("large-%d", len(l.names)), min(largeBurst, upTo-len(l.names))
		some, _, err := l.burst(ctx, prefix, count, clients, readySigns())
		if err != nil {
			return nil, err
		}
		l.add(prefix, count)
		times = append(times, some...)
	}
	return times, nil
}

// add notes that burst has created namespaces.
func (l *large) add(prefix string, count int) {
	for i := range count {
		l.names = append(l.names, fmt.Sprintf("%s-%d", prefix, i))
	}
}

// pace creates the last namespaces at a rate.
func (l *large) pace(ctx context.Context) ([]float64, error) {
	tick := time.NewTicker(time.Second / largeRate)
	defer tick.Stop()
	count := l.namespaces - len(l.names)
	times, _, err := l.burstOf(ctx, "paced", count, clients, readySigns(), func(ctx context.Context, name string) error {
		err := l.createNamespace(ctx, name)
		<-tick.C
		return err
	})
	l.add("paced", count)
	return times, err
}

// repairQuotas deletes quotas in random namespaces, one after the other, until a channel has an error or, without one, for a number of times.
// It returns how long each took until it existed again. While a change reaches the namespaces, it chooses namespaces that have it: in the
// others, docs/policy-population.md promises no repair.
func (l *large) repairQuotas(ctx context.Context, until chan error, pods string) (times []float64, err error) {
	for until == nil && len(times) < l.drifts || until != nil && len(until) == 0 {
		quotas := l.core.CoreV1().ResourceQuotas(l.names[rand.IntN(len(l.names))])
		stored, err := quotas.Get(ctx, largeQuota, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if limit := stored.Spec.Hard[corev1.ResourcePods]; limit.String() != pods {
			continue // the change has not reached this namespace
		}
		began := time.Now()
		if err := quotas.Delete(ctx, largeQuota, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, largeLimit, true, func(ctx context.Context) (bool, error) {
			_, err := quotas.Get(ctx, largeQuota, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		}); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began).Seconds())
	}
	return times, nil
}

// configure changes a configuration many times.
func (l *large) configure(ctx context.Context) (times []float64, err error) {
	for n := range l.changes {
		began := time.Now()
		if _, err := l.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Patch(ctx, "perf", types.JSONPatchType,
			fmt.Appendf(nil, `[{"op":"add","path":"/initializers/0/failurePolicy","value":"Ignore"},{"op":"add","path":"/initializers/0/timeoutSeconds","value":%d}]`, 1000+n), metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began).Seconds())
	}
	return times, nil
}

// rollOut changes the number of pods in the quota of the population, and waits until every namespace has it.
func (l *large) rollOut(ctx context.Context, former, pods string) error {
	populations := l.nsinit.NsinitV1alpha1().NamespacePopulations()
	population, err := populations.Get(ctx, largePopulation, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for i := range population.Spec.Manifests {
		template := &population.Spec.Manifests[i].Template
		template.Raw = bytes.Replace(template.Raw, fmt.Appendf(nil, `"pods":%q`, former), fmt.Appendf(nil, `"pods":%q`, pods), 1)
	}
	changed, err := populations.Update(ctx, population, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if changed.Generation == population.Generation {
		return fmt.Errorf("the population has no quota of %s pods", former)
	}
	return wait.PollUntilContextTimeout(ctx, time.Second, largeLimit, true, func(ctx context.Context) (bool, error) {
		stored, err := populations.Get(ctx, largePopulation, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		condition := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionRolledOut)
		return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == stored.Generation, nil
	})
}

// repairDuringRollout repairs objects while a change of the population reaches every namespace.
func (l *large) repairDuringRollout(ctx context.Context) ([]float64, error) {
	done := make(chan error, 1)
	go func() { done <- l.rollOut(ctx, "60", "70") }()
	times, err := l.repairQuotas(ctx, done, "70")
	if err != nil {
		return nil, err
	}
	return times, <-done
}

// list lists the namespaces that the administrator may get.
func (l *large) list(ctx context.Context) (times []float64, err error) {
	for range 10 {
		began := time.Now()
		list, err := l.nsinit.NsinitV1alpha1().AccessibleNamespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		if times = append(times, time.Since(began).Seconds()); len(list.Items) < len(l.names) {
			return nil, fmt.Errorf("the list has %d of %d namespaces", len(list.Items), len(l.names))
		}
	}
	return times, nil
}

// watchAll opens watches of NamespaceLifecycles at the same time, and returns how long each took until it had all of them.
func (l *large) watchAll(ctx context.Context) ([]float64, error) {
	const watches = 20
	var mu sync.Mutex
	var times []float64
	_, err := repeat(watches, watches, func(int) error {
		began, yes := time.Now(), true
		w, err := l.nsinit.NsinitV1alpha1().NamespaceLifecycles().Watch(ctx, metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		if err != nil {
			return err
		}
		defer w.Stop()
		for event := range w.ResultChan() {
			if event.Type == watch.Bookmark {
				mu.Lock()
				defer mu.Unlock()
				times = append(times, time.Since(began).Seconds())
				return nil
			}
		}
		return errors.New("the watch ended before its initial events")
	})
	return times, err
}

// plugin runs a command of the plugin. Its exit status says what it found, which does not count.
func (l *large) plugin(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(filepath.Dir(l.Process("nsinit-apiserver").Program), "kubectl-nsinit"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+l.AdminKubeconfig())
	output, err := command.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		err = nil
	}
	fmt.Fprintf(os.Stderr, "%.2000s\n", output)
	return err
}

// restart kills every program, which its supervisor starts again, and policy-population, and waits until a new namespace is Ready.
func (l *large) restart(ctx context.Context) ([]float64, error) {
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "nsinit-etcd", "nsinit-apiserver", "nsinit-controller-manager"} {
		if err := l.Process(program).Signal(syscall.SIGKILL); err != nil {
			return nil, err
		}
	}
	l.stopHelper(repairs)
	if err := l.startHelper(ctx, repairs, l.Process(repairs).Program, l.Process(repairs).Args...); err != nil {
		return nil, err
	}
	var created string
	return nil, wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		namespaces := l.core.CoreV1().Namespaces()
		if created == "" {
			namespace, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restarted-"}}, metav1.CreateOptions{})
			if err == nil {
				created = namespace.Name
			}
			return false, nil
		}
		namespace, err := namespaces.Get(ctx, created, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == v1alpha1.ConditionReady && c.Status == corev1.ConditionTrue
		}), nil
	})
}

// remove deletes namespaces, and returns how long each took from the request until it was removed.
func (l *large) remove(ctx context.Context) ([]float64, error) {
	namespaces := l.core.CoreV1().Namespaces()
	list, err := namespaces.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, largeLimit)
	defer cancel()
	// kube-apiserver, which was restarted, can end a watch.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return namespaces.Watch(ctx, options)
		},
	})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	var mu sync.Mutex
	began, removed := map[string]time.Time{}, make(chan []float64, 1)
	go func() {
		var times []float64
		for event := range w.ResultChan() {
			if namespace, ok := event.Object.(*corev1.Namespace); ok && event.Type == watch.Deleted {
				mu.Lock()
				times = append(times, time.Since(began[namespace.Name]).Seconds())
				mu.Unlock()
			}
			if len(times) == l.deletions {
				break
			}
		}
		removed <- times
	}()
	if _, err := repeat(l.deletions, clients, func(i int) error {
		mu.Lock()
		began[l.names[i]] = time.Now()
		mu.Unlock()
		return namespaces.Delete(ctx, l.names[i], metav1.DeleteOptions{})
	}); err != nil {
		return nil, err
	}
	times := <-removed
	if len(times) < l.deletions {
		return nil, fmt.Errorf("the watch ended when %d of %d namespaces were removed", len(times), l.deletions)
	}
	return times, nil
}

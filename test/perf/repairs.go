/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const (
	// repaired is the name of the population, and of the ConfigMap that it has in each namespace.
	repaired = "repaired"
	// drifted is the value that a client writes into it.
	drifted = "drifted"
	// repairs is the program that repairs it.
	repairs = "policy-population"
)

// repairOptions are the sizes of the experiment.
type repairOptions struct {
	planes string
	// before is another build of the program to measure too, if it is not empty.
	before                    string
	namespaces, rounds, quiet int
}

// driftWatch is what a watch has shown of the ConfigMaps.
type driftWatch struct {
	mu sync.Mutex
	// values are by namespace, empty if there is none, and broken is how often it was drifted or deleted.
	values map[string]string
	broken map[string]int
	// target is what a change writes, and reached has the namespaces that had it.
	target  string
	reached map[string]bool
}

func (c *driftWatch) set(object any) {
	if configMap, ok := object.(*corev1.ConfigMap); ok {
		c.record(configMap.Namespace, configMap.Data["value"])
	}
}

func (c *driftWatch) deleted(object any) {
	if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
		c.record(key.Namespace, "")
	}
}

func (c *driftWatch) record(namespace, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values[namespace] = value; value == "" || value == drifted {
		c.broken[namespace]++
	}
	if value == c.target {
		c.reached[namespace] = true
	}
}

// wait waits for a condition.
func (c *driftWatch) wait(ctx context.Context, met func() bool) error {
	const limit, interval = 15 * time.Minute, time.Millisecond
	err := wait.PollUntilContextTimeout(ctx, interval, limit, true, func(context.Context) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return met(), nil
	})
	if err != nil {
		return fmt.Errorf("an object is not repaired, or a namespace not changed, after %s: %w", limit, err)
	}
	return nil
}

// repairTimes are those of a build, in seconds.
type repairTimes struct{ quiet, busy, changes []float64 }

// measureRepairs measures how long the repair of an object takes while a changed population reaches every namespace, and while
// nothing else happens.
func measureRepairs(ctx context.Context, o repairOptions) (err error) {
	p, err := startPlane(ctx, filepath.Join(o.planes, "repairs"), true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop(ctx)) }()
	builds := []string{p.Process(repairs).Program}
	if o.before != "" {
		builds = append(builds, o.before)
	}
	if err := p.registerRepairs(ctx); err != nil {
		return err
	}
	times := make([]repairTimes, len(builds))
	var c *driftWatch
	for round := range o.rounds {
		for i, program := range builds {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, o.rounds, program)
			if err := p.startHelper(ctx, repairs, program, p.Process(repairs).Args...); err != nil {
				return err
			}
			if c == nil {
				if c, err = p.fillRepaired(ctx, o.namespaces); err != nil {
					return err
				}
			}
			if err := p.sampleRepairs(ctx, c, fmt.Sprintf("%d-%d", round, i), o.quiet, &times[i]); err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
			p.stopHelper(repairs)
		}
	}
	fmt.Printf("| build | namespaces | a change reaches all, s | repairs, idle | p50, p99, max, ms | repairs, during a change | p50, p99, max, ms | ratios |\n%s|\n", strings.Repeat("| --- ", 8))
	for i, t := range times {
		slices.Sort(t.changes)
		quiet, busy := quantiles(t.quiet), quantiles(t.busy)
		fmt.Printf("| %s | %d | %.1f | %d | %.0f, %.0f, %.0f | %d | %.0f, %.0f, %.0f | %.1f, %.1f, %.1f |\n", builds[i], o.namespaces, median(t.changes),
			len(t.quiet), quiet[0], quiet[1], quiet[2], len(t.busy), busy[0], busy[1], busy[2], busy[0]/quiet[0], busy[1]/quiet[1], busy[2]/quiet[2])
	}
	return nil
}

// registerRepairs creates the population and its configuration, and grants the permissions that the program needs.
func (p *plane) registerRepairs(ctx context.Context) error {
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: repaired}, Rules: []rbacv1.PolicyRule{rule}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: repaired},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "nsinit-system", Name: repairs}}}
	population := &v1alpha1.NamespacePopulation{ObjectMeta: role.ObjectMeta, Spec: repairedSpec("first")}
	configuration := &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: role.ObjectMeta, Initializers: []v1alpha1.RegisteredInitializer{{Name: repairs + ".nsinit.dev"}}}
	nsinit, options := p.nsinit.NsinitV1alpha1(), metav1.CreateOptions{}
	_, roleErr := p.core.RbacV1().ClusterRoles().Create(ctx, role, options)
	_, bindingErr := p.core.RbacV1().ClusterRoleBindings().Create(ctx, binding, options)
	_, populationErr := nsinit.NamespacePopulations().Create(ctx, population, options)
	_, configurationErr := nsinit.NamespaceInitializerConfigurations().Create(ctx, configuration, options)
	return errors.Join(roleErr, bindingErr, populationErr, configurationErr)
}

func repairedSpec(value string) v1alpha1.NamespacePopulationSpec {
	return v1alpha1.NamespacePopulationSpec{Manifests: []v1alpha1.PopulationManifest{{Name: repaired, DriftPolicy: v1alpha1.DriftRepair, Template: runtime.RawExtension{
		Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"value":%q}}`, repaired, value)}}}}
}

// fillRepaired creates the namespaces, and watches their content.
func (p *plane) fillRepaired(ctx context.Context, namespaces int) (*driftWatch, error) {
	const atOnce = 100
	for done := 0; done < namespaces; done += atOnce {
		if _, _, err := p.burst(ctx, fmt.Sprintf("repaired-%d", done), min(atOnce, namespaces-done), clients, readySigns()); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%d of %d namespaces\n", min(done+atOnce, namespaces), namespaces)
	}
	c := &driftWatch{values: map[string]string{}, broken: map[string]int{}, reached: map[string]bool{}}
	informer := informers.NewSharedInformerFactoryWithOptions(p.core, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = "metadata.name=" + repaired
	})).Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.set, UpdateFunc: func(_, object any) { c.set(object) }, DeleteFunc: c.deleted,
	}); err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	return c, c.wait(ctx, func() bool { return len(c.values) == namespaces })
}

// sampleRepairs measures repairs while nothing else happens, and while a change that writes a value reaches every namespace.
func (p *plane) sampleRepairs(ctx context.Context, c *driftWatch, value string, quiet int, times *repairTimes) error {
	if _, err := p.idle(ctx, 5*time.Second); err != nil { // at its start, the program checks every namespace
		return err
	}
	for n := range quiet {
		if err := p.repair(ctx, c, n, &times.quiet); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.target, c.reached = value, map[string]bool{}
	c.mu.Unlock()
	populations := p.nsinit.NsinitV1alpha1().NamespacePopulations()
	population, err := populations.Get(ctx, repaired, metav1.GetOptions{})
	if err != nil {
		return err
	}
	population.Spec = repairedSpec(value)
	began, everywhere := time.Now(), make(chan error, 1)
	if _, err := populations.Update(ctx, population, metav1.UpdateOptions{}); err != nil {
		return err
	}
	go func() {
		err := c.wait(ctx, func() bool { return len(c.reached) == len(c.values) })
		times.changes = append(times.changes, time.Since(began).Seconds())
		everywhere <- err
	}()
	for n := 0; len(everywhere) == 0; n++ {
		if err := p.repair(ctx, c, n, &times.busy); err != nil {
			return err
		}
	}
	return <-everywhere
}

// repair deletes or changes the ConfigMap of a random namespace, and measures how long it takes until it is restored.
func (p *plane) repair(ctx context.Context, c *driftWatch, n int, times *[]float64) error {
	c.mu.Lock()
	namespaces := slices.Collect(maps.Keys(c.values))
	namespace := namespaces[rand.IntN(len(namespaces))]
	broken := c.broken[namespace]
	c.mu.Unlock()
	began, configMaps, err := time.Now(), p.core.CoreV1().ConfigMaps(namespace), error(nil)
	if n%2 == 0 {
		err = configMaps.Delete(ctx, repaired, metav1.DeleteOptions{})
	} else {
		_, err = configMaps.Patch(ctx, repaired, types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, drifted), metav1.PatchOptions{})
	}
	if err != nil {
		return err
	}
	err = c.wait(ctx, func() bool {
		return c.broken[namespace] > broken && c.values[namespace] != "" && c.values[namespace] != drifted
	})
	*times = append(*times, time.Since(began).Seconds())
	return err
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// sign is what shows that a namespace is usable: an object in it or, without a resource, its condition Ready. The version of the
// resource is v1, and its group follows a dot.
type sign struct{ resource, name string }

// plainSigns are the objects that kube-controller-manager creates in each namespace.
func plainSigns() []sign {
	return []sign{{"serviceaccounts", "default"}, {"configmaps", "kube-root-ca.crt"}}
}

func readySigns() []sign { return []sign{{}} }

// signs are those of a usable namespace on a control plane.
func (p *plane) signs() []sign {
	if p.serves {
		return readySigns()
	}
	return plainSigns()
}

// resources returns the client of the objects in which the sign appears.
func (s sign) resources(client dynamic.Interface) dynamic.NamespaceableResourceInterface {
	resource := s.resource
	if resource == "" {
		resource = "namespaces"
	}
	name, group, _ := strings.Cut(resource, ".")
	return client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: name})
}

// watch calls seen with the name of each namespace that the sign appears in, until the context ends.
func (s sign) watch(ctx context.Context, client dynamic.Interface, seen func(namespace string)) error {
	all, options := s.resources(client), metav1.ListOptions{}
	if s.resource != "" {
		options.FieldSelector = "metadata.name=" + s.name
	}
	list, err := all.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	options.ResourceVersion = list.GetResourceVersion()
	watcher, err := all.Watch(ctx, options)
	if err != nil {
		return err
	}
	go func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			switch {
			case !ok || event.Type == watch.Deleted:
			case s.resource != "":
				seen(object.GetNamespace())
			case isReady(object):
				seen(object.GetName())
			}
		}
	}()
	return nil
}

func isReady(namespace *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(namespace.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		fields, ok := condition.(map[string]any)
		return ok && fields["type"] == v1alpha1.ConditionReady && fields["status"] == "True"
	})
}

// createNamespace creates a namespace.
func (p *plane) createNamespace(ctx context.Context, name string) error {
	_, err := p.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// burst creates namespaces, and waits until every sign has appeared in all of them. It returns how long each took, from the
// beginning of the request to the last sign, sorted, and how long all took together, in seconds.
func (p *plane) burst(ctx context.Context, prefix string, count, clients int, signs []sign) (times []float64, all float64, err error) {
	return p.burstOf(ctx, prefix, count, clients, signs, p.createNamespace)
}

// burstOf does the same with namespaces that are created in another way.
func (p *plane) burstOf(ctx context.Context, prefix string, count, clients int, signs []sign, create func(ctx context.Context, name string) error) (times []float64, all float64, err error) {
	const limit = 5 * time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not all of %d namespaces were usable after %s", count, limit))
	defer cancel()
	var (
		mu      sync.Mutex
		created = map[string]time.Time{}
		missing = map[string]map[sign]bool{}
		done    = make(chan struct{})
	)
	for _, s := range signs {
		if err := s.watch(ctx, p.dynamic, func(namespace string) {
			mu.Lock()
			defer mu.Unlock()
			if !missing[namespace][s] {
				return
			}
			if delete(missing[namespace], s); len(missing[namespace]) == 0 {
				times = append(times, time.Since(created[namespace]).Seconds())
			}
			if len(times) == count {
				close(done)
			}
		}); err != nil {
			return nil, 0, err
		}
	}
	began := time.Now()
	if _, err := repeat(count, clients, func(i int) error {
		name := fmt.Sprintf("%s-%d", prefix, i)
		mu.Lock()
		missing[name] = map[sign]bool{}
		for _, s := range signs {
			missing[name][s] = true
		}
		created[name] = time.Now()
		mu.Unlock()
		return create(ctx, name)
	}); err != nil {
		return nil, 0, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(times)
	return times, time.Since(began).Seconds(), nil
}

// repeat sends requests with a number of clients, and returns how long they took, in seconds.
func repeat(count, clients int, request func(i int) error) (float64, error) {
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(clients)
	for i := range count {
		group.Go(func() error { return request(i) })
	}
	err := group.Wait()
	return time.Since(began).Seconds(), err
}

// measured returns what a load has cost: CPU time of all processes without what they use when idle, in milliseconds, and
// counts of requests and commits, each divided by count. The load ends when the control plane is idle again.
func (p *plane) measured(ctx context.Context, count int, load func() error) (map[string]float64, error) {
	const window = time.Second
	before, err := p.spending(ctx)
	if err != nil {
		return nil, err
	}
	idle, err := p.idle(ctx, window)
	if err != nil {
		return nil, err
	}
	cpuBefore, err := p.cpu()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := load(); err != nil {
		return nil, err
	}
	if _, err := p.idle(ctx, window); err != nil {
		return nil, err
	}
	cpu, err := p.cpu()
	if err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	after, err := p.spending(ctx)
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	for name := range cpu {
		cpu[name] -= cpuBefore[name] + idle[name]*took
		figures["CPU of "+name+", ms"] = 1000 * cpu[name] / float64(count)
	}
	figures["CPU, ms"] = 1000 * total(cpu) / float64(count)
	spent := after.since(before)
	figures["requests to kube-apiserver"] = spent.kube / float64(count)
	figures["requests to nsinit-apiserver"] = spent.nsinit / float64(count)
	figures["commits"] = spent.commits / float64(count)
	return figures, nil
}

// addTimes adds the median and the 99th percentile of times in seconds, and their number per second.
func addTimes(figures map[string]float64, times []float64, all float64) {
	q := quantiles(times)
	figures["p50, ms"], figures["p99, ms"], figures["last, ms"] = q[0], q[1], q[2]
	figures["per second"] = float64(len(times)) / all
}

// quantiles returns the median, the 99th percentile and the maximum of times in seconds, in milliseconds. It sorts the times.
func quantiles(times []float64) [3]float64 {
	slices.Sort(times)
	return [3]float64{1000 * median(times), 1000 * times[len(times)*99/100], 1000 * times[len(times)-1]}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	nsinitclient "github.com/nsinit/nsinit/pkg/generated/clientset/versioned/typed/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// The figures are those of the design of dynamic admission configuration.
const (
	// Interval is how often the configurations are listed.
	Interval = time.Second
	// listTimeout bounds one list, so that one that hangs leaves time for another
	// before the last one is too old. It is longer than a watch cache that is behind
	// delays a list (3 s), after which etcd answers, and names an object that it cannot
	// decode.
	listTimeout = 4 * time.Second
	// all is more than the number of configurations. A list with a limit is answered by etcd
	// while the watch cache cannot be filled; another one is told to come again.
	all = 1 << 30
	// firstRetry is how soon a list is tried again that never succeeded before.
	firstRetry = 100 * time.Millisecond
)

// Poller is a Source that lists the configurations once in every Interval. A change is in
// force for whatever asks one Interval and one list after it was acknowledged: whatever asks
// then gets a list that began after the change.
//
// Ages are differences of two readings of the monotonic clock, so a clock that is set does
// not make a list younger.
type Poller struct {
	list    func(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error)
	verify  func(ctx context.Context) error
	clock   clock.WithTicker
	metrics *Metrics

	mu sync.Mutex
	// items is the last list, and began when the request for it began.
	items []v1alpha1.NamespaceInitializerConfiguration
	began time.Time
	// err is why the last list failed, nil if it did not.
	err error
}

var _ Source = (*Poller)(nil)

// NewPoller returns a Poller that has no list before it runs. The function verify is called
// before and after each list, which counts only if the storage still is the right one.
func NewPoller(client nsinitclient.NamespaceInitializerConfigurationInterface, verify func(ctx context.Context) error, clock clock.WithTicker) *Poller {
	p := &Poller{verify: verify, clock: clock, err: errors.New("none was tried yet")}
	// An empty resourceVersion asks for the most recent state, and one page for all of
	// it at one revision.
	p.list = func(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
		list, err := client.List(ctx, metav1.ListOptions{Limit: all})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	p.metrics = newMetrics(p)
	return p
}

// Run lists until the context ends.
func (p *Poller) Run(ctx context.Context) {
	ticker := p.clock.NewTicker(Interval)
	defer ticker.Stop()
	for {
		p.poll(ctx)
		var retry <-chan time.Time
		if _, listed := p.Age(); !listed {
			retry = p.clock.After(firstRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-retry:
		case <-ticker.C():
		}
	}
}

// poll lists once.
func (p *Poller) poll(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	began := p.clock.Now()
	// A list from a storage that must not be trusted is refused, and would be tried again too late.
	err := p.verify(ctx)
	var items []v1alpha1.NamespaceInitializerConfiguration
	if err == nil {
		items, err = p.list(ctx)
	}
	if err == nil {
		err = p.verify(ctx)
	}
	p.metrics.observe(p.clock.Since(began), err)

	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.err == nil {
			logger.Error(err, "Cannot list the configurations; records are refused once the last list is too old", "age", p.clock.Since(p.began), "maxAge", timing.MaxListAge)
		}
		p.err = err
		return
	}
	if p.err != nil {
		logger.Info("Listed the configurations", "count", len(items))
	}
	p.items, p.began, p.err = items, began, nil
}

// Age returns how long ago the last successful list began, and whether there is one.
func (p *Poller) Age() (age time.Duration, listed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.age()
}

func (p *Poller) age() (time.Duration, bool) {
	if p.began.IsZero() {
		return 0, false
	}
	return p.clock.Since(p.began), true
}

// Configurations implements Source.
func (p *Poller) Configurations() ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age, listed := p.age()
	switch {
	case !listed:
		return nil, fmt.Errorf("the configurations were never listed: %w", p.err)
	case age > timing.MaxListAge && p.err != nil:
		return nil, fmt.Errorf("the configurations were last listed %s ago, and a list may be %s old: %w", age.Round(time.Millisecond), timing.MaxListAge, p.err)
	case age > timing.MaxListAge:
		return nil, fmt.Errorf("the configurations were last listed %s ago, and a list may be %s old: the next one is under way", age.Round(time.Millisecond), timing.MaxListAge)
	}
	return p.items, nil
}

// List implements Source.
func (p *Poller) List(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	return p.list(ctx)
}

// Ready returns why records cannot be created, or nil.
func (p *Poller) Ready() error {
	_, err := p.Configurations()
	return err
}

// Metrics returns the metrics of the lists.
func (p *Poller) Metrics() *Metrics { return p.metrics }

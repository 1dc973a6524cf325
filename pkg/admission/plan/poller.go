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

const (
	// Interval is how often the configurations are listed.
	Interval = time.Second
	// listTimeout bounds one list, so that there is time for another one before the last is too old.
	// A watch cache that is behind delays a list by 3 s. After that, etcd answers, and names an
	// object that it cannot decode.
	listTimeout = 4 * time.Second
	// all is more than the number of configurations. While the watch cache cannot be filled, etcd
	// answers a list with a limit. A list without a limit fails.
	all = 1 << 30
	// firstRetry is the delay between lists before the first success.
	firstRetry = 100 * time.Millisecond
)

// Poller is a Source that lists the configurations once in every Interval. A change applies one
// Interval and one list after it was acknowledged. From then on, Configurations returns a list that
// began after the change.
//
// Ages are measured with the monotonic clock, so that setting the clock does not change them.
type Poller struct {
	list    func(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error)
	verify  func(ctx context.Context) error
	clock   clock.WithTicker
	metrics *Metrics

	mu sync.Mutex
	// items is the last list, and began is when its request began.
	items []v1alpha1.NamespaceInitializerConfiguration
	began time.Time
	// err is why the last list failed, or nil.
	err error
}

var _ Source = (*Poller)(nil)

// NewPoller returns a Poller that is not running yet. It calls verify before and after each list, and
// uses the list only if the storage is the right one.
func NewPoller(client nsinitclient.NamespaceInitializerConfigurationInterface, verify func(ctx context.Context) error, clock clock.WithTicker) *Poller {
	p := &Poller{verify: verify, clock: clock, err: errors.New("the first list has not finished")}
	// An empty resourceVersion requests the latest state. One page has one revision.
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
	// A list from the wrong storage fails with a long delay.
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
			logger.Error(err, "Cannot list the configurations; NamespaceLifecycles cannot be created once the last list is too old", "age", p.clock.Since(p.began), "maxAge", timing.MaxListAge)
		}
		p.err = err
		return
	}
	if p.err != nil {
		logger.Info("Listed the configurations", "count", len(items))
	}
	p.items, p.began, p.err = items, began, nil
}

// Age returns the time since the last successful list began, and whether there is one.
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
		return nil, fmt.Errorf("the configurations were last listed %s ago, and a list may be %s old: the next list is running", age.Round(time.Millisecond), timing.MaxListAge)
	}
	return p.items, nil
}

// List implements Source.
func (p *Poller) List(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	return p.list(ctx)
}

// Ready returns why NamespaceLifecycles cannot be created, or nil.
func (p *Poller) Ready() error {
	_, err := p.Configurations()
	return err
}

// Metrics returns the metrics of the lists.
func (p *Poller) Metrics() *Metrics { return p.metrics }

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/faults/history"
)

// NamePrefix begins the names of every namespace and configuration that the traffic makes.
const NamePrefix = "f-"

// requestTimeout bounds each request: a server that hangs must not stop the traffic.
const requestTimeout = 10 * time.Second

// Options describe the traffic.
type Options struct {
	// Servers are administrators' configurations, one for each kube-apiserver. Clients choose
	// one for each request.
	Servers []*rest.Config
	// Initializers is how initializers reach kube-apiserver. Nil: as Servers[0].
	Initializers *rest.Config
	Recorder     *history.Recorder
	// Prefix begins the names of the namespaces. It begins with NamePrefix.
	Prefix string
	// Slots is the number of names, each of which has at most one namespace at a time.
	Slots int
	// Rate is the number of writes of tenants in a second.
	Rate float64
	Seed uint64
	// Recreate means that half of the slots use their name again. Otherwise each namespace has its own.
	Recreate bool
}

// Traffic is a running traffic.
type Traffic struct {
	options Options
	limiter *rate.Limiter

	tenants  sync.WaitGroup
	calm     context.CancelFunc
	services sync.WaitGroup
	stop     context.CancelFunc

	mu     sync.Mutex
	random *rand.Rand
}

// Start starts the traffic. Install was called before.
func Start(ctx context.Context, options Options) (*Traffic, error) {
	if len(options.Servers) == 0 {
		return nil, errors.New("the traffic needs a kube-apiserver")
	}
	if options.Initializers == nil {
		options.Initializers = options.Servers[0]
	}
	t := &Traffic{
		options: options,
		limiter: rate.NewLimiter(rate.Limit(options.Rate), max(1, int(options.Rate/4))),
		random:  rand.New(rand.NewPCG(options.Seed, 0)), //nolint:gosec // not a secret
	}
	services, stop := context.WithCancel(ctx)
	t.stop = stop
	crashing, calm := context.WithCancel(services)
	t.calm = calm
	for _, name := range Initializers() {
		t.services.Go(func() { t.runInitializer(services, crashing, name) })
	}
	for slot := range options.Slots {
		t.tenants.Go(func() { t.useSlot(crashing, slot) })
	}
	for i := range options.Servers {
		t.tenants.Go(func() { t.followNamespaces(crashing, i) })
	}
	t.services.Go(func() { t.freeze(services, crashing) })
	t.tenants.Go(func() { t.rollOut(crashing) })
	t.tenants.Go(func() { t.view(crashing) })
	t.tenants.Go(func() { t.flap(crashing) })
	t.tenants.Go(func() { t.readLifecycles(crashing) })
	t.tenants.Go(func() { t.meddle(crashing) })
	t.tenants.Go(func() { t.meddleWithWork(crashing) })
	return t, nil
}

// Quiet ends tenants, configuration changes and crashes, and waits for what is under way.
// Initializers go on, so that every namespace can converge.
func (t *Traffic) Quiet() {
	t.calm()
	t.tenants.Wait()
}

// Stop ends everything.
func (t *Traffic) Stop() {
	t.Quiet()
	t.stop()
	t.services.Wait()
}

// chance is true with a probability.
func (t *Traffic) chance(probability float64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.random.Float64() < probability
}

// pick returns a number below n.
func (t *Traffic) pick(n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.random.IntN(n)
}

// between returns a time between two.
func (t *Traffic) between(low, high time.Duration) time.Duration {
	return low + time.Duration(t.pick(int(high-low)))
}

// sleep waits for a time between two, and says whether the context is still alive.
func (t *Traffic) sleep(ctx context.Context, low, high time.Duration) bool {
	timer := time.NewTimer(t.between(low, high))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// user returns the configuration of a user of a server, whose requests are recorded.
func (t *Traffic) user(server *rest.Config, client, role, user string) *rest.Config {
	config := rest.CopyConfig(server)
	config.QPS, config.Timeout = -1, requestTimeout
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	return t.options.Recorder.Record(config, client, role)
}

// tenant returns a client of a tenant for each server. A refused write is not sent again by the
// client itself.
func (t *Traffic) tenant(name string) ([]kubernetes.Interface, error) {
	var clients []kubernetes.Interface
	for _, server := range t.options.Servers {
		config := t.user(server, name, history.RoleTenant, tenantUser)
		config.Wrap(withoutRetryAfter)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("cannot make a client of tenant %q: %w", name, err)
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// admin returns a client of an administrator.
func (t *Traffic) admin(name string) (versioned.Interface, error) {
	return versioned.NewForConfig(t.user(t.options.Servers[0], name, history.RoleAdmin, ""))
}

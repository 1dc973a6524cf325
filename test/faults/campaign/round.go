/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package campaign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/test/faults/check"
	"github.com/nsinit/nsinit/test/faults/fault"
	"github.com/nsinit/nsinit/test/faults/history"
	"github.com/nsinit/nsinit/test/faults/traffic"
)

// Bounds of a round.
const (
	// settleBound is I2's: how long namespaces may take to converge after the last fault.
	settleBound = 90 * time.Second
	// removeBound is how long they may take to be removed after that.
	removeBound = 90 * time.Second
	// warmUpBound is how long the first namespaces may take to open before the first fault.
	warmUpBound = 60 * time.Second
	// catchUpBound is how long the watches may take to deliver what is stored.
	catchUpBound = 30 * time.Second
	// healBound is how long a fault may take to heal.
	healBound = 2 * time.Minute
	// roundBound is how long a round may take in all.
	roundBound = 30 * time.Minute
	// sliceSlack is the slack of a slice, which runs beside compilers and other tests. Only the campaign judges how long nsinit takes.
	sliceSlack = 5 * time.Minute
)

// Round is one round of a fault.
type Round struct {
	Fault      *fault.Fault
	Injections int
	// Number determines the names of namespaces. Seed + Number is the seed.
	Number int
	Seed   uint64
	// Slots and Rate are the options of the traffic.
	Slots int
	Rate  float64
	// Recreate lets tenants use names again.
	Recreate bool
	// Slack is that of the Options.
	Slack time.Duration
}

// Outcome is the result of a round.
type Outcome struct {
	Injections int
	Namespaces int
	Recovery   time.Duration
	History    *history.History
	Violations []check.Violation
}

// running is a round that runs.
type running struct {
	*Round
	env      *fault.Env
	recorder *history.Recorder
	traffic  *traffic.Traffic
	clients  map[history.Store]*clientv3.Client
	watches  sync.WaitGroup
	// unfollow ends the watches of the stores.
	unfollow context.CancelFunc
	done     int
}

func (r *Round) seed() uint64 { return r.Seed + uint64(r.Number) } //nolint:gosec // a small number

// Run runs a round. An error means that it could not be judged.
func (r *Round) Run(ctx context.Context, topology fault.Topology) (*Outcome, error) {
	prefix := fmt.Sprintf("%s%04d", traffic.NamePrefix, r.Number)
	recorder := history.NewRecorder()
	env, err := fault.NewEnv(topology, recorder, prefix, r.seed())
	if err != nil {
		return nil, err
	}
	run := &running{Round: r, env: env, recorder: recorder, clients: map[history.Store]*clientv3.Client{}}
	if err := run.follow(ctx); err != nil {
		return nil, err
	}
	defer run.end()
	run.traffic, err = traffic.Start(ctx, traffic.Options{
		Servers: topology.Servers(), Initializers: topology.Initializers(), Recorder: recorder, Prefix: prefix,
		Slots: r.Slots, Rate: r.Rate, Seed: r.seed(), Recreate: r.Recreate,
	})
	if err != nil {
		return nil, err
	}
	defer run.traffic.Stop()
	if err := run.warmUp(ctx); err != nil {
		return nil, err
	}
	if err := run.inject(ctx); err != nil {
		return nil, err
	}
	return run.settle(ctx)
}

// follow watches both stores.
func (r *running) follow(ctx context.Context) error {
	ctx, r.unfollow = context.WithCancel(ctx)
	for _, store := range []history.Store{history.Kube, history.Nsinit} {
		client, err := r.env.Etcd(store)
		if err != nil {
			r.end()
			return err
		}
		r.clients[store] = client
		r.watches.Go(func() {
			_ = r.recorder.Follow(ctx, store, client) // CatchUp returns its error
		})
	}
	return nil
}

func (r *running) end() {
	r.unfollow()
	r.watches.Wait()
	for _, client := range r.clients {
		_ = client.Close()
	}
}

// warmUp waits until namespaces have opened.
func (r *running) warmUp(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, warmUpBound+r.Slack, true, func(context.Context) (bool, error) {
		return r.opened() >= min(2, r.Slots), nil
	})
	if err != nil {
		return fmt.Errorf("no namespace opened before the first fault: %w", err)
	}
	return nil
}

// opened counts the gates that opened so far.
func (r *running) opened() int {
	opened := 0
	for _, n := range check.NewView(r.recorder.History(), check.Options{NamePrefix: r.env.Prefix}).Incarnations() {
		opened += len(n.Openings)
	}
	return opened
}

// inject injects the fault the wanted number of times. A few injections may have no effect.
func (r *running) inject(ctx context.Context) error {
	var last error
	for attempt := 0; r.done < r.Injections && ctx.Err() == nil; attempt++ {
		if attempt >= 2*r.Injections+3 {
			return fmt.Errorf("only %d of %d injections succeeded: %w", r.done, r.Injections, last)
		}
		heal, err := r.Fault.Inject(ctx, r.env)
		mark := history.Mark{Name: history.MarkInject, Fault: r.Fault.Name}
		if err != nil {
			mark.Error = err.Error()
		}
		r.recorder.Mark(mark)
		if err == nil {
			pause(ctx, r.Fault.Hold)
		}
		if heal != nil {
			healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), healBound+r.Slack)
			healed := heal(healing)
			cancel()
			if healed != nil {
				return fmt.Errorf("the fault could not be healed: %w", errors.Join(healed, err))
			}
		}
		if err != nil {
			last = err
			pause(ctx, time.Second)
			continue
		}
		r.recorder.Mark(history.Mark{Name: history.MarkHeal, Fault: r.Fault.Name})
		r.done++
		pause(ctx, r.Fault.Rest)
	}
	return ctx.Err()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// settle waits until every namespace has converged, removes all of them, and judges the history.
func (r *running) settle(ctx context.Context) (*Outcome, error) {
	r.traffic.Quiet()
	r.recorder.Mark(history.Mark{Name: history.MarkQuiet})
	began := time.Now()
	settling, cancel := context.WithTimeout(ctx, settleBound+r.Slack)
	defer cancel()
	if err := r.served(settling); err != nil {
		return nil, err
	}
	r.recorder.Mark(history.Mark{Name: history.MarkServed})
	// The check reports a bound that has passed.
	_ = wait.PollUntilContextCancel(settling, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		left, err := traffic.Unsettled(ctx, r.env.Core, r.env.Nsinit, r.env.Prefix)
		return err == nil && len(left) == 0, nil
	})
	recovery := time.Since(began)
	if err := r.catchUp(ctx); err != nil {
		return nil, err
	}
	r.recorder.Mark(history.Mark{Name: history.MarkSettled})
	removing, cancel := context.WithTimeout(ctx, removeBound+r.Slack)
	_ = traffic.DeleteAll(removing, r.env.Core, r.env.Prefix)
	cancel()
	if err := r.catchUp(ctx); err != nil {
		return nil, err
	}
	r.recorder.Mark(history.Mark{Name: history.MarkRemoved})
	r.traffic.Stop()
	if err := errors.Join(ctx.Err(), r.catchUp(ctx)); err != nil {
		return nil, err
	}
	h := r.recorder.History()
	options := check.Options{NamePrefix: r.env.Prefix, ReasonDelay: reasonDelay + r.Slack}
	return &Outcome{
		Injections: r.done, Namespaces: len(check.NewView(h, options).Incarnations()), Recovery: recovery, History: h, Violations: check.All(h, options),
	}, nil
}

// served waits until every kube-apiserver serves watches of what nsinit follows, at most until the context ends. A kube-apiserver that
// lost its etcd several times waits longer before each connection, and informers receive nothing meanwhile.
func (r *running) served(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var factories []informers.SharedInformerFactory
	for _, server := range r.env.Servers() {
		client, err := kubernetes.NewForConfig(server)
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		factory.Core().V1().Namespaces().Informer()
		factory.Core().V1().ConfigMaps().Informer()
		factory.Core().V1().Pods().Informer()
		factory.Batch().V1().Jobs().Informer()
		factory.Start(ctx.Done())
		factories = append(factories, factory)
	}
	for _, factory := range factories {
		factory.WaitForCacheSync(ctx.Done())
	}
	return nil
}

// reasonDelay is how long a closed namespace may be without a condition, from the time at which kube-apiserver serves watches again.
const reasonDelay = 15 * time.Second

// catchUp waits until the history contains the last revisions of both stores.
func (r *running) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpBound+r.Slack)
	defer cancel()
	for store, client := range r.clients {
		if _, err := r.recorder.CatchUp(ctx, store, client); err != nil {
			return err
		}
	}
	return nil
}

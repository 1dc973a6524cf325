/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package leader lets one of several instances of a program act at a time. They agree by a
// Lease, which is given back only after the one that held it has stopped acting.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// HealthGrace is how long a leader that lost its lease may still look healthy.
const HealthGrace = 20 * time.Second

// ErrLeaseLost ends the process, which starts again as a follower.
var ErrLeaseLost = errors.New("lost the lease: another instance may lead now")

// Election says how instances agree on which of them acts.
type Election struct {
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// LeaseDuration is how long an instance that does not answer is still taken for the
	// leader, RenewDeadline how long the leader tries to renew its lease before it gives up,
	// and RetryPeriod how long an instance waits between two tries. Each is longer than the
	// next.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// NewElection returns an election with the durations that Kubernetes' own components have.
func NewElection(namespace, name string) Election {
	return Election{Namespace: namespace, Name: name, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
}

// Validate returns what is wrong with an election.
func (e Election) Validate() error {
	switch {
	case e.Namespace == "" || e.Name == "":
		return fmt.Errorf("the Lease is %q in namespace %q: give both names", e.Name, e.Namespace)
	case e.RetryPeriod <= 0 || e.RenewDeadline <= e.RetryPeriod || e.LeaseDuration <= e.RenewDeadline:
		return fmt.Errorf("the lease lasts %s, is renewed within %s and tried for each %s: each has to be longer than the next", e.LeaseDuration, e.RenewDeadline, e.RetryPeriod)
	}
	return nil
}

// Lead runs a function while this instance holds the lease, and until the context ends.
// Losing the lease is an error. The lease is given back only after the function has
// returned, so that no other instance leads while this one still acts.
func (e Election) Lead(ctx context.Context, core kubernetes.Interface, watchdog *leaderelection.HealthzAdaptor, run func(context.Context) error) error {
	ended := make(chan error, 1)
	elector, err := e.elector(ctx, core, func(leading context.Context) {
		running, cancel := context.WithCancel(leading)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		err := run(running)
		if leading.Err() != nil && ctx.Err() == nil {
			err = ErrLeaseLost // the cause of whatever else was reported
		}
		ended <- err
	})
	if err != nil {
		return err
	}
	watchdog.SetLeaderElection(elector)

	// The election outlives the context.
	electing, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	defer giveBack()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		elector.Run(electing)
	}()
	select {
	case <-finished:
		return ErrLeaseLost
	case err = <-ended:
	case <-ctx.Done():
		if elector.IsLeader() {
			select {
			case err = <-ended:
			case <-finished:
				return nil // lost it while stopping
			}
		}
	}
	giveBack()
	<-finished
	return err
}

// elector returns what takes part in the election, and calls lead if this instance wins.
func (e Election) elector(ctx context.Context, core kubernetes.Interface, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot tell the name of this host: %w", err)
	}
	identity := host + "_" + uuid.NewString()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, e.Namespace, e.Name,
		core.CoreV1(), core.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("cannot make the lease: %w", err)
	}
	logger := klog.FromContext(ctx)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		Name:            e.Name,
		LeaseDuration:   e.LeaseDuration,
		RenewDeadline:   e.RenewDeadline,
		RetryPeriod:     e.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				logger.Info("This instance leads", "identity", identity)
				lead(ctx)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				if leader != identity {
					logger.Info("Another instance leads", "leader", leader)
				}
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot set up leader election: %w", err)
	}
	return elector, nil
}

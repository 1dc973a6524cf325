/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

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

// leaseGrace is how long a leader that lost its lease may still look healthy.
const leaseGrace = 20 * time.Second

// errLeaseLost ends the process, which starts again as a follower.
var errLeaseLost = errors.New("lost the lease: another instance may lead now")

// lead runs a function while this instance holds the lease, and until the context ends.
// Losing the lease is an error. The lease is given back only after the function has
// returned, so that no other instance leads while this one still acts.
func (o *Options) lead(ctx context.Context, core kubernetes.Interface, watchdog *leaderelection.HealthzAdaptor, run func(context.Context) error) error {
	if !o.LeaderElection.Enabled {
		return run(ctx)
	}
	ended := make(chan error, 1)
	elector, err := o.elector(ctx, core, func(leading context.Context) {
		running, cancel := context.WithCancel(leading)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		err := run(running)
		if leading.Err() != nil && ctx.Err() == nil {
			err = errLeaseLost // the cause of whatever else was reported
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
		return errLeaseLost
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
func (o *Options) elector(ctx context.Context, core kubernetes.Interface, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot tell the name of this host: %w", err)
	}
	identity := host + "_" + uuid.NewString()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, o.LeaderElection.ResourceNamespace, name,
		core.CoreV1(), core.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("cannot make the lease: %w", err)
	}
	logger := klog.FromContext(ctx)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		Name:            name,
		LeaseDuration:   o.LeaderElection.LeaseDuration,
		RenewDeadline:   o.LeaderElection.RenewDeadline,
		RetryPeriod:     o.LeaderElection.RetryPeriod,
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

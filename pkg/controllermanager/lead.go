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

// lead runs a function while this instance holds the lease. Losing the lease is an error:
// the process ends, and starts again as a follower.
func (o *Options) lead(ctx context.Context, core kubernetes.Interface, watchdog *leaderelection.HealthzAdaptor, run func(context.Context) error) error {
	if !o.LeaderElection.Enabled {
		return run(ctx)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("cannot tell the name of this host: %w", err)
	}
	identity := host + "_" + uuid.NewString()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, o.LeaderElection.ResourceNamespace, name,
		core.CoreV1(), core.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return fmt.Errorf("cannot make the lease: %w", err)
	}
	logger := klog.FromContext(ctx)
	ended := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		Name:            name,
		LeaseDuration:   o.LeaderElection.LeaseDuration,
		RenewDeadline:   o.LeaderElection.RenewDeadline,
		RetryPeriod:     o.LeaderElection.RetryPeriod,
		ReleaseOnCancel: true,
		WatchDog:        watchdog,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				logger.Info("This instance leads", "identity", identity)
				ended <- run(ctx)
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
		return fmt.Errorf("cannot set up leader election: %w", err)
	}
	electionCtx, stop := context.WithCancel(ctx)
	defer stop()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		elector.Run(electionCtx)
	}()
	select {
	case err := <-ended:
		// The controllers have stopped before the lease is given back.
		stop()
		<-finished
		if err == nil && ctx.Err() == nil {
			err = errors.New("lost the lease: another instance may lead now")
		}
		return err
	case <-finished:
		if ctx.Err() == nil {
			return errors.New("lost the lease: another instance may lead now")
		}
		return nil
	}
}

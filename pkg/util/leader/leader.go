/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package leader elects one of several instances of a program as leader. The leader releases its
// Lease only after it has stopped acting.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/component-base/config/validation"
	"k8s.io/klog/v2"
)

// HealthGrace is how long a leader stays healthy after it lost its Lease.
const HealthGrace = 20 * time.Second

// ErrLeaseLost ends the process. It restarts as a follower.
var ErrLeaseLost = errors.New("lost the lease: another instance may lead now")

// Election is the configuration of an election.
type Election config.LeaderElectionConfiguration

// NewElection returns an election with the durations of Kubernetes' own components.
func NewElection(namespace, name string) Election {
	return Election{
		LeaderElect: true, ResourceLock: resourcelock.LeasesResourceLock, ResourceNamespace: namespace, ResourceName: name,
		LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
	}
}

// Validate returns what is wrong with an election.
func (e Election) Validate() error {
	e.LeaderElect = true
	return validation.ValidateLeaderElectionConfiguration((*config.LeaderElectionConfiguration)(&e), nil).ToAggregate()
}

// Lead calls run when this instance becomes the leader, and returns its error. It returns
// ErrLeaseLost when the Lease is lost, and nil when the context ends before this instance leads.
// It releases the Lease after run has returned, so that no other instance leads while this one acts.
func (e Election) Lead(ctx context.Context, core kubernetes.Interface, watchdog *leaderelection.HealthzAdaptor, run func(context.Context) error) error {
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	result := make(chan error, 1)
	elector, err := e.elector(ctx, core, func(leading context.Context) {
		defer release()
		running, cancel := context.WithCancel(leading)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		err := run(running)
		if leading.Err() != nil && ctx.Err() == nil {
			err = ErrLeaseLost
		}
		result <- err
	})
	if err != nil {
		return err
	}
	watchdog.SetLeaderElection(elector)
	defer context.AfterFunc(ctx, func() {
		if !elector.IsLeader() {
			release()
		}
	})()
	elector.Run(electing)
	select {
	case err = <-result:
		return err
	default: // run has not returned
	}
	if ctx.Err() == nil {
		return ErrLeaseLost
	}
	return nil
}

// elector returns what takes part in the election, and calls lead when this instance wins.
func (e Election) elector(ctx context.Context, core kubernetes.Interface, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot read the name of this host: %w", err)
	}
	identity := host + "_" + uuid.NewString()
	lock, err := resourcelock.New(e.ResourceLock, e.ResourceNamespace, e.ResourceName,
		core.CoreV1(), core.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("cannot set up leader election: %w", err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		Name:            e.ResourceName,
		LeaseDuration:   e.LeaseDuration.Duration,
		RenewDeadline:   e.RenewDeadline.Duration,
		RetryPeriod:     e.RetryPeriod.Duration,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				klog.FromContext(ctx).Info("New leader", "leader", leader, "self", leader == identity)
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot set up leader election: %w", err)
	}
	return elector, nil
}

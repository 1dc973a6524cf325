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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// HealthGrace is how long a leader stays healthy after it lost its Lease.
const HealthGrace = 20 * time.Second

// ErrLeaseLost ends the process. It restarts as a follower.
var ErrLeaseLost = errors.New("lost the lease: another instance may lead now")

// Election is the configuration of an election.
type Election struct {
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// LeaseDuration is how long other instances wait for a leader that does not renew its Lease. A leader that cannot renew it for
	// RenewDeadline stops. RetryPeriod is the time between two attempts.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// NewElection returns an election with the durations of Kubernetes' own components.
func NewElection(namespace, name string) Election {
	return Election{Namespace: namespace, Name: name, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
}

// Validate returns what is wrong with an election.
func (e Election) Validate() error {
	var errs []error
	if e.Namespace == "" || e.Name == "" {
		errs = append(errs, fmt.Errorf("Namespace is %q and Name %q: give those of a Lease", e.Namespace, e.Name)) //nolint:staticcheck // the fields' names
	}
	if e.RetryPeriod <= 0 || float64(e.RenewDeadline) <= leaderelection.JitterFactor*float64(e.RetryPeriod) || e.LeaseDuration <= e.RenewDeadline {
		errs = append(errs, fmt.Errorf("LeaseDuration %s must be longer than RenewDeadline %s, which must be longer than %v times RetryPeriod %s, which must be positive",
			e.LeaseDuration, e.RenewDeadline, leaderelection.JitterFactor, e.RetryPeriod))
	}
	return errors.Join(errs...)
}

// Lead calls run when this instance becomes the leader, and returns its error. It returns
// ErrLeaseLost when the Lease is lost, and nil when the context ends before this instance leads.
// It releases the Lease after run has returned, so that no other instance leads while this one acts.
func (e Election) Lead(ctx context.Context, core kubernetes.Interface, watchdog *leaderelection.HealthzAdaptor, run func(context.Context) error) error {
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	result := make(chan error, 1)
	lock, err := e.lock(core)
	if err != nil {
		return err
	}
	elector, err := e.elector(ctx, lock, func(leading context.Context) {
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
		if !errors.Is(err, ErrLeaseLost) {
			giveBack(lock, e.RenewDeadline)
		}
		return err
	default: // run has not returned
	}
	if ctx.Err() == nil {
		return ErrLeaseLost
	}
	return nil
}

// giveBack clears a Lease that this instance still holds, so that the next one need not wait until it expires. The elector would do so
// before it ends the context of a leader that cannot renew its Lease, and may clear that of the next one.
func giveBack(lock resourcelock.Interface, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_ = retry.OnError(retry.DefaultRetry, apierrors.IsConflict, func() error { // the last renewal may still be in progress
		held, _, err := lock.Get(ctx)
		if err != nil || held.HolderIdentity != lock.Identity() {
			return err
		}
		now := metav1.Now()
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{LeaderTransitions: held.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now})
	})
}

// lock returns the Lease, for an instance with a new identity.
func (e Election) lock(core kubernetes.Interface) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot read the name of this host: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, e.Namespace, e.Name,
		core.CoreV1(), core.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()})
	if err != nil {
		return nil, fmt.Errorf("cannot set up leader election: %w", err)
	}
	return lock, nil
}

// elector returns what takes part in the election, and calls lead when this instance wins.
func (e Election) elector(ctx context.Context, lock resourcelock.Interface, lead func(context.Context)) (*leaderelection.LeaderElector, error) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		Name:          e.Name,
		LeaseDuration: e.LeaseDuration,
		RenewDeadline: e.RenewDeadline,
		RetryPeriod:   e.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				klog.FromContext(ctx).Info("New leader", "leader", leader, "self", leader == lock.Identity())
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot set up leader election: %w", err)
	}
	return elector, nil
}

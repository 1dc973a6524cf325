/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package controllerruntime runs initializers in a manager of controller-runtime. It is a separate module, so that the
// SDK does not depend on controller-runtime.
package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
)

// Add adds an initializer to a manager. Core and Nsinit default to clients with the manager's configuration. The
// initializer acts while the manager leads: set LeaderElection of the manager instead of Election. The readiness of the
// manager includes that of the initializer, and the manager serves the metrics of the initializer.
func Add(mgr manager.Manager, options initializer.Options) error {
	if options.Election != nil {
		return errors.New("Election excludes a manager: set LeaderElection of the manager's options") //nolint:staticcheck // the field's name
	}
	var err error
	if options.Core == nil {
		if options.Core, err = kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
			return fmt.Errorf("cannot create a client of the cluster: %w", err)
		}
	}
	if options.Nsinit == nil {
		if options.Nsinit, err = versioned.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
			return fmt.Errorf("cannot create a client of nsinit: %w", err)
		}
	}
	if options.Metrics == nil {
		options.Metrics = metrics.Registry
	}
	runner, err := initializer.New(options)
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck(options.Name, func(*http.Request) error {
		select {
		case <-mgr.Elected():
			if !runner.HasSynced() {
				return errors.New("the initializer is not registered yet, or the NamespaceLifecycles have not been listed")
			}
		default: // another replica acts
		}
		return nil
	}); err != nil {
		return err
	}
	return mgr.Add(leading{runner})
}

// leading runs while the manager leads.
type leading struct{ runner *initializer.Runner }

var _ interface {
	manager.Runnable
	manager.LeaderElectionRunnable
} = leading{}

// Start implements manager.Runnable.
func (l leading) Start(ctx context.Context) error { return l.runner.Run(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (leading) NeedLeaderElection() bool { return true }

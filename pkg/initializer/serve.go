/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
)

// Handler serves /healthz and /livez (the process and its lease are healthy), /readyz (also, HasSynced or another replica
// acts), and /metrics. It authenticates no client: bind it where only probes and monitoring reach it.
func (r *Runner) Handler() http.Handler {
	paths := http.NewServeMux()
	synced := healthz.NamedCheck("lifecycles", func(*http.Request) error {
		if !r.waiting.Load() && !r.HasSynced() {
			return errors.New("the initializer is not registered yet, or the NamespaceLifecycles have not been listed")
		}
		return nil
	})
	healthz.InstallHandler(paths, healthz.PingHealthz, r.watchdog)
	healthz.InstallLivezHandler(paths, healthz.PingHealthz, r.watchdog)
	healthz.InstallReadyzHandler(paths, healthz.PingHealthz, r.watchdog, synced)
	paths.Handle("/metrics", r.MetricsHandler())
	return paths
}

// MetricsHandler serves only the metrics.
func (r *Runner) MetricsHandler() http.Handler {
	return metrics.HandlerFor(r.registry, metrics.HandlerOpts{})
}

// Serve serves the Handler over HTTP at an address such as :8081 until the context ends. It
// returns once it listens.
func (r *Runner) Serve(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	server := &http.Server{Handler: r.Handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Cannot answer probes")
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
}

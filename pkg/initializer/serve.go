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

// Handler answers /healthz and /livez (this process is well, and so is its lease), /readyz
// (it also sees the namespaces whose turn it is, or another replica does), and /metrics.
// Nobody is authenticated: bind it where only probes and monitoring reach it.
func (r *Runner) Handler() http.Handler {
	paths := http.NewServeMux()
	synced := healthz.NamedCheck("records", func(*http.Request) error {
		if !r.following() && !r.HasSynced() {
			return errors.New("the records were not read yet")
		}
		return nil
	})
	healthz.InstallHandler(paths, healthz.PingHealthz, r.watchdog)
	healthz.InstallLivezHandler(paths, healthz.PingHealthz, r.watchdog)
	healthz.InstallReadyzHandler(paths, healthz.PingHealthz, r.watchdog, synced)
	paths.Handle("/metrics", r.MetricsHandler())
	return paths
}

// MetricsHandler answers with the metrics alone.
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

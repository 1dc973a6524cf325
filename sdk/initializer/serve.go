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

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// Handler serves /healthz and /livez (the process and its lease are healthy), /readyz (also, HasSynced or another replica
// acts), and, without Options.Metrics, /metrics. It authenticates no client: bind it where only probes and monitoring reach it.
func (r *Runner) Handler() http.Handler {
	paths := http.NewServeMux()
	alive := func() error { return r.watchdog.Check(nil) }
	for path, check := range map[string]func() error{"/healthz": alive, "/livez": alive, "/readyz": func() error { return errors.Join(alive(), r.ready()) }} {
		paths.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = fmt.Fprint(w, "ok")
		})
	}
	if r.registry != nil {
		paths.Handle("/metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	}
	return paths
}

func (r *Runner) ready() error {
	if !r.waiting.Load() && !r.HasSynced() {
		return errors.New("the initializer is not registered yet, or the NamespaceLifecycles have not been listed")
	}
	return nil
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

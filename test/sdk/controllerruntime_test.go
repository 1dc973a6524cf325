/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package sdk

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/sdk/initializer/controllerruntime"
	"github.com/nsinit/nsinit/sdk/util/leader"
)

const name = "a.example.com"

// TestManager: an initializer acts in a manager, and stops with it.
func TestManager(t *testing.T) {
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", name))
	mgr, err := ctrl.NewManager(server.Config("admin"), ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
	if err != nil {
		t.Fatal(err)
	}
	calls := make(chan string, 10)
	if err := controllerruntime.Add(mgr, initializer.Options{
		Name: name, Core: server.Core.Client(t), Events: record.NewFakeRecorder(100),
		Initialize: func(ctx context.Context, namespace *corev1.Namespace) error {
			calls <- initializer.IdempotencyKey(ctx)
			return nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	server.MustLifecycle(t, "ns")
	lifecycles := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, testserver.Patience, true, func(ctx context.Context) (bool, error) {
		lifecycle, err := lifecycles.Get(ctx, "ns", metav1.GetOptions{})
		return err == nil && lifecycle.Status.Phase == v1alpha1.LifecycleActive, err
	}); err != nil {
		t.Errorf("the namespace was not initialized: %v", err)
	}
	if got, want := <-calls, fmt.Sprintf("uid-of-ns/%s/initialize", name); got != want || len(calls) > 0 {
		t.Errorf("called with %q, and %d more, want %q", got, len(calls), want)
	}
	if served, err := metrics.Registry.Gather(); err != nil || !strings.Contains(fmt.Sprint(served), "nsinit_initializer_calls_total") {
		t.Errorf("the manager does not serve the metrics of the initializer: %v", err)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	case <-time.After(testserver.Patience):
		t.Error("the manager did not end")
	}
}

// TestMistakes: Add returns an error for options that are not valid.
func TestMistakes(t *testing.T) {
	server := testserver.Start(t)
	mgr, err := ctrl.NewManager(server.Config("admin"), ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	for want, options := range map[string]initializer.Options{
		"set LeaderElection of the manager's options": {Name: name, Election: &leader.Election{}},
		"Initialize is missing":                       {Name: name},
	} {
		if err := controllerruntime.Add(mgr, options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package sdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/initializer"
)

// TestRetryAfter: after an error that names a delay, the retry is not earlier; Retry retries immediately.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", "a.example.com"))
	var calls atomic.Int32
	var fixed atomic.Bool
	runner, _ := startWith(t, server, initializer.Options{Name: "a.example.com", Initialize: func(_ context.Context, namespace *corev1.Namespace) error {
		if namespace.Name != "late" || fixed.Load() {
			return nil
		}
		calls.Add(1)
		return initializer.RetryAfter(errors.New("retry in an hour"), time.Hour)
	}})
	server.MustLifecycle(t, "late")
	until(t, server, "late", "it says so", func(r *v1alpha1.NamespaceLifecycle) bool {
		return len(r.Status.Initializers) == 1 && r.Status.Initializers[0].Message == "retry in an hour"
	})
	for i := range 10 { // in the time of which it would have been tried again
		name := fmt.Sprintf("other-%d", i)
		server.MustLifecycle(t, name)
		until(t, server, name, "another one is done", isActive)
	}
	if calls.Load() != 1 {
		t.Errorf("it was called %d times", calls.Load())
	}
	fixed.Store(true)
	runner.Retry()
	until(t, server, "late", "it is done", isActive)
	if initializer.RetryAfter(nil, time.Hour) != nil {
		t.Error("no error has become one")
	}
}

// TestAlongside: what runs alongside ends with the Runner, and its error ends the Runner.
func TestAlongside(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	began, ended := make(chan struct{}), make(chan struct{})
	_, stop := startWith(t, server, initializer.Options{Name: "a.example.com", Initialize: nothing, Alongside: func(ctx context.Context, _ *initializer.Runner) error {
		close(began)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}})
	<-began
	stop()
	select {
	case <-ended:
	default:
		t.Error("the Runner has ended before what runs alongside")
	}

	runner, err := initializer.New(initializer.Options{Name: "b.example.com", Initialize: nothing, Core: server.Core.Client(t), Nsinit: server.Client(t, "admin"), Events: record.NewFakeRecorder(10),
		Alongside: func(context.Context, *initializer.Runner) error { return errors.New("the keys are lost") }})
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the keys are lost") {
		t.Errorf("the Runner ended with %v", err)
	}
}

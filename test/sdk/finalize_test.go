/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/initializer"
)

const participant = "a.example.com"

// participating returns a server on which the participant is registered.
func participating(t *testing.T) *testserver.Server {
	t.Helper()
	server := testserver.Start(t)
	configuration := testserver.Configuration("one", participant)
	configuration.Initializers[0].Finalizer = true
	server.MustConfigure(t, configuration)
	return server
}

// secured does what nsinit's controller does first for a namespace with participants.
func secured(t *testing.T, server *testserver.Server, name string) {
	t.Helper()
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	stored, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Spec.Initializers.Pending = stored.Spec.Initializers.Pending[1:]
	if _, err := client.Initialize(t.Context(), name, stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, server *testserver.Server, name string) {
	t.Helper()
	if err := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func released(r *v1alpha1.NamespaceLifecycle) bool {
	return !slices.Contains(r.Spec.Finalizers, participant)
}

// TestFinalize: the participant cleans up when the namespace is deleted, and removes only its own finalizer.
func TestFinalize(t *testing.T) {
	t.Parallel()
	server := participating(t)
	calls := make(chan string, 10)
	startWith(t, server, initializer.Options{
		Name: participant,
		Initialize: func(ctx context.Context, namespace *corev1.Namespace) error {
			calls <- initializer.IdempotencyKey(ctx)
			return nil
		},
		Finalize: func(ctx context.Context, namespace *corev1.Namespace) error {
			calls <- fmt.Sprint(namespace.Name, " ", initializer.IdempotencyKey(ctx), " ", initializer.NeverInitialized(ctx))
			return nil
		},
	})
	server.MustLifecycle(t, "ns")
	secured(t, server, "ns")
	until(t, server, "ns", "it is initialized", isActive)
	remove(t, server, "ns")
	stored := until(t, server, "ns", "it is released", released)
	if fmt.Sprint(stored.Spec.Finalizers) != "[kubernetes]" {
		t.Errorf("finalizers are %v", stored.Spec.Finalizers)
	}
	uid := string(stored.Spec.NamespaceUID)
	if got, want := <-calls+", "+<-calls, uid+"/a.example.com/initialize, ns "+uid+"/a.example.com/finalize false"; got != want || len(calls) > 0 {
		t.Errorf("called: %s, and %d more, want %s", got, len(calls), want)
	}
}

// TestFinalizeWaitsForInitialize: a deletion ends the call of Initialize, and Finalize is not
// called before that has returned.
func TestFinalizeWaitsForInitialize(t *testing.T) {
	t.Parallel()
	server := participating(t)
	called, ended := make(chan struct{}, 10), make(chan struct{})
	var running atomic.Bool
	startWith(t, server, initializer.Options{
		Name: participant,
		Initialize: func(ctx context.Context, _ *corev1.Namespace) error {
			running.Store(true)
			defer running.Store(false)
			called <- struct{}{}
			<-ctx.Done()
			<-ended
			return ctx.Err()
		},
		Finalize: func(ctx context.Context, _ *corev1.Namespace) error {
			if running.Load() {
				t.Error("Initialize has not returned yet")
			}
			if ctx.Err() != nil {
				t.Error("the turn to finalize is over before it began")
			}
			return nil
		},
	})
	server.MustLifecycle(t, "ns")
	secured(t, server, "ns")
	<-called
	remove(t, server, "ns")
	time.AfterFunc(200*time.Millisecond, func() { close(ended) })
	until(t, server, "ns", "it is released", released)
}

// TestNeverInitialized: a namespace is deleted before the participant had its turn, and is gone
// by force before it could act.
func TestNeverInitialized(t *testing.T) {
	t.Parallel()
	server := participating(t)
	server.MustLifecycle(t, "ns")
	remove(t, server, "ns")
	server.Core.DeleteNamespace("ns")
	calls := make(chan string, 10)
	startWith(t, server, initializer.Options{
		Name:       participant,
		Initialize: func(context.Context, *corev1.Namespace) error { return nil },
		Finalize: func(ctx context.Context, namespace *corev1.Namespace) error {
			calls <- fmt.Sprint(namespace.Name, " ", namespace.UID, " ", namespace.DeletionTimestamp != nil, " ", initializer.NeverInitialized(ctx))
			return nil
		},
	})
	stored := until(t, server, "ns", "it is released", released)
	if got, want := <-calls, fmt.Sprintf("ns %s true true", stored.Spec.NamespaceUID); got != want || len(calls) > 0 {
		t.Errorf("called with %s, and %d more, want %s", got, len(calls), want)
	}
}

// TestFinalizeError: an error is reported in the lifecycle and in an event, and retried, even if it is permanent.
func TestFinalizeError(t *testing.T) {
	t.Parallel()
	server := participating(t)
	var fixed atomic.Bool
	events := record.NewFakeRecorder(1000)
	startWith(t, server, initializer.Options{
		Name: participant, Events: events,
		Initialize: func(context.Context, *corev1.Namespace) error { return nil },
		Finalize: func(context.Context, *corev1.Namespace) error {
			if fixed.Load() {
				return nil
			}
			return initializer.Fail(errors.New("the log store does not answer"))
		},
	})
	server.MustLifecycle(t, "ns")
	secured(t, server, "ns")
	until(t, server, "ns", "it is initialized", isActive)
	remove(t, server, "ns")
	until(t, server, "ns", "the error is reported", func(r *v1alpha1.NamespaceLifecycle) bool {
		return slices.ContainsFunc(r.Status.Initializers, func(s v1alpha1.InitializerStatus) bool {
			return s.Name == participant && s.Message == "the log store does not answer"
		})
	})
	if event := <-events.Events; event != `Warning FinalizerError Initializer "a.example.com": the log store does not answer` {
		t.Errorf("the event says %q", event)
	}
	fixed.Store(true)
	until(t, server, "ns", "the retry succeeds", released)
}

// TestNoPart: an initializer without Finalize leaves deletions alone.
func TestNoPart(t *testing.T) {
	t.Parallel()
	server := participating(t)
	start(t, server, participant, func(context.Context, *corev1.Namespace) error { return nil })
	server.MustLifecycle(t, "ns")
	secured(t, server, "ns")
	until(t, server, "ns", "it is initialized", isActive)
	remove(t, server, "ns")
	server.MustLifecycle(t, "other")
	secured(t, server, "other")
	if stored := until(t, server, "other", "another one is initialized", isActive); stored == nil {
		t.Fatal("there is none")
	}
	if stored := until(t, server, "ns", "it exists", func(*v1alpha1.NamespaceLifecycle) bool { return true }); released(stored) {
		t.Errorf("it was released: %v", stored.Spec.Finalizers)
	}
}

// TestErrorIsAnEvent: an error is reported in an event of the namespace.
func TestErrorIsAnEvent(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", participant))
	events := record.NewFakeRecorder(1000)
	startWith(t, server, initializer.Options{Name: participant, Events: events, Initialize: func(context.Context, *corev1.Namespace) error {
		return errors.New("no quota")
	}})
	server.MustLifecycle(t, "ns")
	if event := <-events.Events; !strings.HasPrefix(event, `Warning InitializerError Initializer "a.example.com": no quota`) {
		t.Errorf("the event says %q", event)
	}
}

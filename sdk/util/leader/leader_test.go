/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package leader

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
)

// limit is how long anything in these tests may take.
const limit = time.Minute

const namespace, name = "system", "program"

// electing returns an election whose lease is short.
func electing() Election {
	return withDurations(600*time.Millisecond, 400*time.Millisecond, 50*time.Millisecond)
}

func withDurations(lease, renewDeadline, retryPeriod time.Duration) Election {
	e := NewElection(namespace, name)
	e.LeaseDuration, e.RenewDeadline, e.RetryPeriod = lease, renewDeadline, retryPeriod
	return e
}

func watchdog() *leaderelection.HealthzAdaptor { return leaderelection.NewLeaderHealthzAdaptor(0) }

// holder returns who holds the lease, or "".
func holder(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(limit):
		t.Fatalf("waited too long for %s", what)
		panic("unreachable")
	}
}

// start leads, and returns its result later.
func start(ctx context.Context, e Election, client *fake.Clientset, run func(context.Context) error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- e.Lead(ctx, client, watchdog(), run) }()
	return result
}

// TestLeaseIsGivenBackLast: another instance must not lead while this one still acts.
func TestLeaseIsGivenBackLast(t *testing.T) {
	client := fake.NewClientset()
	ctx, cancel := context.WithCancel(t.Context())
	leading, stopping, stop := make(chan struct{}), make(chan struct{}), make(chan struct{})
	released := make(chan struct{}, 1)
	var stopped atomic.Bool
	client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lease := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			if !stopped.Load() {
				t.Error("the lease was given back while this instance still acted")
			}
			released <- struct{}{}
		}
		return false, nil, nil
	})
	result := start(ctx, electing(), client, func(ctx context.Context) error {
		close(leading)
		<-ctx.Done()
		close(stopping)
		<-stop
		stopped.Store(true)
		return nil
	})
	receive(t, "leadership", leading)
	cancel()
	receive(t, "the end of the run's context", stopping)
	// Longer than a release would take that does not wait.
	select {
	case <-released:
	case err := <-result:
		t.Fatalf("it ended before what it ran: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	close(stop)
	if err := receive(t, "the end", result); err != nil {
		t.Error(err)
	}
	if held := holder(t, client); held != "" {
		t.Errorf("%s still holds the lease: the next instance has to wait until it expires", held)
	}
}

// TestLosingTheLeaseIsAnError, whether the run returns or not. The lease, which can be that of the next leader, stays.
func TestLosingTheLeaseIsAnError(t *testing.T) {
	for name, run := range map[string]func(context.Context, <-chan struct{}) error{
		"what runs stops": func(ctx context.Context, _ <-chan struct{}) error { <-ctx.Done(); return nil },
		"what runs fails": func(ctx context.Context, _ <-chan struct{}) error { <-ctx.Done(); return ctx.Err() },
		"what runs hangs": func(_ context.Context, end <-chan struct{}) error { <-end; return nil },
	} {
		// Which of the two ends is seen first differs.
		for i := range 8 {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				t.Parallel()
				client := fake.NewClientset()
				var silent atomic.Bool
				client.PrependReactor([]string{"*", "update"}[i%2], "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
					if update, is := action.(clienttesting.UpdateAction); is && *update.GetObject().(*coordinationv1.Lease).Spec.HolderIdentity == "" {
						t.Error("the lease was given back")
					}
					return silent.Load(), nil, apierrors.NewInternalError(errors.New("no answer"))
				})
				end := make(chan struct{})
				defer close(end)
				leading := make(chan struct{})
				result := start(t.Context(), electing(), client, func(ctx context.Context) error {
					close(leading)
					return run(ctx, end)
				})
				receive(t, "leadership", leading)
				silent.Store(true)
				if err := receive(t, "the end", result); !errors.Is(err, ErrLeaseLost) {
					t.Errorf("got %v, want %v", err, ErrLeaseLost)
				}
			})
		}
	}
}

// TestFollowerStops: an instance that waits for its turn ends without an error, and
// without taking the lease from its holder.
func TestFollowerStops(t *testing.T) {
	other, seconds, now := "other", int32(3600), metav1.NowMicro()
	client := fake.NewClientset(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &other, LeaseDurationSeconds: &seconds, RenewTime: &now, AcquireTime: &now},
	})
	asked := make(chan struct{}, 100)
	client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	result := start(ctx, electing(), client, func(context.Context) error {
		t.Error("it acted although another instance leads")
		return nil
	})
	receive(t, "the first try", asked)
	cancel()
	if err := receive(t, "the end", result); err != nil {
		t.Error(err)
	}
	if held := holder(t, client); held != other {
		t.Errorf("%q holds the lease", held)
	}
}

// TestRunErrorIsReturned, and the lease is free for another try.
func TestRunErrorIsReturned(t *testing.T) {
	client := fake.NewClientset()
	broken := errors.New("broken")
	result := start(t.Context(), electing(), client, func(context.Context) error { return broken })
	if err := receive(t, "the end", result); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if held := holder(t, client); held != "" {
		t.Errorf("%s still holds the lease", held)
	}
}

// TestWatchdog: an instance that cannot renew its lease, and does not end either, is not
// healthy any more.
func TestWatchdog(t *testing.T) {
	client := fake.NewClientset()
	var hangs atomic.Bool
	blocked := make(chan struct{})
	client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if hangs.Load() {
			<-blocked
		}
		return false, nil, nil
	})
	dog := watchdog()
	if err := dog.Check(nil); err != nil {
		t.Fatalf("not healthy before the election: %v", err)
	}
	e := withDurations(100*time.Millisecond, 80*time.Millisecond, 10*time.Millisecond)
	leading := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- e.Lead(ctx, client, dog, func(ctx context.Context) error {
			close(leading)
			<-ctx.Done()
			return nil
		})
	}()
	receive(t, "leadership", leading)
	hangs.Store(true)
	deadline := time.After(limit)
	for dog.Check(nil) == nil {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatal("it looks healthy although it has not renewed its lease")
		}
	}
	cancel()
	close(blocked)
	_ = receive(t, "the end", result)
}

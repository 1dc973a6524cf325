/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cached

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// TestShare: callers that arrive while a read is running share the next one.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := 0
		r := Reads[int]{What: "it", Clock: clock.RealClock{}, Read: func(context.Context) (int, error) {
			count++
			now := count
			time.Sleep(time.Second)
			return now, nil
		}}
		var callers sync.WaitGroup
		ask := func(want int) {
			callers.Go(func() {
				if got, err := r.Do(t.Context()); err != nil || got != want {
					t.Errorf("got the result of read %d, want that of %d: %v", got, want, err)
				}
			})
			synctest.Wait()
		}
		ask(1)
		for range 100 {
			ask(2)
		}
		callers.Wait()
		ask(3)
		callers.Wait()
	})
}

// TestAbandoned: a read ends when its last caller leaves, and one that has not begun never begins.
func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, ended := 0, 0
		r := Reads[int]{What: "it", Clock: clock.RealClock{}, Ended: func(context.Context, time.Duration, int, error) { ended++ },
			Read: func(ctx context.Context) (int, error) {
				begun++
				<-ctx.Done()
				return 0, ctx.Err()
			}}
		var callers sync.WaitGroup
		ask := func(says error) (leave func()) {
			ctx, cancel := context.WithCancelCause(t.Context())
			callers.Go(func() {
				if _, err := r.Do(ctx); !errors.Is(err, says) || !strings.HasPrefix(err.Error(), "cannot wait for it: ") {
					t.Errorf("got %v, want %v", err, says)
				}
			})
			synctest.Wait()
			return func() { cancel(says) }
		}
		leaveFirst, leaveSecond := ask(errors.New("first")), ask(errors.New("second"))
		leaveSecond()
		synctest.Wait()
		leaveFirst()
		callers.Wait()
		synctest.Wait()
		if begun != 1 || ended != 0 || r.running != nil || r.next != nil {
			t.Errorf("%d reads began, %d ended with a caller", begun, ended)
		}
	})
}

// TestPanic: callers get a panic as an error.
func TestPanic(t *testing.T) {
	r := Reads[int]{What: "it", Clock: clock.RealClock{}, Read: func(context.Context) (int, error) { panic("broken") }}
	for range 2 {
		if _, err := r.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "the read of it panicked: broken") {
			t.Errorf("got %v", err)
		}
	}
}

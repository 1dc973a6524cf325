/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package workers

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// TestRun: a key that fails is tried again, others are not held up by it, and Run waits for
// calls that are under way.
func TestRun(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	handled := make(chan string, 10)
	inCall, finish := make(chan struct{}), make(chan struct{})
	failures := 0
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		Run(ctx, queue, 2, func(_ context.Context, key string) error {
			switch {
			case key == "fails" && failures < 2:
				failures++
				return errors.New("not yet")
			case key == "slow":
				close(inCall)
				<-finish
			}
			handled <- key
			return nil
		})
	}()
	queue.Add("fails")
	if got := <-handled; got != "fails" || failures != 2 {
		t.Errorf("%s after %d failures", got, failures)
	}
	queue.Add("slow")
	<-inCall
	queue.Add("quick")
	if got := <-handled; got != "quick" {
		t.Errorf("got %s", got)
	}
	cancel()
	select {
	case <-returned:
		t.Error("Run returned while a call was under way")
	default:
	}
	close(finish)
	<-returned
	if got := <-handled; got != "slow" {
		t.Errorf("got %s", got)
	}
	if queue.NumRequeues("fails") != 0 {
		t.Error("failures are remembered after a success")
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Failures counts tries, and keeps what failed.
type Failures struct {
	tried atomic.Int64

	mu sync.Mutex
	// Errors are what failed. Read it when the tries have ended.
	Errors []Failure
}

// Failure is a try that failed.
type Failure struct {
	At  time.Time
	Err error
}

func (f *Failures) count(err error) {
	f.tried.Add(1)
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.Errors = append(f.Errors, Failure{time.Now(), answered(err)})
	}
}

// answered adds the body of the response to an error, which client-go omits.
func answered(err error) error {
	if status, is := errors.AsType[*apierrors.StatusError](err); is && status.ErrStatus.Details != nil {
		for _, cause := range status.ErrStatus.Details.Causes {
			if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
				err = fmt.Errorf("%w: %s", err, cause.Message)
			}
		}
	}
	return err
}

// String returns the number of tries and of failures, and the first error.
func (f *Failures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprintf("%d tries, %d failed", f.tried.Load(), len(f.Errors))
	if len(f.Errors) > 0 {
		text += ", first: " + f.Errors[0].Err.Error()
	}
	return text
}

// Tried returns an error until each of several things was tried so often.
func Tried(all map[string]*Failures, least int64) error {
	for what, f := range all {
		if f.tried.Load() < least {
			return fmt.Errorf("%s: %s, want %d", what, f, least)
		}
	}
	return nil
}

// None checks that no try failed, and that there were at least so many.
func (f *Failures) None(t *testing.T, what string, least int64) {
	t.Helper()
	t.Logf("%s: %s", what, f)
	if len(f.Errors) > 0 || f.tried.Load() < least {
		t.Errorf("%s: %s", what, f)
	}
}

// repeatPause is the least pause between two tries of Repeat.
const repeatPause = 100 * time.Millisecond

// Repeat tries something again and again until the context ends.
func Repeat(ctx context.Context, work *sync.WaitGroup, what func(ctx context.Context) error) *Failures {
	f := &Failures{}
	work.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			err := what(ctx)
			if ctx.Err() != nil {
				return // the error is of the end
			}
			f.count(err)
			time.Sleep(max(repeatPause, pause(time.Since(began), 0)))
		}
	})
	return f
}

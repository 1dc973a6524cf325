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

// Failures counts what went wrong, and keeps what and when.
type Failures struct {
	tried atomic.Int64

	mu     sync.Mutex
	Errors []Failure
}

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

// answered adds what the server said to an error, where client-go keeps that to itself.
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

// String says how often it was tried, how often it failed, and why at first.
func (f *Failures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprintf("%d tries, %d failed", f.tried.Load(), len(f.Errors))
	if len(f.Errors) > 0 {
		text += ", first: " + f.Errors[0].Err.Error()
	}
	return text
}

// None checks that nothing failed, and that it was tried often enough.
func (f *Failures) None(t *testing.T, what string, least int64) {
	t.Helper()
	t.Logf("%s: %s", what, f)
	if len(f.Errors) > 0 || f.tried.Load() < least {
		t.Errorf("%s: %s", what, f)
	}
}

// Repeat does something again and again until the context ends.
func Repeat(ctx context.Context, work *sync.WaitGroup, what func(ctx context.Context) error) *Failures {
	f := &Failures{}
	work.Go(func() {
		for ctx.Err() == nil {
			err := what(ctx)
			if ctx.Err() != nil {
				return // the end says nothing
			}
			f.count(err)
		}
	})
	return f
}

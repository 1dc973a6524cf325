/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Patience is how long a condition may take to hold: much longer than it takes.
const Patience = 90 * time.Second

var serial atomic.Int64 //nolint:gochecknoglobals // makes names unique

// UniqueName returns a name that no other test uses.
func UniqueName(prefix string) string {
	return fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), serial.Add(1))
}

// Eventually waits until a check returns nil, and fails with its last error.
func Eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, Patience, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || ctx.Err() == nil { // the end of patience says nothing of the condition
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

// JSON returns an object in JSON.
func JSON(t *testing.T, object any) string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

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
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Patience is how long a condition may take to hold: much longer than it usually takes.
const Patience = 5 * time.Minute

// minPause and maxPause limit the pause between two checks.
const minPause, maxPause = 50 * time.Millisecond, time.Second

// pause returns the pause after a check that took some time, of a condition that was waited for since some time. It leaves CPU time
// to what is checked, and to the tests that run beside: after a long wait, a longer pause makes little difference.
func pause(took, waited time.Duration) time.Duration {
	return min(max(minPause, 2*took, waited/10), maxPause)
}

// Eventually waits until a check returns nil. If it does not within Patience, the test fails with the last error.
func Eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var last error
	start := time.Now()
	for interval := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, last)
		case <-time.After(interval):
		}
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil { // an error after the end of Patience hides the cause
			last = err
		}
		interval = pause(time.Since(began), time.Since(start))
	}
}

var serial atomic.Int64 //nolint:gochecknoglobals // makes names unique

// UniqueName returns a name that no other test uses. It sorts after the former names with its prefix.
func UniqueName(prefix string) string {
	return fmt.Sprintf("%s-%d-%05d", prefix, os.Getpid(), serial.Add(1))
}

// Seed returns the seed of a test that is random, and logs it. It is that of the test run, SEED, which the runner prints.
func Seed(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	}
	t.Logf("seed %d", seed)
	return seed
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

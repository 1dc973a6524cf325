/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package workers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

// TestFairQueue: each group has its turn, whatever the number of its names. A name is passed on once, and again when it is added meanwhile.
func TestFairQueue(t *testing.T) {
	queue := NewFairQueue("q", clock.RealClock{}, time.Millisecond, time.Second,
		func(name string) string { group, _, _ := strings.Cut(name, "-"); return group })
	defer queue.ShutDown()
	for _, group := range []string{"a", "b"} {
		for i := range 4 {
			queue.Add(fmt.Sprintf("%s-%d", group, i))
			queue.Add(fmt.Sprintf("%s-%d", group, i))
		}
	}
	queue.Add("c-0")
	take := func(count int) (names []string) {
		for range count {
			name, _ := queue.Get()
			names = append(names, name)
		}
		return names
	}
	if queue.Len() != 9 {
		t.Errorf("there are %d names", queue.Len())
	}
	if diff := cmp.Diff([]string{"a-0", "b-0", "c-0", "a-1"}, take(4)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	queue.Add("d-0")
	queue.Add("a-0") // it is not done
	if diff := cmp.Diff([]string{"b-1", "a-2", "d-0", "b-2", "a-3", "b-3"}, take(6)); diff != "" || queue.Len() != 0 {
		t.Errorf("%d are left (-want +got):\n%s", queue.Len(), diff)
	}
	queue.Done("a-0")
	queue.AddRateLimited("b-0")
	queue.Done("b-0")
	if diff := cmp.Diff([]string{"a-0", "b-0"}, take(2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

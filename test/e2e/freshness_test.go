//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// committed is a committed state of both configurations, and the time when its write was acknowledged.
type committed struct {
	plan         string
	acknowledged time.Time
}

// planOf returns the plan for these versions of the two configurations. Each has two initializers, so that a mixture of
// versions of one configuration would show, too.
func planOf(x, y int) string {
	return fmt.Sprintf("v%d-a.x.example.com v%d-b.x.example.com v%d-a.y.example.com v%d-b.y.example.com", x, x, y, y)
}

// TestFreshness changes two configurations many times while namespaces are being created. The plan of every
// namespace is one committed state of both, and no older one than was acknowledged when the creation began.
func TestFreshness(t *testing.T) {
	const changes = 60
	c := framework.Connect(t)
	random := rand.New(rand.NewPCG(framework.Seed(t), 0)) //nolint:gosec // not a secret
	client := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	initializers := func(letter string, version int) []v1alpha1.RegisteredInitializer {
		return framework.Initializers(fmt.Sprintf("v%d-a.%s.example.com", version, letter), fmt.Sprintf("v%d-b.%s.example.com", version, letter))
	}
	x, y := c.Configure(t, initializers("x", 0)...), c.Configure(t, initializers("y", 0)...)
	states := []committed{{planOf(0, 0), time.Now()}}

	type creation struct {
		name  string
		began time.Time
	}
	var created []creation
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			one := creation{framework.UniqueName("fresh"), time.Now()}
			if _, err := c.Core.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: one.name}}, metav1.CreateOptions{}); err != nil {
				t.Error(err)
				return
			}
			created = append(created, one)
			time.Sleep(100 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		for _, one := range created {
			c.LeaveLater(t, one.name)
		}
	})
	for i := 1; i <= changes; i++ {
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		name, letter, version := x.Name, "x", (i+1)/2
		if i%2 == 0 {
			name, letter = y.Name, "y"
		}
		if _, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(framework.JSON(t, map[string]any{"initializers": initializers(letter, version)})), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		states = append(states, committed{planOf((i+1)/2, i/2), time.Now()})
	}
	stop()
	group.Wait()

	used := map[int]int{}
	for _, one := range created {
		var plan []string
		framework.Eventually(t, "namespace "+one.name+" has a NamespaceLifecycle", func(ctx context.Context) error {
			lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, one.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			plan = nil
			for _, entry := range lifecycle.Spec.Plan {
				plan = append(plan, entry.Name)
			}
			return nil
		})
		state := -1
		for i := range states {
			if states[i].plan == strings.Join(plan, " ") {
				state = i
			}
		}
		if state < 0 {
			t.Errorf("namespace %s has a plan that was never committed: %v", one.name, plan)
			continue
		}
		used[state]++
		if state+1 < len(states) && !one.began.Before(states[state+1].acknowledged) {
			t.Errorf("the creation of namespace %s began %s after a change was acknowledged, and its plan is the one before: %v",
				one.name, one.began.Sub(states[state+1].acknowledged), plan)
		}
	}
	metrics, err := c.Metrics(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d changes, %d namespaces, %d states in use; consistent reads took %s", changes, len(created), len(used), readDurations(metrics))
	if len(created) < changes/4 || len(used) < 5 {
		t.Errorf("%d namespaces and %d states show too little", len(created), len(used))
	}
}

// readDurations sums up the durations of consistent reads in a server's metrics.
func readDurations(metrics []byte) string {
	var sum, count float64
	var buckets []string
	for line := range strings.SplitSeq(string(metrics), "\n") {
		switch {
		case strings.HasPrefix(line, "nsinit_configurations_read_duration_seconds_sum "):
			_, _ = fmt.Sscanf(line, "nsinit_configurations_read_duration_seconds_sum %g", &sum)
		case strings.HasPrefix(line, "nsinit_configurations_read_duration_seconds_count "):
			_, _ = fmt.Sscanf(line, "nsinit_configurations_read_duration_seconds_count %g", &count)
		case strings.HasPrefix(line, "nsinit_configurations_read_duration_seconds_bucket"):
			buckets = append(buckets, strings.TrimPrefix(line, "nsinit_configurations_read_duration_seconds_bucket"))
		}
	}
	for _, bucket := range buckets { // the first that holds all of them
		var limit string
		var n float64
		if _, err := fmt.Sscanf(bucket, "{le=%q} %g", &limit, &n); err == nil && n == count {
			return fmt.Sprintf("%.1f ms on average, none more than %s s, of %g", 1000*sum/count, limit, count)
		}
	}
	return fmt.Sprintf("%.1f ms on average, of %g", 1000*sum/count, count)
}

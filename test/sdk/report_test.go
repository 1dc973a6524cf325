/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package sdk

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/sdk/util/leader"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// reporting is a Runner that works with fakes.
type reporting struct {
	core   *fake.Clientset
	nsinit *nsinitfake.Clientset
	clock  *reportClock
	log    *lockedBuffer
}

// reportClock counts for how many reports a Runner has waited. Its queue waits on the same clock.
type reportClock struct {
	*testingclock.FakeClock
	waited, stepped atomic.Int64
}

// After implements clock.Clock. Only reports use it.
func (c *reportClock) After(d time.Duration) <-chan time.Time {
	defer c.waited.Add(1)
	return c.FakeClock.After(d)
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func newReporting() *reporting {
	return &reporting{
		core: fake.NewClientset(),
		nsinit: nsinitfake.NewClientset(testserver.Configuration("one", "other.example.com", participant),
			testserver.Configuration("two", participant), testserver.Configuration("three", "other.example.com")),
		clock: &reportClock{FakeClock: testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))},
		log:   &lockedBuffer{},
	}
}

// run runs a Runner until the returned function is called.
func (r *reporting) run(t *testing.T, options initializer.Options) (stop func()) {
	t.Helper()
	options.Name, options.Initialize, options.Core, options.Nsinit, options.Clock = participant, nothing, r.core, r.nsinit, r.clock
	runner, err := initializer.New(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(r.log)))))
	done := make(chan error)
	go func() { done <- runner.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// reports returns the names of the configurations whose status was patched, in order.
func (r *reporting) reports() []string {
	var names []string
	for _, action := range r.nsinit.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetSubresource() == "status" {
			names = append(names, patch.GetName())
		}
	}
	return names
}

// waitForReport waits until a Runner waits for the next report.
func (r *reporting) waitForReport(t *testing.T) {
	t.Helper()
	waitFor(t, "the next report is due later", func() bool { return r.clock.waited.Load() > r.clock.stepped.Load() })
}

// next lets the time of the next report come.
func (r *reporting) next(t *testing.T) {
	t.Helper()
	r.waitForReport(t)
	r.clock.stepped.Add(1)
	r.clock.Step(timing.ReportInterval * 11 / 10)
}

// TestVersionsSideBySide: the entry is as the replica that acts needs it, although a replica of another version has changed it meanwhile.
func TestVersionsSideBySide(t *testing.T) {
	t.Parallel()
	r := newReporting()
	configurations := r.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	participates := func() bool {
		stored, err := configurations.Get(t.Context(), "two", metav1.GetOptions{})
		return err == nil && stored.Initializers[0].Finalizer
	}
	stop := r.run(t, initializer.Options{Finalize: nothing, Registration: &initializer.Registration{Configuration: "two"}})
	defer stop()
	waitFor(t, "it is registered as a participant", participates)
	r.waitForReport(t)
	if _, err := configurations.Update(t.Context(), testserver.Configuration("two", participant), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.next(t)
	waitFor(t, "it is registered as a participant again", participates)
}

// TestReports: a Runner reports to each configuration that registers its name, at the start, after each
// interval, and after a restart, and to no other one.
func TestReports(t *testing.T) {
	t.Parallel()
	r := newReporting()
	want := []string{"one", "two"}
	check := func() {
		t.Helper()
		waitFor(t, "the reports", func() bool { return len(r.reports()) >= len(want) })
		if diff := cmp.Diff(want, r.reports()); diff != "" {
			t.Fatalf("reports (-want +got):\n%s", diff)
		}
	}
	stop := r.run(t, initializer.Options{})
	check()
	r.waitForReport(t)
	r.clock.Step(timing.ReportInterval * 8 / 10)
	time.Sleep(20 * time.Millisecond)
	check()
	r.next(t)
	want = append(want, "one", "two")
	check()
	got, err := r.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if entry := helper.RegistrationStatus(got, participant); len(got.Status.Initializers) != 1 || entry == nil || !entry.ReportTime.Time.Equal(r.clock.Now()) {
		t.Errorf("the entries are %v", got.Status.Initializers)
	}
	stop()
	stop = r.run(t, initializer.Options{})
	want = append(want, "one", "two")
	check()
	stop()
}

// TestReportsOfOneReplica: a replica that waits for the lease does not report, and neither does a dry run.
func TestReportsOfOneReplica(t *testing.T) {
	t.Parallel()
	election := new(leader.NewElection("system", participant))
	for name, options := range map[string]initializer.Options{"waiting": {Election: election}, "a dry run": {DryRun: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReporting()
			now := metav1.NowMicro()
			r.core = fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: participant},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: new("another replica"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now}})
			stop := r.run(t, options)
			time.Sleep(300 * time.Millisecond)
			r.clock.Step(time.Hour)
			stop()
			if got := r.reports(); len(got) > 0 {
				t.Errorf("reports to %v", got)
			}
		})
	}
}

// TestReportFails: an error of a report is logged once, with the next step, and does not stop the Runner.
func TestReportFails(t *testing.T) {
	t.Parallel()
	r := newReporting()
	resource := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "namespaceinitializerconfigurations"}
	var mu sync.Mutex
	var failure error = apierrors.NewForbidden(resource, "one", nil)
	fail := func(err error) { mu.Lock(); defer mu.Unlock(); failure = err }
	r.nsinit.PrependReactor("patch", "namespaceinitializerconfigurations", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return failure != nil && action.(clienttesting.PatchAction).GetName() == "one", nil, failure
	})
	stop := r.run(t, initializer.Options{})
	defer stop()
	for n := 2; n <= 6; n += 2 { // the other configuration gets its report each time
		waitFor(t, "the reports", func() bool { return len(r.reports()) == n })
		r.next(t)
	}
	waitFor(t, "the reports", func() bool { return len(r.reports()) == 8 })
	const logged = "Cannot report that the initializer is served"
	if text := r.log.String(); strings.Count(text, logged) != 1 || !strings.Contains(text, "run kubectl nsinit rbac "+participant) {
		t.Errorf("the log is\n%s", text)
	}
	fail(nil)
	r.next(t)
	waitFor(t, "the report succeeds", func() bool { return strings.Contains(r.log.String(), "Reported that the initializer is served") })
	fail(apierrors.NewConflict(resource, "one", nil))
	r.next(t)
	waitFor(t, "the conflict is logged", func() bool { return strings.Count(r.log.String(), logged) == 2 })
}

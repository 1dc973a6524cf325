/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nsinit/nsinit/pkg/embeddedetcd"
)

// TestProblem: what is reported, and when space is reclaimed.
func TestProblem(t *testing.T) {
	for name, test := range map[string]struct {
		usage    Usage
		cluster  bool
		down     error
		problem  string
		reclaims bool
	}{
		"nothing is known":                      {},
		"there is space":                        {usage: Usage{Size: 50, InUse: 40, Quota: 100}},
		"the reserve is in use":                 {usage: Usage{Size: 92, InUse: 90, Quota: 100}, problem: "the rest of its quota is reserved", reclaims: true},
		"much of the database is free":          {usage: Usage{Size: 75, InUse: 50, Quota: 100}, reclaims: true},
		"little of the database is free":        {usage: Usage{Size: 80, InUse: 60, Quota: 100}},
		"much is free, and there is much space": {usage: Usage{Size: 70, InUse: 10, Quota: 100}},
		"the alarm":                             {usage: Usage{Size: 101, InUse: 40, Quota: 100, Alarm: true}, problem: "alarm NOSPACE", reclaims: true},
		"a cluster has no reserve":              {usage: Usage{Size: 92, InUse: 92, Quota: 100}, cluster: true, reclaims: true},
		"a cluster that reports no quota":       {usage: Usage{Size: 92, InUse: 92}, cluster: true},
		"the alarm of a cluster":                {usage: Usage{Size: 92, InUse: 92, Alarm: true}, cluster: true, problem: "alarm NOSPACE", reclaims: true},
		"etcd does not run":                     {down: status.Error(codes.FailedPrecondition, "the volume is full"), problem: "the volume is full"},
		"no process listens":                    {down: status.Error(codes.Unavailable, "connection refused"), problem: "connection refused"},
		"etcd is slow":                          {down: status.Error(codes.DeadlineExceeded, "context deadline exceeded")},
		"no member of a cluster answers":        {down: status.Error(codes.Unavailable, "connection refused"), cluster: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMonitor(MonitorOptions{Embedded: !test.cluster})
			m.update(t.Context(), test.usage, test.down)
			problem := m.Problem()
			if (problem == nil) != (test.problem == "") || problem != nil && !strings.Contains(problem.Error(), test.problem) {
				t.Errorf("the problem is %v", problem)
			}
			if m.update(t.Context(), Usage{}, nil); m.Problem() != nil {
				t.Errorf("after an observation of an empty database, the problem is %v", m.Problem())
			}
			if _, got := test.usage.reclaimAfter(); got != test.reclaims {
				t.Errorf("reclaimable: %v", got)
			}
		})
	}
}

// start starts an embedded etcd with a quota of 4 MiB, and returns a client.
func start(t *testing.T) *clientv3.Client {
	t.Helper()
	dir := t.TempDir()
	server, err := embeddedetcd.Start(t.Context(), dir, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	endpoint, err := embeddedetcd.Endpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestReview: a Monitor of the embedded etcd ends the alarm, and one of a cluster only reports it.
func TestReview(t *testing.T) {
	for name, embedded := range map[string]bool{"embedded": true, "cluster": false} {
		t.Run(name, func(t *testing.T) {
			client := start(t)
			var err error
			for err == nil {
				_, err = client.Put(t.Context(), "key", strings.Repeat("x", 100<<10))
			}
			m := NewMonitor(MonitorOptions{Client: client, Embedded: embedded})
			m.review(t.Context())
			_, err = client.Put(t.Context(), "key", "x")
			if problem := m.Problem(); (problem == nil) != embedded || (err == nil) != embedded {
				t.Errorf("the problem is %v, a write: %v", problem, err)
			}
			if usage, known := m.Usage(); !known || usage.Quota != 4<<20 || usage.Size == 0 || usage.InUse == 0 {
				t.Errorf("usage is %+v", usage)
			}
		})
	}
}

// TestOldRevisions: old revisions use the reserve. One review makes the database small again, so that the next writes
// do not raise the alarm.
func TestOldRevisions(t *testing.T) {
	client := start(t)
	m := NewMonitor(MonitorOptions{Client: client, Embedded: true})
	for usage := (Usage{}); !usage.reserved(); {
		if _, err := client.Put(t.Context(), "key", strings.Repeat("x", 100<<10)); err != nil {
			t.Fatal(err)
		}
		// etcd reports what a write uses once it is in the database.
		if _, err := client.Defragment(t.Context(), client.Endpoints()[0]); err != nil {
			t.Fatal(err)
		}
		var err error
		if usage, err = m.observe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m.review(t.Context())
	if usage, _ := m.Usage(); usage.Size > usage.Quota/4 {
		t.Errorf("after the review, usage is %+v", usage)
	}
}

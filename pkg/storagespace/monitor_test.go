/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storagespace

import (
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nsinit/nsinit/pkg/embeddedetcd"
)

// TestProblem: what is reported, and when space is reclaimed.
func TestProblem(t *testing.T) {
	up := func() error { return nil }
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
		"etcd is down":                          {down: errors.New("the volume is full"), problem: "the volume is full"},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(Options{Embedded: !test.cluster, Down: up})
			if test.down != nil {
				m.Down = func() error { return test.down }
			}
			m.update(t.Context(), test.usage)
			problem := m.Problem()
			if (problem == nil) != (test.problem == "") || problem != nil && !strings.Contains(problem.Error(), test.problem) {
				t.Errorf("the problem is %v", problem)
			}
			if _, got := test.usage.reclaimAfter(); got != test.reclaims {
				t.Errorf("reclaimable: %v", got)
			}
		})
	}
}

// TestReview: a Monitor of the embedded etcd ends the alarm, and one of a cluster only reports it.
func TestReview(t *testing.T) {
	for name, embedded := range map[string]bool{"embedded": true, "cluster": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			server, err := embeddedetcd.Start(t.Context(), dir, 4<<20)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Stop()
			endpoint, err := embeddedetcd.Endpoint(dir)
			if err != nil {
				t.Fatal(err)
			}
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			for err == nil {
				_, err = client.Put(t.Context(), "key", strings.Repeat("x", 100<<10))
			}
			m := New(Options{Client: client, Embedded: embedded, Down: func() error { return nil }})
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

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package counts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParse: reads of lists, watches and what does not depend on namespaces do not count.
func TestParse(t *testing.T) {
	got, err := parse([]byte(`# TYPE apiserver_request_total counter
apiserver_request_total{resource="namespaces",verb="POST",code="201"} 3
apiserver_request_total{resource="namespaces",verb="POST",code="409"} 1
apiserver_request_total{resource="namespaces",subresource="status",verb="PUT"} 4
apiserver_request_total{resource="namespaces",verb="LIST"} 100
apiserver_request_total{resource="namespaces",verb="WATCH"} 100
apiserver_request_total{resource="leases",verb="PUT"} 100
apiserver_request_total{resource="events",verb="POST"} 7
# TYPE etcd_request_duration_seconds histogram
etcd_request_duration_seconds_count{operation="create",resource="namespaces"} 5
etcd_request_duration_seconds_count{operation="get",resource="namespaces"} 100
etcd_request_duration_seconds_count{operation="update",resource="leases"} 100
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Counts{
		Requests: map[Operation]float64{{"POST", "namespaces"}: 4, {"PUT", "namespaces/status"}: 4, {"POST", "events"}: 7},
		Writes:   map[Operation]float64{{"create", "namespaces"}: 5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Sum(got.Requests, Events); got != 8 {
		t.Errorf("the sum without events is %v", got)
	}
}

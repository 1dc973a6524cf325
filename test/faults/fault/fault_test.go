/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package fault

import (
	"testing"
	"time"
)

// TestTable: each fault has a unique name, and all faults together fit in the time of a campaign.
func TestTable(t *testing.T) {
	const (
		injections = 100
		planes     = 2
		limit      = 3*time.Hour + 15*time.Minute
		// perInjection is what kills, starts and requests take; perRound is the beginning and the end.
		perInjection = 500 * time.Millisecond
		perRound     = 40 * time.Second
		rounds       = 2
	)
	var total time.Duration
	names := map[string]bool{}
	for _, f := range All() {
		if f.Name == "" || names[f.Name] || f.Inject == nil {
			t.Errorf("fault %q has no name or function, or there are two", f.Name)
		}
		if f.Description == "" || names[f.Description] {
			t.Errorf("fault %q has no unique description: %q", f.Name, f.Description)
		}
		names[f.Name], names[f.Description] = true, true
		total += injections*(f.Hold+f.Rest+perInjection) + rounds*perRound
	}
	total /= planes
	t.Logf("%d faults take about %s", len(All()), total.Round(time.Minute))
	if total > limit {
		t.Errorf("%d faults take %s, longer than %s", len(All()), total, limit)
	}
}

// TestKind: replicas are of the kind of their program.
func TestKind(t *testing.T) {
	for program, kind := range map[string]string{"nsinit-apiserver-1": "nsinit-apiserver", "etcd": "etcd", "nsinit-etcd-12": "nsinit-etcd", "kube-controller-manager": "kube-controller-manager"} {
		if got := Kind(program); got != kind {
			t.Errorf("%s is a %s", program, got)
		}
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const delivered = "../../artifacts/deploy/components/service-monitor/"

// quiet is what is scraped when nothing is wrong, each with the job that exports it.
func quiet() map[string]float64 {
	return map[string]float64{
		`kube-apiserver aggregator_unavailable_apiservice{name="v1alpha1.nsinit.dev"}`:                                        0,
		`nsinit-apiserver nsinit_configurations_read_failures_total`:                                                          7,
		`nsinit-apiserver nsinit_configurations_read_duration_seconds_count`:                                                  7,
		`nsinit-apiserver nsinit_configurations_read_duration_seconds_bucket{le="+Inf"}`:                                      7,
		`nsinit-apiserver nsinit_serving_certificate_expiration_timestamp_seconds`:                                            float64(time.Now().Add(8 * 24 * time.Hour).Unix()),
		`nsinit-apiserver nsinit_storage_size_bytes`:                                                                          1e9,
		`nsinit-apiserver nsinit_storage_in_use_bytes`:                                                                        1e9,
		`nsinit-apiserver nsinit_storage_quota_bytes`:                                                                         2e9,
		`nsinit-apiserver nsinit_storage_full`:                                                                                0,
		`nsinit-controller-manager leader_election_master_status{name="nsinit-controller-manager"}`:                           1,
		`nsinit-controller-manager nsinit_lifecycle_oldest_turn_seconds{initializer="a.example.com"}`:                         299,
		`nsinit-controller-manager nsinit_lifecycle_participant_age_seconds{participant="a.example.com"}`:                     299,
		`nsinit-controller-manager nsinit_initializer_served{configuration="a",initializer="a.example.com"}`:                  1,
		`nsinit-controller-manager nsinit_lifecycle_deadlines_missed_total{failure_policy="Ignore"}`:                          7,
		`nsinit-controller-manager nsinit_lifecycle_reconcile_failures_total`:                                                 7,
		`policy-population nsinit_initializer_calls_total{initializer="a.example.com",operation="initialize",result="error"}`: 7,
	}
}

// evaluated returns the alerts that are active when something changes within half a minute.
func evaluated(t *testing.T, before, after map[string]float64) []string {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	for at, scraped := range map[time.Time]map[string]float64{now.Add(-30 * time.Second): before, now: after} {
		texts := map[string]string{}
		for line, value := range scraped {
			var job, series string
			if _, err := fmt.Sscan(line, &job, &series); err != nil {
				t.Fatal(err)
			}
			texts[job] += fmt.Sprintf("%s %g\n", series, value)
		}
		for job, text := range texts {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d-%s.txt", at.UnixMilli(), job)), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, err := evaluate(delivered+"alerts.yaml", delivered+"dashboard.json", dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found.Active))
}

// TestAlerts: each alert is active when what it is for is wrong, and no other is; at its limit, none is.
func TestAlerts(t *testing.T) {
	if active := evaluated(t, quiet(), quiet()); len(active) > 0 {
		t.Errorf("nothing is wrong, and active are %v", active)
	}
	tests := map[string]struct {
		series string
		value  float64
	}{
		"NsinitUnavailable":              {`kube-apiserver aggregator_unavailable_apiservice{name="v1alpha1.nsinit.dev"}`, 1},
		"NsinitConfigurationsUnreadable": {`nsinit-apiserver nsinit_configurations_read_failures_total`, 8},
		"NsinitCertificateNotRenewed":    {`nsinit-apiserver nsinit_serving_certificate_expiration_timestamp_seconds`, float64(time.Now().Add(6 * 24 * time.Hour).Unix())},
		"NsinitStorageNearlyFull":        {`nsinit-apiserver nsinit_storage_size_bytes`, 1.7e9},
		"NsinitStorageFull":              {`nsinit-apiserver nsinit_storage_full`, 1},
		"NsinitNoLeader":                 {`nsinit-controller-manager leader_election_master_status{name="nsinit-controller-manager"}`, 0},
		"NsinitTurnTooLong":              {`nsinit-controller-manager nsinit_lifecycle_oldest_turn_seconds{initializer="a.example.com"}`, 301},
		"NsinitCleanupTooLong":           {`nsinit-controller-manager nsinit_lifecycle_participant_age_seconds{participant="a.example.com"}`, 301},
		"NsinitInitializerNotServed":     {`nsinit-controller-manager nsinit_initializer_served{configuration="a",initializer="a.example.com"}`, 0},
		"NsinitDeadlinesMissed":          {`nsinit-controller-manager nsinit_lifecycle_deadlines_missed_total{failure_policy="Ignore"}`, 8},
		"NsinitControllerFailing":        {`nsinit-controller-manager nsinit_lifecycle_reconcile_failures_total`, 107},
		"NsinitInitializerFails":         {`policy-population nsinit_initializer_calls_total{initializer="a.example.com",operation="initialize",result="error"}`, 17},
	}
	rules, err := readRules(delivered + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		alert := rule.Alert
		t.Run(alert, func(t *testing.T) {
			wrong, after := tests[alert], quiet()
			if _, found := after[wrong.series]; !found {
				t.Fatalf("no program exports %s", wrong.series)
			}
			after[wrong.series] = wrong.value
			if active := evaluated(t, quiet(), after); !slices.Equal(active, []string{alert}) {
				t.Errorf("active are %v", active)
			}
		})
	}
	without := quiet()
	delete(without, `nsinit-controller-manager leader_election_master_status{name="nsinit-controller-manager"}`)
	if active := evaluated(t, without, without); !slices.Equal(active, []string{"NsinitNoLeader"}) {
		t.Errorf("without nsinit-controller-manager, active are %v", active)
	}
}

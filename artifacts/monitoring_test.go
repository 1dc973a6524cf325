/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package artifacts

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestMetricsExist: a program of nsinit exports each metric that the alerts and the dashboard use. docs/metrics.md is generated
// from the programs.
func TestMetricsExist(t *testing.T) {
	documented, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`\bnsinit_[a-z_]+`)
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("deploy/components/service-monitor/" + name)
		if err != nil {
			t.Fatal(err)
		}
		used := metric.FindAllString(string(text), -1)
		if len(used) == 0 {
			t.Errorf("%s uses no metric of nsinit: the test does not recognize them", name)
		}
		for _, used := range used {
			of := strings.TrimSuffix(strings.TrimSuffix(used, "_bucket"), "_count") // of a histogram
			if !strings.Contains(string(documented), "`"+of+"`") && !strings.Contains(string(documented), "`"+used+"`") {
				t.Errorf("%s uses %s, which no program exports", name, used)
			}
		}
	}
}

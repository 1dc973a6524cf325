/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	testingclock "k8s.io/utils/clock/testing"
)

// TestServingCertificate: the server says that its certificate was not renewed, and until when it is
// valid.
func TestServingCertificate(t *testing.T) {
	data, key, err := cert.GenerateSelfSignedCertKey("nsinit", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := cert.ParseCertsPEM(data)
	if err != nil {
		t.Fatal(err)
	}
	begins, ends := all[0].NotBefore, all[0].NotAfter
	content := func() ([]byte, []byte) { return data, key }
	for name, test := range map[string]struct {
		content func() ([]byte, []byte)
		at      time.Time
		want    string
	}{
		"new":                     {content, begins, ""},
		"about to be renewed":     {content, ends.Add(-ends.Sub(begins) / 3), ""},
		"a sixth left":            {content, ends.Add(-ends.Sub(begins) / 6), ""},
		"less":                    {content, ends.Add(-ends.Sub(begins)/6 + time.Second), "was not renewed: see the log of nsinit-controller-manager"},
		"expired":                 {content, ends, "expired at " + ends.UTC().Format(time.RFC3339)},
		"one that cannot be read": {func() ([]byte, []byte) { return []byte("x"), nil }, begins, "cannot parse the serving certificate"},
		"none":                    {nil, begins, "there is no serving certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			s := ServingCertificate{Content: test.content, Clock: testingclock.NewFakePassiveClock(test.at)}
			err := s.Expiring()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}

	registry := metrics.NewKubeRegistry()
	if err := registry.Registerer().Register((ServingCertificate{Content: content}).Metric()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetMetric()[0].GetGauge().GetValue() != float64(ends.Unix()) {
		t.Errorf("the metric: %v %v", families, err)
	}
}

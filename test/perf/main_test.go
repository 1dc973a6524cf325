/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stored returns samples of two rounds of every arm. value returns a figure.
func stored(t *testing.T, value func(scenario, arm, figure string, round int) float64) string {
	t.Helper()
	dir := t.TempDir()
	s, err := loadSamples(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"CPU, ms", "requests to kube-apiserver", "requests to nsinit-apiserver", "commits", "p50, ms", "p99, ms", "last, ms", "per second", "p50 of an update, ms", earlyFigure, beyondFigure,
		"creates per second", "gets per second", "updates per second", "lists per second", "watch events per second", "memory of the server for each object, kB"}
	for _, process := range []string{"kube-apiserver", "etcd", "kube-controller-manager", "nsinit-apiserver", "nsinit-controller-manager", "initializers"} {
		names = append(names, "CPU of "+process+", ms", "memory of "+process+" for each namespace, kB", "CPU of "+process+" when idle, ms per second")
	}
	for _, scenario := range scenarios() {
		for _, arm := range scenario.arms {
			for round := range 2 {
				figures := map[string]float64{}
				for _, name := range names {
					figures[name] = value(scenario.name, arm.name, name, round)
				}
				if err := s.add(sample{scenario.name, arm.name, round, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), "a machine", figures}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return dir
}

// TestReport: the document shows medians, ranges and ratios of the samples, of every scenario.
func TestReport(t *testing.T) {
	dir := stored(t, func(scenario, arm, figure string, round int) float64 {
		switch {
		case figure == "CPU, ms" && arm == plainArm:
			return 10 + float64(round)
		case figure == "CPU, ms" && arm == plainArm+again:
			return 11
		case figure == "CPU, ms" && scenario == "storm":
			return 25
		case figure == "commits":
			return 8
		case figure == "p50, ms" && scenario == "latency":
			return 12
		case scenario == "write" && arm == nsinitArm && round == 1:
			return 3
		}
		return 2
	})
	output := filepath.Join(t.TempDir(), "docs", "performance.md")
	if err := os.MkdirAll(filepath.Join(filepath.Dir(output), "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := report(dir, output); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Measured on 2 January 2026 with a machine.",
		"| CPU, ms | 10 (10–11) | 25 | 2.4 |",
		"differ by 4.8 %",
		"is 1.2 times the minimum.", // (8 - 2) / 5
		"| 3 | 12 | 2 | 1 |",        // 12 / (6 * 2)
		"the time until Ready is 6 times the time of one update.",
		"need 0.25 cores while", // 10 * 25 ms
		"| a Secret, without and with nsinit | 2 | 2.5 (2–3) | 1.125 (1.000–1.250) | 0.900 (0.800–1.000) |", // (2 + 2) / (2 + 2), (3 + 2) / (2 + 2)
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	for _, picture := range []string{"performance-cpu.svg", "performance-time.svg"} {
		if info, err := os.Stat(filepath.Join(filepath.Dir(output), "images", picture)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", picture, err)
		}
	}
}

// TestPictures: the pictures of docs/performance.md show the figures of its tables.
func TestPictures(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	text, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	charts, err := chartsOf(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range charts {
		want, err := c.draw()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(docs, "images", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date (%v): run the command pictures", name, err)
		}
	}
}

// TestReportMissing: without a figure that the document shows, there is no document.
func TestReportMissing(t *testing.T) {
	output := filepath.Join(t.TempDir(), "performance.md")
	if err := report(t.TempDir(), output); !errors.Is(err, errMissing) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(output); err == nil {
		t.Error("the document was written")
	}
}

// TestResume: what was measured is not measured again.
func TestResume(t *testing.T) {
	dir := stored(t, func(string, string, string, int) float64 { return 1 })
	s, err := loadSamples(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range scenarios() {
		for _, arm := range scenario.arms {
			if !s.has(scenario.name, arm.name, 1) || s.has(scenario.name, arm.name, 2) {
				t.Errorf("%s, %s: the samples are not the stored ones", scenario.name, arm.name)
			}
		}
	}
}

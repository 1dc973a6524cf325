/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const guide = "../../docs/alerts.md"

// TestPictures: each picture in the documents shows every panel of the dashboard, with data, and the numbers of the table below
// it. The table names only panels and alerts that exist. Each alert that it names is active in the picture.
func TestPictures(t *testing.T) {
	panels, err := readPanels(delivered + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := readRules(delivered + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dashboard-healthy.svg", "dashboard-failing.svg"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile("../../docs/images/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 150_000 {
				t.Errorf("%d bytes", len(data))
			}
			text := string(data)
			for _, panel := range panels {
				if !strings.Contains(text, ">"+html.EscapeString(panel.Title)+"</text>") {
					t.Errorf("panel %q is not shown: run make dashboards", panel.Title)
				}
			}
			if strings.Contains(text, "No data") {
				t.Error("a panel has no data")
			}
			marks, err := readMarks(guide, name)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkMarks(marks, panels, rules); err != nil {
				t.Error(err)
			}
			if shown := strings.Count(text, `<circle class="m"`); shown != len(marks) {
				t.Errorf("%d numbers, and the table has %d rows: run hack/dashboards.sh --draw", shown, len(marks))
			}
			for _, mark := range marks {
				for _, alert := range mark.alerts {
					if !strings.Contains(text, ">"+alert+"</text>") {
						t.Errorf("mark %d: %s is not active", mark.number, alert)
					}
				}
			}
		})
	}
}

// TestMarks: a wrong row of the table below a picture is an error that shows what is wrong.
func TestMarks(t *testing.T) {
	for name, test := range map[string]struct{ document, want string }{
		"good":            {"![x](images/a.svg)\n\n| number | panel | alert |\n| --- | --- | --- |\n| 1 | Memory | NsinitUnavailable |\n| 2 | Storage | |\n\n## Next\n\n| 9 | No panel |\n", ""},
		"no picture":      {"| 1 | Memory | |\n", "does not show a.svg"},
		"no rows":         {"![x](images/a.svg)\n\n## Next\n\n| 1 | Memory | |\n", "has no table below a.svg"},
		"no such panel":   {"![x](images/a.svg)\n\n| 1 | Memories | |\n", `mark 1: the dashboard has no panel "Memories"`},
		"no such alert":   {"![x](images/a.svg)\n\n| 1 | Memory | NsinitTooOld |\n", `mark 1: no rule has the alert "NsinitTooOld"`},
		"a number missed": {"![x](images/a.svg)\n\n| 1 | Memory | |\n| 3 | Storage | |\n", "row 2 of the marks has the number 3"},
	} {
		t.Run(name, func(t *testing.T) {
			document := filepath.Join(t.TempDir(), "document.md")
			if err := os.WriteFile(document, []byte(test.document), 0o600); err != nil {
				t.Fatal(err)
			}
			panels, err := readPanels(delivered + "dashboard.json")
			if err != nil {
				t.Fatal(err)
			}
			rules, err := readRules(delivered + "alerts.yaml")
			if err != nil {
				t.Fatal(err)
			}
			marks, err := readMarks(document, "a.svg")
			if err == nil {
				err = checkMarks(marks, panels, rules)
			}
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestFiring: an alert that is active for several initializers fires as soon as it does for one of them, and an alert that
// ended, or has not waited for long enough, does not fire.
func TestFiring(t *testing.T) {
	e := &evaluation{last: time.UnixMilli(100_500)}
	for name, test := range map[string]struct {
		periods []period
		want    []string
	}{
		"waits":   {[]period{{90, 100, 100}}, nil},
		"fires":   {[]period{{30, 90, 100}}, []string{"A"}},
		"ended":   {[]period{{30, 60, 95}}, nil},
		"again":   {[]period{{10, 20, 30}, {80, 100, 100}}, nil},
		"overlap": {[]period{{30, 90, 100}, {60, 100, 100}}, []string{"A"}},
	} {
		t.Run(name, func(t *testing.T) {
			one := alert{name: "A"}
			for _, p := range test.periods {
				one.add(p)
			}
			if name == "overlap" && len(one.periods) != 1 {
				t.Errorf("%d periods", len(one.periods))
			}
			if firing := e.firing([]alert{one}); !slices.Equal(firing, test.want) {
				t.Errorf("firing are %v, want %v", firing, test.want)
			}
		})
	}
}

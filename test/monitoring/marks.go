/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
)

// mark is a number in a picture. A row of the table below the picture explains it.
type mark struct {
	number int
	// panel is the title of the marked panel.
	panel string
	// alerts are the alerts that the row names.
	alerts []string
}

// event is what was done to the programs, and when, in milliseconds since 1970.
type event struct {
	Name string
	Time int64
}

var (
	markedRow = regexp.MustCompile(`^\| (\d+) \| ([^|]+) \|`)
	alertName = regexp.MustCompile(`\bNsinit[A-Z]\w+`)
)

// readMarks reads the marks of a picture from the table that follows the picture in a document. The first columns are the number
// and the panel.
func readMarks(document, picture string) (marks []mark, err error) {
	data, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	_, text, found := strings.Cut(string(data), "/"+filepath.Base(picture)+")")
	if !found {
		return nil, fmt.Errorf("%s does not show %s", document, filepath.Base(picture))
	}
	text, _, _ = strings.Cut(text, "\n#")
	for line := range strings.Lines(text) {
		row := markedRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		number, err := strconv.Atoi(row[1])
		if err != nil {
			return nil, err
		}
		marks = append(marks, mark{number: number, panel: row[2], alerts: alertName.FindAllString(line, -1)})
	}
	if len(marks) == 0 {
		return nil, fmt.Errorf("%s has no table below %s with rows such as | 1 | Title of a panel |", document, filepath.Base(picture))
	}
	return marks, nil
}

// checkMarks returns an error for each mark with a panel or an alert that does not exist.
func checkMarks(marks []mark, panels []panel, rules []rulefmt.Rule) error {
	var errs []error
	for i, mark := range marks {
		if mark.number != i+1 {
			errs = append(errs, fmt.Errorf("row %d of the marks has the number %d", i+1, mark.number))
		}
		if !slices.ContainsFunc(panels, func(p panel) bool { return p.Title == mark.panel }) {
			errs = append(errs, fmt.Errorf("mark %d: the dashboard has no panel %q", mark.number, mark.panel))
		}
		for _, alert := range mark.alerts {
			if !slices.ContainsFunc(rules, func(r rulefmt.Rule) bool { return r.Alert == alert }) {
				errs = append(errs, fmt.Errorf("mark %d: no rule has the alert %q", mark.number, alert))
			}
		}
	}
	return errors.Join(errs...)
}

// readEvents reads the events that were recorded with the scrapes.
func readEvents(scrapes string) (events []event, err error) {
	data, err := os.ReadFile(filepath.Join(scrapes, "events.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return events, json.Unmarshal(data, &events)
}

// period is a time during which an alert is active. It fires from a certain time on, in seconds since 1970.
type period struct{ from, fires, to float64 }

// alert is an alert with the times during which it is active.
type alert struct {
	name    string
	periods []period
}

// alerts evaluates the rules over the whole time as Prometheus does, and returns those that are active at some time.
func (e *evaluation) alerts(rules []rulefmt.Rule) ([]alert, error) {
	var all []alert
	for _, rule := range rules {
		matrix, err := e.queryRange(rule.Expr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.Alert, err)
		}
		one := alert{name: rule.Alert}
		for _, series := range matrix {
			for _, piece := range unbroken(series.Floats) {
				from, to := piece[0].at, piece[len(piece)-1].at
				one.add(period{from: from, fires: min(from+time.Duration(rule.For).Seconds(), to), to: to})
			}
		}
		if len(one.periods) > 0 {
			all = append(all, one)
		}
	}
	slices.SortStableFunc(all, func(a, b alert) int { return int(a.periods[0].from - b.periods[0].from) })
	return all, nil
}

// add adds a period, and merges it with one that overlaps: an alert can be active for several initializers.
func (a *alert) add(p period) {
	for i, other := range a.periods {
		if p.from <= other.to && other.from <= p.to {
			a.periods[i] = period{from: min(p.from, other.from), fires: min(p.fires, other.fires), to: max(p.to, other.to)}
			return
		}
	}
	a.periods = append(a.periods, p)
}

// firing returns the alerts that fire at the end.
func (e *evaluation) firing(all []alert) (names []string) {
	for _, alert := range all {
		last := alert.periods[len(alert.periods)-1]
		if last.fires < last.to && time.UnixMilli(int64(last.to*1000)).Add(step).After(e.last) {
			names = append(names, alert.name)
		}
	}
	return names
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// Grafana's grid has 24 columns. Lengths are pixels.
const (
	columns = 24
	column  = 37.0
	row     = 30.0
	gap     = 4.0
)

// drawing is what a picture shows beside the panels.
type drawing struct {
	marks  []mark
	events []event
	alerts []alert
}

// draw draws the dashboard as Grafana lays it out, below a strip with the alerts, as SVG.
func (e *evaluation) draw(panels []panel, shown drawing, file string) error {
	strip := rectangle{x: gap, y: gap, w: columns*column - gap, h: stripHeight(shown)}
	top, rows := strip.y+strip.h, 0
	for _, panel := range panels {
		rows = max(rows, panel.GridPos.Y+panel.GridPos.H)
	}
	time := span{e.first.Add(window), e.last}
	picture := newPicture(columns*column+gap, top+float64(rows)*row+gap)
	picture.strip(strip, shown, time)
	for _, panel := range panels {
		all, err := e.series(panel)
		if err != nil {
			return fmt.Errorf("%s: %w", panel.Title, err)
		}
		if len(all) == 0 {
			return fmt.Errorf("panel %q has no data", panel.Title)
		}
		at := panel.GridPos
		box := rectangle{x: float64(at.X)*column + gap, y: top + float64(at.Y)*row + gap, w: float64(at.W)*column - gap, h: float64(at.H)*row - gap}
		picture.panel(panel, box, interesting(all), time, shown)
	}
	return os.WriteFile(file, picture.bytes(), 0o644)
}

// interesting returns the series that are not always 0, all of them if there is none.
func interesting(all []series) []series {
	kept := slices.DeleteFunc(slices.Clone(all), func(s series) bool { return largest([]series{s}) == 0 })
	if len(kept) == 0 {
		return all
	}
	return kept
}

// point is a value at a time, in seconds since 1970.
type point struct{ at, value float64 }

// series is a named line, in pieces: it is interrupted where a scrape or a value is missing.
type series struct {
	name   string
	pieces [][]point
}

// last returns the last value, NaN if there is none.
func (s series) last() float64 {
	if len(s.pieces) == 0 {
		return math.NaN()
	}
	piece := s.pieces[len(s.pieces)-1]
	return piece[len(piece)-1].value
}

// series evaluates the queries of a panel.
func (e *evaluation) series(panel panel) ([]series, error) {
	var all []series
	for _, target := range panel.Targets {
		matrix, err := e.queryRange(variables.Replace(target.Expr))
		if err != nil {
			return nil, err
		}
		for _, found := range matrix {
			all = append(all, series{name: legend(target.LegendFormat, found.Metric), pieces: unbroken(found.Floats)})
		}
	}
	return all, nil
}

// unbroken splits a series where a scrape or a value is missing.
func unbroken(samples []promql.FPoint) (pieces [][]point) {
	var previous int64
	for _, sample := range samples {
		if math.IsNaN(sample.F) || math.IsInf(sample.F, 0) {
			continue
		}
		if len(pieces) == 0 || sample.T-previous > step.Milliseconds() {
			pieces = append(pieces, nil)
		}
		previous = sample.T
		pieces[len(pieces)-1] = append(pieces[len(pieces)-1], point{at: float64(sample.T) / 1000, value: sample.F})
	}
	return pieces
}

// format formats a value in one of Grafana's units.
func format(unit string, value float64) string {
	switch {
	case math.IsNaN(value):
		return "No data"
	case unit == "s" && value >= 48*3600:
		return fmt.Sprintf("%.0f days", value/24/3600)
	case unit == "s" && value >= 60:
		return time.Duration(value * float64(time.Second)).Round(time.Second).String()
	case unit == "s":
		return time.Duration(value * float64(time.Second)).Round(time.Millisecond).String()
	case unit == "bytes" && value == 0:
		return "0"
	case unit == "bytes" && value < 10<<20:
		return fmt.Sprintf("%.0f KiB", value/(1<<10))
	case unit == "bytes" && value < 1<<30:
		return fmt.Sprintf("%.0f MiB", value/(1<<20))
	case unit == "bytes":
		return fmt.Sprintf("%.3g GiB", value/(1<<30))
	case unit == "bool_yes_no" && value != 0:
		return "Yes"
	case unit == "bool_yes_no":
		return "No"
	case unit == "ops":
		return strconv.FormatFloat(value, 'g', 3, 64) + "/s"
	}
	return strconv.FormatFloat(value, 'g', 4, 64)
}

var placeholder = regexp.MustCompile(`{{ *(\w+) *}}`)

// legend names a series as Grafana does.
func legend(format string, metric labels.Labels) string {
	if format == "__auto" {
		return ""
	}
	return placeholder.ReplaceAllStringFunc(format, func(found string) string {
		return metric.Get(placeholder.FindStringSubmatch(found)[1])
	})
}

// step is how often what is drawn is evaluated.
const step = time.Second

// queryRange evaluates a query from a window after the first scrape to the last.
func (e *evaluation) queryRange(text string) (promql.Matrix, error) {
	query, err := e.engine.NewRangeQuery(context.Background(), e.db, nil, text, e.first.Add(window), e.last, step)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(context.Background())
	if result.Err != nil {
		return nil, result.Err
	}
	matrix, err := result.Matrix()
	if err != nil {
		return nil, err
	}
	kept := make(promql.Matrix, 0, len(matrix)) // the query's own is reused when it is closed
	for _, series := range matrix {
		series.Floats = slices.Clone(series.Floats)
		kept = append(kept, series)
	}
	return kept, nil
}

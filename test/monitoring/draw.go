/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"image/color"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Grafana's grid has 24 columns. Lengths are points, of which 72 make an inch.
const (
	columns = 24
	column  = vg.Length(36)
	row     = vg.Length(22)
	margin  = vg.Length(6)
)

// draw draws the dashboard as Grafana lays it out.
func (e *evaluation) draw(panels []panel, file string) error {
	rows := 0
	for _, panel := range panels {
		rows = max(rows, panel.GridPos.Y+panel.GridPos.H)
	}
	height := vg.Length(rows) * row
	picture := vgimg.New(columns*column, height)
	canvas := draw.New(picture)
	for _, panel := range panels {
		at := panel.GridPos
		box := vg.Rectangle{
			Min: vg.Point{X: vg.Length(at.X) * column, Y: height - vg.Length(at.Y+at.H)*row},
			Max: vg.Point{X: vg.Length(at.X+at.W) * column, Y: height - vg.Length(at.Y)*row},
		}
		if err := e.drawPanel(panel, draw.Crop(draw.Canvas{Canvas: canvas, Rectangle: box}, margin, -margin, margin, -margin)); err != nil {
			return fmt.Errorf("%s: %w", panel.Title, err)
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := (vgimg.PngCanvas{Canvas: picture}).WriteTo(out); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

func (e *evaluation) drawPanel(panel panel, canvas draw.Canvas) error {
	p := plot.New()
	p.Title.Text = panel.Title
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size = 7
	p.X.Tick.Marker = plot.TimeTicks{Format: "15:04:05"}
	p.X.Min, p.X.Max = float64(e.first.Unix()), float64(e.last.Unix())
	p.Y.Tick.Marker = units(panel.FieldConfig.Defaults.Unit)
	p.Y.Min, p.Y.Max = 0, 1
	p.Add(plotter.NewGrid())
	number, last := 0, math.NaN()
	for _, target := range panel.Targets {
		matrix, err := e.queryRange(variables.Replace(target.Expr))
		if err != nil {
			return err
		}
		for _, series := range matrix {
			var named bool
			for _, points := range unbroken(series.Floats) {
				line, err := plotter.NewLine(points)
				if err != nil {
					return err
				}
				line.Color, line.Dashes = plotutil.Color(number), plotutil.Dashes(number/7)
				line.Width = vg.Points(1.5)
				p.Add(line)
				if name := legend(target.LegendFormat, series.Metric); !named && name != "" {
					p.Legend.Add(name, line)
					named = true
				}
				last = points[len(points)-1].Y
			}
			number++
		}
	}
	if panel.Type == "stat" {
		drawNumber(canvas, panel.Title, format(panel.FieldConfig.Defaults.Unit, last))
		return nil
	}
	p.Y.Max *= min(1.1+0.06*float64(number), 1.6) // room for the legend
	p.Draw(canvas)
	return nil
}

// unbroken splits a series where a scrape or a value is missing.
func unbroken(samples []promql.FPoint) (lines []plotter.XYs) {
	var previous int64
	for _, sample := range samples {
		if math.IsNaN(sample.F) || math.IsInf(sample.F, 0) {
			continue
		}
		if len(lines) == 0 || sample.T-previous > step.Milliseconds() {
			lines = append(lines, nil)
		}
		previous = sample.T
		lines[len(lines)-1] = append(lines[len(lines)-1], plotter.XY{X: float64(sample.T) / 1000, Y: sample.F})
	}
	return lines
}

// drawNumber draws a number as large as it is important.
func drawNumber(canvas draw.Canvas, title, number string) {
	style := func(size font.Length, shade color.Color) text.Style {
		return text.Style{Color: shade, Font: font.From(plot.DefaultFont, size), XAlign: text.XCenter, YAlign: text.YCenter, Handler: plot.DefaultTextHandler}
	}
	center := canvas.Center()
	canvas.FillText(style(12, color.Black), vg.Point{X: center.X, Y: canvas.Max.Y - 8}, title)
	canvas.FillText(style(28, color.RGBA{G: 100, B: 60, A: 255}), vg.Point{X: center.X, Y: center.Y - 8}, number)
}

// units marks an axis with values in a unit.
type units string

// Ticks implements plot.Ticker.
func (u units) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = format(string(u), ticks[i].Value)
		}
	}
	return ticks
}

// format formats a value in one of Grafana's units.
func format(unit string, value float64) string {
	switch {
	case math.IsNaN(value):
		return "no data"
	case unit == "s" && value >= 48*3600:
		return fmt.Sprintf("%.0f days", value/24/3600)
	case unit == "s":
		return time.Duration(value * float64(time.Second)).Round(time.Millisecond).String()
	case unit == "bytes" && value < 10<<20:
		return fmt.Sprintf("%.0f KiB", value/(1<<10))
	case unit == "bytes":
		return fmt.Sprintf("%.0f MiB", value/(1<<20))
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

// queryRange evaluates a query from the first scrape to the last.
func (e *evaluation) queryRange(text string) (promql.Matrix, error) {
	query, err := e.engine.NewRangeQuery(context.Background(), e.db, nil, text, e.first, e.last, step)
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

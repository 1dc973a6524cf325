/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"flag"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a picture of one claim: a bar of each series for each name, from top to bottom.
type chart struct {
	title  string
	names  []string
	series []series
}

type series struct {
	name   string
	colour color.Color
	values plotter.Values
}

func picturesCommand(flags *flag.FlagSet) func() error {
	document := flags.String("document", filepath.Join("docs", "performance.md"), "the document")
	return func() error {
		return drawPictures(*document)
	}
}

// drawPictures draws the pictures of a document from its tables, so that both show the same figures.
func drawPictures(document string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	charts, err := chartsOf(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	for name, c := range charts {
		picture, err := c.draw()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(document), "images", name), picture, 0o644); err != nil { //nolint:gosec // documentation
			return err
		}
	}
	return nil
}

// chartsOf returns the charts of a document by the name of their file.
func chartsOf(text string) (map[string]chart, error) {
	grey, blue := color.RGBA{0x93, 0x9e, 0xae, 0xff}, color.RGBA{0x1f, 0x5f, 0xd0, 0xff}
	cpu := chart{title: "CPU time for each namespace, ms", series: []series{{name: "without nsinit", colour: grey}, {name: "with nsinit", colour: blue}}}
	wait := chart{title: "Median time until a namespace is usable, ms", series: []series{{name: "client, without nsinit", colour: grey}, {name: "policy-population", colour: blue}}}
	for _, row := range tableOf(text, "| for each namespace |") {
		if row[0] == "CPU, ms" {
			cpu.add("all processes", row[1:3])
		}
	}
	for _, row := range tableOf(text, "| process | without nsinit, ms |") {
		cpu.add(row[0], row[1:3])
	}
	for _, row := range tableOf(text, "| namespaces | | client |") {
		if row[1] == "p50, ms" {
			wait.add(row[0]+" namespaces", row[2:4])
		}
	}
	if len(cpu.names) < 2 || len(wait.names) == 0 {
		return nil, fmt.Errorf("the tables of the pictures: %w", errMissing)
	}
	return map[string]chart{"performance-cpu.svg": cpu, "performance-time.svg": wait}, nil
}

// tableOf returns the cells of the table whose header begins so.
func tableOf(text, header string) (rows [][]string) {
	_, rest, _ := strings.Cut(text, "\n"+header)
	for i, line := range slices.Collect(strings.Lines(rest)) {
		if i > 0 && !strings.HasPrefix(line, "|") {
			break
		}
		if i < 2 { // the rest of the header, and the line below it
			continue
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// add adds a name with the medians that the cells begin with. An empty cell is 0: the process does not run.
func (c *chart) add(name string, cells []string) {
	c.names = append(c.names, name)
	for i, cell := range cells {
		middle, _, _ := strings.Cut(cell, " ")
		value, _ := strconv.ParseFloat(middle, 64)
		c.series[i].values = append(c.series[i].values, value)
	}
}

// draw returns the chart as an SVG picture. Its background is white, for pages of any colour. Each text begins at a fixed place,
// because the reader's font may be wider than the library's.
func (c chart) draw() ([]byte, error) {
	const bar, line, row = vg.Length(13), vg.Length(14), vg.Length(54)
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 11}
	dark := color.RGBA{0x1c, 0x24, 0x30, 0xff}
	p := plot.New()
	p.HideAxes()
	p.Title.Text, p.Title.TextStyle.Font, p.Title.TextStyle.Color = c.title, sans, dark
	p.Title.TextStyle.Font.Size, p.Title.Padding = 14, line/2
	p.Legend.TextStyle.Font, p.Legend.TextStyle.Color = sans, dark
	p.Legend.Top, p.Legend.Left, p.Legend.Padding, p.Legend.ThumbnailWidth = true, true, 3, line
	most := 0.0
	texts := func(labels plotter.XYLabels, offset vg.Point) error {
		drawn, err := plotter.NewLabels(labels)
		if err != nil {
			return err
		}
		drawn.Offset = offset
		for i := range drawn.TextStyle {
			drawn.TextStyle[i].Font, drawn.TextStyle[i].Color = sans, dark
		}
		p.Add(drawn)
		return nil
	}
	names := plotter.XYLabels{Labels: c.names}
	for i, s := range c.series {
		figures, values := plotter.XYLabels{}, slices.Clone(s.values)
		slices.Reverse(values) // the vertical axis begins at the bottom
		offset := bar * -vg.Length(i)
		bars, err := plotter.NewBarChart(values, bar)
		if err != nil {
			return nil, err
		}
		bars.Horizontal, bars.Color, bars.LineStyle.Width, bars.Offset = true, s.colour, 0, offset
		p.Add(bars)
		p.Legend.Add(s.name, bars)
		for y, value := range values {
			most = max(most, value)
			figures.XYs = append(figures.XYs, plotter.XY{X: value, Y: float64(y)})
			figures.Labels = append(figures.Labels, number(value))
		}
		if err := texts(figures, vg.Point{X: 4, Y: offset - 4}); err != nil {
			return nil, err
		}
	}
	for i := range c.names {
		names.XYs = append(names.XYs, plotter.XY{Y: float64(len(c.names) - 1 - i)})
	}
	if err := texts(names, vg.Point{Y: bar/2 + 4}); err != nil {
		return nil, err
	}
	p.X.Min, p.X.Max = 0, most*1.1
	p.Y.Min, p.Y.Max = -0.5, float64(len(c.names)) // half a row, for the legend

	canvas := vgsvg.New(6*vg.Inch, row*(vg.Length(len(c.names))+0.5)+4*line)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	p.Draw(draw.Crop(all, line, -line, line, -line))
	var picture bytes.Buffer
	if _, err := canvas.WriteTo(&picture); err != nil {
		return nil, err
	}
	// Most readers have a font that is as wide as the library's.
	return bytes.ReplaceAll(picture.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")), nil
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"
	"time"
)

// shades are the colours of series, dark enough for a white background.
var shades = []string{"#37872d", "#c98a00", "#3274d9", "#e0226e", "#8f3bb8", "#00868b", "#d9560b", "#5c6b7a", "#7c5a14", "#1f60c4"} //nolint:gochecknoglobals // a constant

// picture is an SVG picture.
type picture struct{ text bytes.Buffer }

type rectangle struct{ x, y, w, h float64 }

// span is the time that a picture shows.
type span struct{ first, last time.Time }

func newPicture(width, height float64) *picture {
	p := &picture{}
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g" font-family="system-ui, -apple-system, Segoe UI, Roboto, Liberation Sans, sans-serif" font-size="12">`, width, height)
	p.add(`<!-- Drawn by hack/dashboards.sh. -->`)
	p.add(`<style>text{fill:#4a5362}.t{fill:#1c2430;font-weight:600;font-size:14px}.s{font-size:34px;font-weight:600;text-anchor:middle}.y{text-anchor:end}.x{text-anchor:middle}.g{stroke:#e8eaee}.m{fill:#c4162a;stroke:#fff;stroke-width:2}.n{fill:#fff;font-weight:700;font-size:15px;text-anchor:middle}.e{stroke:#c4162a;stroke-opacity:.55;stroke-dasharray:4 4}.c{fill:#c4162a}</style>`)
	p.add(`<rect width="%.0f" height="%.0f" fill="#f2f3f5"/>`, width, height)
	return p
}

func (p *picture) add(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

func (p *picture) bytes() []byte {
	return append(bytes.Clone(p.text.Bytes()), "</svg>\n"...)
}

func (p *picture) words(class string, x, y float64, text string) {
	p.add(`<text class="%s" x="%.0f" y="%.0f">%s</text>`, class, x, y, html.EscapeString(text))
}

// The strip with the alerts has a line for its title, one for each event, one for each alert and one for the time.
const (
	stripLine  = 22.0
	stripNames = 210.0
)

func stripHeight(shown drawing) float64 {
	return 30 + stripLine*float64(len(shown.events)+max(len(shown.alerts), 1)) + 24
}

// strip draws the events and the alerts over the time.
func (p *picture) strip(box rectangle, shown drawing, time span) {
	p.add(`<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3" fill="#fff" stroke="#dfe2e7"/>`, box.x, box.y, box.w, box.h-gap)
	p.words("t", box.x+10, box.y+20, "Alerts")
	plot := rectangle{x: box.x + stripNames, y: box.y + 30, w: box.w - stripNames - 24, h: box.h - 30 - 26}
	p.times(plot, time, 30)
	for i, event := range shown.events {
		x, y := plot.x+plot.w*time.at(float64(event.Time)/1000), plot.y+stripLine*float64(i)
		p.add(`<path class="e" d="M%.1f %.1fV%.1f"/>`, x, y, plot.y+plot.h)
		p.words("c", x+6, y+14, event.Name)
	}
	if len(shown.alerts) == 0 {
		p.words("l", box.x+10, plot.y+15, "no alert is active")
	}
	y := plot.y + stripLine*float64(len(shown.events))
	for _, alert := range shown.alerts {
		p.words("l", box.x+10, y+15, alert.name)
		for _, period := range alert.periods {
			p.bar(plot, time, y, period.from, period.fires, "#f2b64a", "pending")
			p.bar(plot, time, y, period.fires, period.to, "#c4162a", "firing")
		}
		y += stripLine
	}
}

// bar draws a time as a bar, with a word in it if it fits.
func (p *picture) bar(plot rectangle, time span, y, from, to float64, shade, word string) {
	x, width := plot.x+plot.w*time.at(from), plot.w*(time.at(to)-time.at(from))
	if width <= 0 {
		return
	}
	p.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="16" fill="%s"/>`, x, y+3, width, shade)
	if width > 50 {
		fill := "#1c2430"
		if word == "firing" {
			fill = "#fff"
		}
		p.add(`<text x="%.1f" y="%.1f" style="fill:%s">%s</text>`, x+6, y+15, fill, word)
	}
}

// panel draws a panel with its marks.
func (p *picture) panel(panel panel, box rectangle, all []series, time span, shown drawing) {
	p.add(`<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3" fill="#fff" stroke="#dfe2e7"/>`, box.x, box.y, box.w, box.h)
	p.words("t", box.x+10, box.y+20, panel.Title)
	if panel.Type == "stat" {
		p.number(panel, box, all, time)
	} else {
		plot := p.lines(panel, box, all, time)
		for _, event := range shown.events {
			p.add(`<path class="e" d="M%.1f %.1fv%.1f"/>`, plot.x+plot.w*time.at(float64(event.Time)/1000), plot.y, plot.h)
		}
	}
	for _, mark := range shown.marks {
		if mark.panel == panel.Title {
			x, y := box.x+box.w-17, box.y+17
			p.add(`<circle class="m" cx="%.1f" cy="%.1f" r="12"/>`, x, y)
			p.words("n", x, y+5, fmt.Sprint(mark.number))
		}
	}
}

// at returns where a time is, from 0 to 1.
func (s span) at(seconds float64) float64 {
	first, last := float64(s.first.UnixMilli())/1000, float64(s.last.UnixMilli())/1000
	return (seconds - first) / max(last-first, 1)
}

// number draws the last value, in the colour of its threshold, above a small line.
func (p *picture) number(panel panel, box rectangle, all []series, time span) {
	value := all[0].last()
	p.line(all[0], rectangle{x: box.x + 1, y: box.y + box.h*0.68, w: box.w - 2, h: box.h*0.32 - 2}, time, limit(all), "#9aa5b5", 1)
	shade := "#37872d"
	for _, step := range panel.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			shade = map[string]string{"green": "#37872d", "red": "#c4162a"}[step.Color]
		}
	}
	p.add(`<text class="s" x="%.0f" y="%.0f" style="fill:%s">%s</text>`, box.x+box.w/2, box.y+box.h*0.58, shade, format(panel.FieldConfig.Defaults.Unit, value))
}

// largest returns the largest value.
func largest(all []series) float64 {
	most := 0.0
	for _, series := range all {
		for _, piece := range series.pieces {
			for _, point := range piece {
				most = max(most, point.value)
			}
		}
	}
	return most
}

// limit returns the value at the top of a panel, which is 1 if each value is 0.
func limit(all []series) float64 {
	if most := largest(all); most > 0 {
		return most
	}
	return 1
}

// lines draws the series, the axes and the legend, and returns where the lines are.
func (p *picture) lines(panel panel, box rectangle, all []series, time span) rectangle {
	legend := p.legend(box, all)
	plot := rectangle{x: box.x + 66, y: box.y + 38, w: box.w - 86, h: box.h - 38 - 26 - legend}
	unit := panel.FieldConfig.Defaults.Unit
	interval := rounded(limit(all)/4, unit)
	top := max(math.Ceil(limit(all)/interval-0.001), 1) * interval
	for value := 0.0; value <= top*1.001; value += interval {
		y := plot.y + plot.h*(1-value/top)
		p.add(`<path class="g" d="M%.0f %.1fh%.0f"/>`, plot.x, y, plot.w)
		p.words("y", plot.x-8, y+4, format(unit, value))
	}
	p.times(plot, time, 60)
	for i, series := range all {
		p.line(series, plot, time, top, shades[i%len(shades)], 2)
	}
	return plot
}

// times draws the axis of the time, in minutes and seconds since its beginning. distance is the least one between two
// labels, in pixels.
func (p *picture) times(plot rectangle, time span, distance float64) {
	seconds := time.last.Sub(time.first).Seconds()
	every := 10.0
	for _, larger := range []float64{15, 30, 60, 120, 300, 600} {
		if plot.w/seconds*every < distance {
			every = larger
		}
	}
	for at := 0.0; at <= seconds; at += every {
		x := plot.x + plot.w*at/seconds
		p.add(`<path class="g" d="M%.1f %.0fv%.0f"/>`, x, plot.y, plot.h)
		p.words("x", x, plot.y+plot.h+17, fmt.Sprintf("%d:%02d", int(at)/60, int(at)%60))
	}
}

// rounded returns the next larger number that is good to count in.
func rounded(value float64, unit string) float64 {
	base := 1.0
	if unit == "bytes" {
		base = 1 << 10
		for value >= 1<<10*base && base < 1<<30 {
			base *= 1 << 10
		}
	}
	power := math.Pow(10, math.Floor(math.Log10(value/base)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if base*power*factor >= value*0.999 {
			if unit == "none" {
				return max(base*power*factor, 1) // these are counted
			}
			return base * power * factor
		}
	}
	return value
}

// line draws a series.
func (p *picture) line(s series, plot rectangle, time span, top float64, shade string, width float64) {
	var path strings.Builder
	for _, piece := range s.pieces {
		for i, point := range piece {
			if i > 0 && i < len(piece)-1 && piece[i-1].value == point.value && piece[i+1].value == point.value {
				continue
			}
			command := "L"
			if i == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, plot.x+plot.w*time.at(point.at), plot.y+plot.h*(1-min(point.value/top, 1)))
		}
	}
	if path.Len() > 0 {
		p.add(`<path d="%s" fill="none" stroke="%s" stroke-width="%.0f" stroke-linejoin="round"/>`, path.String(), shade, width)
	}
}

// legend draws the names of the series in lines at the bottom, and returns their height.
func (p *picture) legend(box rectangle, all []series) float64 {
	const line, letter, swatch = 17.0, 6.8, 34.0
	type entry struct {
		x     float64
		line  int
		index int
	}
	var entries []entry
	x, lines := 0.0, 0
	for i, series := range all {
		if series.name == "" {
			continue
		}
		width := swatch + letter*float64(len(series.name))
		if len(entries) == 0 {
			lines = 1
		} else if x+width > box.w-20 {
			x = 0
			lines++
		}
		entries = append(entries, entry{x, lines, i})
		x += width
	}
	height := line * float64(lines)
	for _, entry := range entries {
		y := box.y + box.h - height + line*float64(entry.line-1) + 8
		p.add(`<rect x="%.0f" y="%.0f" width="14" height="4" rx="2" fill="%s"/>`, box.x+12+entry.x, y-6, shades[entry.index%len(shades)])
		p.words("l", box.x+30+entry.x, y, all[entry.index].name)
	}
	return height
}

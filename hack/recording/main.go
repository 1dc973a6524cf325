/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command recording runs a script, and draws what it printed, when it printed it, as an animated SVG picture.
//
//	recording --output PICTURE SCRIPT
//
// The picture contains the steps of the script that show a command, such as "alice$ kubectl get pods". Long waits are shortened, and
// lines that follow each other faster than a reader reads are delayed.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	output := flag.String("output", "", "the picture")
	flag.Parse()
	lines, err := record(flag.Arg(0))
	if err == nil {
		err = os.WriteFile(*output, []byte(draw(schedule(lines))), 0o644) //nolint:gosec // documentation
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// line is a line of output, and when it was printed or, after schedule, is shown.
type line struct {
	text, class string
	at          time.Duration
}

// The classes of lines in the picture.
const title, command, result = "title", "command", "result"

func classOf(text string) string {
	switch {
	case regexp.MustCompile(`^\[ *\d+s\] `).MatchString(text):
		return title
	case regexp.MustCompile(`^\w+\$ `).MatchString(text):
		return command
	}
	return result
}

// record runs the script and returns its output, which it also prints.
func record(script string) (lines []line, err error) {
	run := exec.Command(script)
	run.Stderr = os.Stderr
	output, err := run.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := run.Start(); err != nil {
		return nil, err
	}
	start := time.Now()
	for scanner := bufio.NewScanner(output); scanner.Scan(); {
		fmt.Println(scanner.Text())
		lines = append(lines, line{scanner.Text(), classOf(scanner.Text()), time.Since(start)})
	}
	return lines, run.Wait()
}

// schedule returns the steps with a command: their lines, wrapped, and when each is shown.
func schedule(lines []line) (shown []line) {
	const width, longest = 96, 2 * time.Second
	shortest := map[string]time.Duration{title: 1500 * time.Millisecond, command: 1200 * time.Millisecond, result: 400 * time.Millisecond}
	var step []line
	var printed, now, begin time.Duration
	for _, one := range append(lines, line{class: title}) {
		if one.class == title {
			if slices.ContainsFunc(step, func(other line) bool { return other.class == command }) {
				shown, begin = append(shown, step...), now
			}
			step, now = nil, begin
			_, one.text, _ = strings.Cut(one.text, "] ")
		}
		if len(shown)+len(step) > 0 {
			now += min(max(one.at-printed, shortest[one.class]), longest)
		}
		printed = one.at
		for rest := strings.TrimSpace(one.text); rest != ""; {
			end := len(rest)
			if space := strings.LastIndex(rest[:min(end, width)], " "); end > width && space > 0 {
				end = space
			}
			step = append(step, line{rest[:end], one.class, now})
			rest = strings.TrimSpace(rest[end:])
		}
	}
	return shown
}

// draw returns the picture. It plays three times, and then shows every line, as it always does for readers who asked for less motion.
func draw(lines []line) string {
	total := lines[len(lines)-1].at + 5*time.Second
	var keyframes, texts strings.Builder
	y := 14
	for i, one := range lines {
		y += 20
		if one.class == title && i > 0 {
			y += 10
		}
		moment := fmt.Sprintf("at%d", one.at.Milliseconds())
		if i > 0 && one.at != lines[i-1].at {
			fmt.Fprintf(&keyframes, "\n@keyframes %s{0%%{opacity:0}%.2f%%{opacity:1}}", moment, 100*one.at.Seconds()/total.Seconds())
		}
		fmt.Fprintf(&texts, "<text class=\"%s\" y=\"%d\" style=\"animation-name:%s\">%s</text>\n", one.class, y, moment, html.EscapeString(one.text))
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="850" height="%[1]d" viewBox="0 0 850 %[1]d">
<!-- Drawn by make demo RECORD=docs/images/demo.svg. -->
<title>The life of a namespace in a terminal</title>
<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,Liberation Mono,monospace;white-space:pre;fill:#c3ccd9}.title{fill:#8fd0a0}.command{fill:#fff;font-weight:600}
@media (prefers-reduced-motion:no-preference){text{animation:%.1[2]fs step-end 3 both}}%[3]s</style>
<rect width="850" height="%[1]d" rx="10" fill="#10151d" stroke="#3d4858"/><g transform="translate(20)">
%[4]s</g></svg>
`, y+20, total.Seconds(), keyframes.String(), texts.String())
}

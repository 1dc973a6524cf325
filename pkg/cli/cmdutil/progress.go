/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/utils/clock"
)

const (
	// quiet is how long a command may take before it shows progress at all.
	quiet = time.Second
	// linesEvery is the least time between two lines where there is no terminal.
	linesEvery = 5 * time.Second
	// framesEvery is the least time between two changes of the line on a terminal.
	framesEvery = 100 * time.Millisecond
)

// Line is the progress of one command. It is not safe for concurrent use.
type Line struct {
	out      io.Writer
	clock    clock.PassiveClock
	terminal bool
	next     time.Time
	shown    bool
}

// NewLine returns a line that shows nothing yet.
func NewLine(out io.Writer, clock clock.PassiveClock) *Line {
	file, ok := out.(*os.File)
	return &Line{out: out, clock: clock, terminal: ok && term.IsTerminal(int(file.Fd())), next: clock.Now().Add(quiet)}
}

// Show shows how far the command is, unless it has done so a moment ago.
func (l *Line) Show(format string, args ...any) {
	now := l.clock.Now()
	if now.Before(l.next) {
		return
	}
	text := fmt.Sprintf(format, args...)
	if l.terminal {
		l.next, l.shown = now.Add(framesEvery), true
		_, _ = fmt.Fprintf(l.out, "\r\x1b[K%s", text)
		return
	}
	l.next = now.Add(linesEvery)
	_, _ = fmt.Fprintln(l.out, text)
}

// End clears the line of a terminal.
func (l *Line) End() {
	if l.shown {
		_, _ = fmt.Fprint(l.out, "\r\x1b[K")
	}
	l.shown = false
}

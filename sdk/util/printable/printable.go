/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package printable makes text safe for terminals. Text of other programs, such as the message of an
// initializer, can contain escape sequences and bidirectional controls, which change what a terminal
// shows. It also writes names from the cluster as words of a POSIX shell command: the names of many objects may contain spaces, quotes and
// control characters, and a client that can write an object chooses its name.
package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// replacement replaces removed characters. It is one byte, so no text gets longer.
const replacement = '?'

// Lines returns a text with every control character and every bidirectional control replaced.
// It keeps line breaks, and replaces a tab with a space.
func Lines(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return replacement
		}
		return r
	}, strings.ToValidUTF8(strings.ReplaceAll(text, "\r\n", "\n"), string(replacement)))
}

// Line is Lines on one line: line breaks become spaces.
func Line(text string) string { return strings.ReplaceAll(Lines(text), "\n", " ") }

// Shorten cuts a text to a length in bytes, between two characters. The length is at least three.
func Shorten(text string, length int) string {
	text = strings.ToValidUTF8(text, string(replacement))
	if len(text) <= length {
		return text
	}
	const mark = "..."
	cut := length - len(mark)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}

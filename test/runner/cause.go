/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A cause has at most maxCause lines of maxWidth bytes.
const maxCause, maxWidth = 10, 300

// logs reports whether a line of a file of a package, or of a package with helpers, logs and does not fail.
func logs(root, pkg, file string, number int) bool {
	for _, dir := range []string{pkg, "test/e2e/framework", "pkg/apiserver/testserver"} {
		if text, err := os.ReadFile(filepath.Join(root, dir, file)); err == nil {
			lines := strings.Split(string(text), "\n")
			return number <= len(lines) && regexp.MustCompile(`\.(Log|Logf|Skip|Skipf)\(`).MatchString(lines[number-1])
		}
	}
	return false
}

// cause returns why a test failed: the messages of t.Error and t.Fatal, and a panic. go test prints the messages of t.Log in the
// same way, so cause reads the source. A helper that fails reports the line that calls it.
func cause(root, pkg string, lines []line) []string {
	message := regexp.MustCompile(`^ *([\w.-]+\.go):(\d+): `)
	var messages, printed [][]string
	inside := false
	for _, l := range lines {
		text := strings.TrimSpace(l.text)
		if began := message.FindStringSubmatch(l.text); began != nil {
			number, _ := strconv.Atoi(began[2])
			if inside = !logs(root, pkg, began[1], number); inside {
				if _, sub, is := strings.Cut(l.test, "/"); is {
					text = sub + ": " + text
				}
				messages = append(messages, []string{text})
			}
			continue
		}
		switch {
		case strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ") || text == "FAIL" || text == "":
			inside = inside && text == ""
		case strings.HasPrefix(l.text, "panic: ") || strings.HasPrefix(l.text, "fatal error: "):
			inside = true
			messages = append(messages, []string{text})
		case inside:
			messages[len(messages)-1] = append(messages[len(messages)-1], strings.TrimPrefix(l.text, "    "))
		default:
			printed = append(printed, []string{text})
		}
	}
	if len(messages) == 0 { // a compiler has printed it
		messages = printed
	}
	return shorten(messages)
}

// shorten returns the last messages, with the same number of lines each.
func shorten(messages [][]string) (cause []string) {
	messages = messages[max(0, len(messages)-maxCause):]
	for i, lines := range messages {
		for _, text := range lines[:min(len(lines), (maxCause-len(cause))/(len(messages)-i))] {
			if text = strings.TrimRight(text, "\n"); len(text) > maxWidth {
				text = text[:maxWidth] + "..."
			}
			cause = append(cause, text)
		}
	}
	return cause
}

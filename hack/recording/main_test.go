/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSchedule: only steps with a command are shown; waits are shortened, and long lines are wrapped.
func TestSchedule(t *testing.T) {
	lines := []line{{"[   1s] it starts", title, 0}, {"waiting", result, time.Minute}}
	lines = append(lines, line{"[  90s] it <works>", title, 90 * time.Second}, line{"alice$ kubectl get", command, 100 * time.Second})
	lines = append(lines, line{strings.Repeat("pods ", 30), result, 101 * time.Second}, line{"", result, 101 * time.Second})
	want := []line{
		{"it <works>", title, 0},
		{"alice$ kubectl get", command, 2 * time.Second},
		{strings.TrimSpace(strings.Repeat("pods ", 19)), result, 3 * time.Second},
		{strings.TrimSpace(strings.Repeat("pods ", 11)), result, 3 * time.Second},
	}
	shown := schedule(lines)
	if diff := cmp.Diff(want, shown, cmp.AllowUnexported(line{})); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{`>it &lt;works&gt;<`, `animation:8.0s`, `@keyframes at2000{0%{opacity:0}25.00%{opacity:1}}`, `class="command" y="54" style="animation-name:at2000"`} {
		if picture := draw(shown); !strings.Contains(picture, text) {
			t.Errorf("%s is not in %s", text, picture)
		}
	}
}

// TestPicture: the recording in the README shows the steps and the commands of the demo.
func TestPicture(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "demo.sh"))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(filepath.Join("..", "..", "docs", "images", "demo.svg"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	step := ""
	for _, found := range regexp.MustCompile(`(?m)^step "(.*)"$|\bplay (admin|alice|approver) (.*)$`).FindAllStringSubmatch(string(script), -1) {
		if found[1] != "" {
			step = found[1]
			continue
		}
		if step != "" {
			want = append(want, step)
		}
		step = ""
		want = append(want, found[2]+"$ kubectl "+expand(string(script), found[3]))
	}
	var got []string
	class := ""
	for _, found := range regexp.MustCompile(`<text class="(\w+)" y="\d+" style="animation-name:(\w+)">(.*)</text>`).FindAllStringSubmatch(string(picture), -1) {
		text := html.UnescapeString(found[3])
		switch {
		case found[1] == result:
		case class == found[1]+found[2]: // a wrapped line
			got[len(got)-1] += " " + text
		default:
			got = append(got, text)
		}
		class = found[1] + found[2]
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("docs/images/demo.svg is out of date, run make demo RECORD=docs/images/demo.svg:\n%s", diff)
	}
}

// expand replaces the variables in arguments by their values in a script, and removes quotes and comments.
func expand(script, arguments string) string {
	for _, variable := range regexp.MustCompile(`(?m)^([A-Z]+)=\(?([^"\n]*?)\)?$`).FindAllStringSubmatch(script, -1) {
		arguments = strings.NewReplacer("${"+variable[1]+"}", variable[2], "${"+variable[1]+"[@]}", variable[2]).Replace(arguments)
	}
	arguments, _, _ = strings.Cut(arguments, " # ")
	return strings.ReplaceAll(arguments, `"`, "")
}

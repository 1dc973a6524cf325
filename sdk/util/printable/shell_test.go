/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package printable

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestWord: plain names stay readable, and what cannot be shown or is taken for a flag is refused.
func TestWord(t *testing.T) {
	for value, want := range map[string]string{
		"pods/a":                 "pods/a",
		"system:node":            "system:node",
		"a b":                    "'a b'",
		"a'b":                    `'a'\''b'`,
		"x --server=127.0.0.1:1": "'x --server=127.0.0.1:1'",
		"$(reboot)":              "'$(reboot)'",
		"=a":                     "'=a'",
		"~":                      "'~'",
		"größer":                 "'größer'",
	} {
		if got, ok := Word(value); got != want || !ok {
			t.Errorf("%q is %q, %t; want %q", value, got, ok, want)
		}
	}
	for _, value := range []string{"", "-a", "--server=x", "a\nb", "a\tb", "\x1b[31m", "a\x00b", "\u202ea", "a\u00a0b", "a\u200bb", "a\xffb"} {
		if got, ok := Word(value); ok {
			t.Errorf("%q is the word %q", value, got)
		}
	}
	if got, ok := Words([]string{"a", "b c"}); got != "a 'b c'" || !ok {
		t.Errorf("the list is %q, %t", got, ok)
	}
	for _, values := range [][]string{nil, {"a", "-b"}} {
		if got, ok := Words(values); ok {
			t.Errorf("%q is the list %q", values, got)
		}
	}
}

// TestShell: a real shell gives a program the values as they are.
func TestShell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var values []string
		for _, value := range rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.StringMatching(`[-a-z =~'"$\\;&|<>*?(){}#!\n]{0,12}`)), 1, 4).Draw(t, "values") {
			if word, ok := Word(value); ok {
				if strings.HasPrefix(word, "-") {
					t.Fatalf("%q is the flag %q", value, word)
				}
				values = append(values, value)
			}
		}
		command, ok := Words(values)
		if !ok {
			return
		}
		out, err := exec.Command("sh", "-c", `printf '%s\0' `+command).Output()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(values, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	})
}

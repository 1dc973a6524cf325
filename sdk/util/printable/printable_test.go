/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package printable

import "testing"

func TestPrintable(t *testing.T) {
	for name, test := range map[string]struct{ text, lines, line string }{
		"plain":                 {"creating the index 90%", "creating the index 90%", "creating the index 90%"},
		"other scripts":         {"größer, больше, 更大, أكبر, \U0001f468\u200d\U0001f469", "größer, больше, 更大, أكبر, \U0001f468\u200d\U0001f469", "größer, больше, 更大, أكبر, \U0001f468\u200d\U0001f469"},
		"a colour":              {"\x1b[31mred\x1b[0m", "?[31mred?[0m", "?[31mred?[0m"},
		"C0 and delete":         {"a\x00b\x07c\x08d\x7fe\rf", "a?b?c?d?e?f", "a?b?c?d?e?f"},
		"C1":                    {"a\u0080b\u009bc\u009fd", "a?b?c?d", "a?b?c?d"},
		"embeddings, overrides": {"\u202aa\u202bb\u202cc\u202dd\u202ee", "?a?b?c?d?e", "?a?b?c?d?e"},
		"isolates":              {"\u2066a\u2067b\u2068c\u2069d", "?a?b?c?d", "?a?b?c?d"},
		"marks":                 {"\u200ea\u200fb\u061cc", "?a?b?c", "?a?b?c"},
		"line breaks":           {"one\ntwo\r\nthree\u2028four\u2029five", "one\ntwo\nthree?four?five", "one two three?four?five"},
		"a tab":                 {"a\tb", "a b", "a b"},
		"not UTF-8":             {"a\xffb", "a?b", "a?b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Lines(test.text); got != test.lines {
				t.Errorf("Lines: %q, want %q", got, test.lines)
			}
			if got := Line(test.text); got != test.line {
				t.Errorf("Line: %q, want %q", got, test.line)
			}
			if len(Lines(test.text)) > len(test.text) {
				t.Error("the text got longer")
			}
		})
	}
}

func TestShorten(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"short enough":            {"größer", "größer"},
		"too long":                {"creating the index", "creat..."},
		"the cut is in a letter":  {"grösßer Index", "grös..."},
		"not UTF-8, short enough": {"a\xffb", "a?b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Shorten(test.text, 8); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

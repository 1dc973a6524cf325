/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package printable

import (
	"regexp"
	"strings"
	"unicode"
)

// plain matches the words that no shell interprets.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,][A-Za-z0-9_./:@%+,=-]*$`)

// Word returns a value as one word, quoted if a shell could interpret it. It reports false for a value that must not be in a
// command: one that is empty, that programs take for a flag, or that a terminal does not show as it is.
func Word(value string) (string, bool) {
	switch {
	case plain.MatchString(value):
		return value, true
	case value == "", strings.HasPrefix(value, "-"), Line(value) != value, strings.ContainsFunc(value, isHidden):
		return "", false
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'", true
}

// WordOr is Word, or a placeholder for the reader to replace, such as NAMESPACE.
func WordOr(value, placeholder string) string {
	if word, ok := Word(value); ok {
		return word
	}
	return placeholder
}

// Words returns values as words with spaces between. It reports false if there is none, or if Word does so for one of them.
func Words(values []string) (string, bool) {
	words := make([]string, len(values))
	for i, value := range values {
		word, ok := Word(value)
		if !ok {
			return "", false
		}
		words[i] = word
	}
	return strings.Join(words, " "), len(words) > 0
}

// IsPlain reports whether a value means the same inside and outside of quotes.
func IsPlain(value string) bool { return plain.MatchString(value) }

// isHidden reports whether a terminal shows a character as a space or not at all.
func isHidden(r rune) bool {
	return r != ' ' && (!unicode.IsGraphic(r) || unicode.IsSpace(r))
}

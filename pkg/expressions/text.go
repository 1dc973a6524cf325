/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Text is a text with expressions: literal parts and expressions in turn.
type Text struct {
	source string
	path   *field.Path
	parts  []part
}

type part struct {
	literal string
	program cel.Program // nil for a literal
	source  string
}

// text parses a string of a template. An expression is in ${...}; $${ is a literal ${.
func (e *Environment) text(source string) (*Text, error) {
	t := &Text{source: source}
	literal := ""
	for source != "" {
		start := strings.Index(source, "${")
		if start < 0 {
			literal += source
			break
		}
		if start > 0 && source[start-1] == '$' {
			literal += source[:start-1] + "${"
			source = source[start+2:]
			continue
		}
		literal += source[:start]
		length := expressionLength(source[start+2:])
		if length < 0 {
			return nil, fmt.Errorf("%q: the expression has no end: close it with }", source)
		}
		expression := source[start+2 : start+2+length]
		program, _, err := e.program(expression)
		if err != nil {
			return nil, fmt.Errorf("expression %q: %w", expression, err)
		}
		if literal != "" {
			t.parts = append(t.parts, part{literal: literal})
			literal = ""
		}
		t.parts = append(t.parts, part{program: program, source: expression})
		source = source[start+2+length+1:]
	}
	if literal != "" {
		t.parts = append(t.parts, part{literal: literal})
	}
	return t, nil
}

// expressionLength returns the index of the brace that ends an expression, or -1. Braces inside the expression and
// inside its strings do not end it.
func expressionLength(source string) int {
	depth := 0
	var quote rune
	escaped := false
	for i, r := range source {
		switch {
		case escaped:
			escaped = false
		case quote != 0 && r == '\\':
			escaped = true
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '{':
			depth++
		case r == '}' && depth == 0:
			return i
		case r == '}':
			depth--
		}
	}
	return -1
}

// render evaluates a string. A string that is one expression can yield any JSON value. Expressions within a text must
// yield strings, numbers or booleans.
func (t *Text) render(values map[string]any) (any, error) {
	if len(t.parts) == 1 && t.parts[0].program != nil {
		return t.parts[0].evaluate(values)
	}
	return t.join(values, nil)
}

// join evaluates a string as a text, and escapes the results of expressions. escape can be nil.
func (t *Text) join(values map[string]any, escape func(string) string) (string, error) {
	var result strings.Builder
	for _, p := range t.parts {
		if p.program == nil {
			result.WriteString(p.literal)
			continue
		}
		value, err := p.evaluate(values)
		if err != nil {
			return "", err
		}
		switch value.(type) {
		case string, bool, int64, uint64, float64:
			text := fmt.Sprint(value)
			if escape != nil {
				text = escape(text)
			}
			result.WriteString(text)
		default:
			return "", fmt.Errorf("expression %q yields a %T, which cannot be part of a text: it must yield a string", p.source, value)
		}
	}
	return result.String(), nil
}

func (p part) evaluate(values map[string]any) (any, error) {
	value, _, err := p.program.Eval(values)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", p.source, err)
	}
	native, err := value.ConvertToNative(types.JSONValueType)
	if err != nil {
		return nil, fmt.Errorf("expression %q: its result is not a JSON value: %w", p.source, err)
	}
	result, _ := walk(native.(*structpb.Value).AsInterface(), nil, wholeNumber)
	return result, nil
}

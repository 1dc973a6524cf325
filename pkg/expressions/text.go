/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"google.golang.org/protobuf/types/known/structpb"
)

// text is a string of a template: literal parts and expressions in turn. What an
// expression yields is data, and is never looked at for expressions again.
type text struct {
	source string
	parts  []part
}

type part struct {
	literal string
	program cel.Program // nil for a literal
	source  string
}

// text reads a string of a template. Expressions stand in ${...}; $${ stands for a
// literal ${.
func (e *Environment) text(source string) (*text, error) {
	t := &text{source: source}
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
			return nil, fmt.Errorf("%q: the expression has no end, close it with }", source)
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

// expressionLength returns where the brace is that ends an expression. Braces inside the
// expression and inside its strings do not end it.
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

// render evaluates a string. A single expression may yield any JSON value, and expressions
// within a text strings, numbers and booleans.
func (t *text) render(values map[string]any) (any, error) {
	if len(t.parts) == 1 && t.parts[0].program != nil {
		value, err := t.parts[0].evaluate(values)
		if err != nil {
			return nil, err
		}
		return value, nil
	}
	return t.join(values, func(s string) string { return s })
}

// join evaluates a string as a text, in which what expressions yield is escaped.
func (t *text) join(values map[string]any, escape func(string) string) (string, error) {
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
			result.WriteString(escape(fmt.Sprint(value)))
		default:
			return "", fmt.Errorf("expression %q yields a %T, which cannot be put into a text: let it yield a string", p.source, value)
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
		return nil, fmt.Errorf("expression %q: its result is no JSON value: %w", p.source, err)
	}
	return fromJSON(native.(*structpb.Value).AsInterface()), nil
}

// fromJSON makes whole numbers of what JSON knows as numbers alone: the content of
// unstructured objects tells the two apart.
func fromJSON(value any) any {
	switch typed := value.(type) {
	case float64:
		if typed == math.Trunc(typed) && math.Abs(typed) < 1<<53 {
			return int64(typed)
		}
	case []any:
		for i := range typed {
			typed[i] = fromJSON(typed[i])
		}
	case map[string]any:
		for key := range typed {
			typed[key] = fromJSON(typed[key])
		}
	}
	return value
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Template is a JSON value with expressions.
type Template struct {
	value any // strings are *text
	path  *field.Path
}

// Template compiles a JSON value: strings, numbers, booleans, nil, []any and map[string]any. The
// path says where it stands, for errors, of which there is one for each expression that is
// wrong. Keys are literal.
func (e *Environment) Template(value any, path *field.Path) (*Template, field.ErrorList) {
	compiled, errs := e.compile(value, path)
	return &Template{compiled, path}, errs
}

func (e *Environment) compile(value any, path *field.Path) (any, field.ErrorList) {
	var errs field.ErrorList
	switch typed := value.(type) {
	case string:
		text, err := e.text(typed)
		if err != nil {
			return nil, field.ErrorList{field.Invalid(path, typed, err.Error())}
		}
		return text, nil
	case []any:
		result := make([]any, len(typed))
		for i := range typed {
			inner, innerErrs := e.compile(typed[i], path.Index(i))
			result[i], errs = inner, append(errs, innerErrs...)
		}
		return result, errs
	case map[string]any:
		result := make(map[string]any, len(typed))
		for key := range typed {
			inner, innerErrs := e.compile(typed[key], path.Child(key))
			result[key], errs = inner, append(errs, innerErrs...)
		}
		return result, errs
	}
	return fromJSON(value), nil
}

// Render returns the value with the expressions evaluated. Whole numbers are int64. The error
// names the field.
func (t *Template) Render(variables map[string]any) (any, error) {
	value, err := render(t.value, variables, t.path)
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Text is a text with expressions.
type Text struct {
	text *text
	path *field.Path
}

// Text compiles a text.
func (e *Environment) Text(source string, path *field.Path) (*Text, field.ErrorList) {
	compiled, err := e.text(source)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, source, err.Error())}
	}
	return &Text{compiled, path}, nil
}

// Render returns the text with what its expressions yield, which are strings, numbers or
// booleans. The function escapes what they yield, and nothing else; nil leaves it as it is.
func (t *Text) Render(variables map[string]any, escape func(string) string) (string, error) {
	if escape == nil {
		escape = func(s string) string { return s }
	}
	rendered, err := t.text.join(variables, escape)
	if err != nil {
		return "", field.Invalid(t.path, t.text.source, err.Error())
	}
	return rendered, nil
}

func render(value any, variables map[string]any, path *field.Path) (any, *field.Error) {
	switch typed := value.(type) {
	case *text:
		rendered, err := typed.render(variables)
		if err != nil {
			return nil, field.Invalid(path, typed.source, err.Error())
		}
		return rendered, nil
	case []any:
		result := make([]any, len(typed))
		for i := range typed {
			var err *field.Error
			if result[i], err = render(typed[i], variables, path.Index(i)); err != nil {
				return nil, err
			}
		}
		return result, nil
	case map[string]any:
		result := make(map[string]any, len(typed))
		for key := range typed {
			var err *field.Error
			if result[key], err = render(typed[key], variables, path.Child(key)); err != nil {
				return nil, err
			}
		}
		return result, nil
	}
	return value, nil
}

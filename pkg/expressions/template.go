/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Template is a JSON value with expressions.
type Template struct {
	value any // strings are *Text
	path  *field.Path
}

// Template compiles a JSON value: strings, numbers, booleans, nil, []any and map[string]any. Keys are literal. The path
// is that of the value. Each invalid expression is one error.
func (e *Environment) Template(value any, path *field.Path) (*Template, field.ErrorList) {
	compiled, errs := walk(value, path, func(leaf any, path *field.Path) (any, *field.Error) {
		source, ok := leaf.(string)
		if !ok {
			return wholeNumber(leaf, path)
		}
		compiled, err := e.text(source)
		if err != nil {
			return nil, field.Invalid(path, source, err.Error())
		}
		return compiled, nil
	})
	return &Template{compiled, path}, errs
}

// Render returns the value with the expressions evaluated. Whole numbers are int64. The error
// names the field.
func (t *Template) Render(variables map[string]any) (any, error) {
	value, errs := walk(t.value, t.path, func(leaf any, path *field.Path) (any, *field.Error) {
		compiled, ok := leaf.(*Text)
		if !ok {
			return leaf, nil
		}
		rendered, err := compiled.render(variables)
		if err != nil {
			return nil, field.Invalid(path, compiled.source, err.Error())
		}
		return rendered, nil
	})
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return value, nil
}

// Text compiles a text.
func (e *Environment) Text(source string, path *field.Path) (*Text, field.ErrorList) {
	compiled, err := e.text(source)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, source, err.Error())}
	}
	compiled.path = path
	return compiled, nil
}

// Render returns the text with the results of its expressions, which must be strings, numbers or booleans. escape, if
// it is not nil, is applied to each result and not to the literal parts.
func (t *Text) Render(variables map[string]any, escape func(string) string) (string, error) {
	rendered, err := t.join(variables, escape)
	if err != nil {
		return "", field.Invalid(t.path, t.source, err.Error())
	}
	return rendered, nil
}

// walk returns a JSON value in which f has replaced everything but lists and objects.
func walk(value any, path *field.Path, f func(leaf any, path *field.Path) (any, *field.Error)) (any, field.ErrorList) {
	var errs field.ErrorList
	child := func(value any, path *field.Path) any {
		result, childErrs := walk(value, path, f)
		errs = append(errs, childErrs...)
		return result
	}
	switch typed := value.(type) {
	case []any:
		result := make([]any, len(typed))
		for i := range typed {
			result[i] = child(typed[i], path.Index(i))
		}
		return result, errs
	case map[string]any:
		result := make(map[string]any, len(typed))
		for _, key := range slices.Sorted(maps.Keys(typed)) {
			result[key] = child(typed[key], path.Child(key))
		}
		return result, errs
	}
	result, err := f(value, path)
	if err != nil {
		errs = append(errs, err)
	}
	return result, errs
}

// wholeNumber returns a whole number as int64: JSON does not distinguish it from a float64, unstructured objects do.
func wholeNumber(value any, _ *field.Path) (any, *field.Error) {
	if number, ok := value.(float64); ok && number == math.Trunc(number) && math.Abs(number) < 1<<53 {
		return int64(number), nil
	}
	return value, nil
}

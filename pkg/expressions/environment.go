/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// costLimit bounds what one expression may cost to evaluate, in CEL's units.
const costLimit = 100_000

// Environment compiles expressions.
type Environment struct{ cel *cel.Env }

// NewEnvironment returns an environment with the variables of a namespace, and more variables of type dyn.
func NewEnvironment(more ...string) (*Environment, error) {
	options := []cel.EnvOption{
		ext.Strings(),
		ext.Encoders(),
		cel.OptionalTypes(),
		cel.Variable("namespaceObject", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("creator", cel.StringType),
		cel.Variable("creatorGroups", cel.ListType(cel.StringType)),
	}
	for _, name := range more {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	environment, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("cannot set up CEL: %w", err)
	}
	return &Environment{environment}, nil
}

// Variables returns the values of the variables for one namespace.
func Variables(namespace *corev1.Namespace) map[string]any {
	return map[string]any{
		"namespaceObject": map[string]any{
			"metadata": map[string]any{
				"name":        namespace.Name,
				"uid":         string(namespace.UID),
				"labels":      namespace.Labels,
				"annotations": namespace.Annotations,
			},
		},
		"creator":       namespace.Annotations[v1alpha1.AnnotationCreatedBy],
		"creatorGroups": strings.FieldsFunc(namespace.Annotations[v1alpha1.AnnotationCreatedByGroups], func(r rune) bool { return r == '\n' }),
	}
}

func (e *Environment) program(expression string) (cel.Program, *cel.Type, error) {
	ast, issues := e.cel.Compile(expression)
	if issues.Err() != nil {
		return nil, nil, issues.Err()
	}
	program, err := e.cel.Program(ast, cel.CostLimit(costLimit))
	return program, ast.OutputType(), err
}

// Condition is an expression that yields true or false.
type Condition struct {
	program cel.Program
	source  string
}

// Condition compiles an expression without ${}.
func (e *Environment) Condition(source string) (*Condition, error) {
	program, kind, err := e.program(source)
	if err != nil {
		return nil, err
	}
	if !kind.IsExactType(cel.BoolType) && !kind.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it yields a value of type %s: it must yield true or false", kind)
	}
	return &Condition{program, source}, nil
}

// Holds evaluates the condition.
func (c *Condition) Holds(variables map[string]any) (bool, error) {
	value, _, err := c.program.Eval(variables)
	if err != nil {
		return false, fmt.Errorf("expression %q: %w", c.source, err)
	}
	holds, ok := value.Value().(bool)
	if !ok {
		return false, fmt.Errorf("expression %q: it yields neither true nor false", c.source)
	}
	return holds, nil
}

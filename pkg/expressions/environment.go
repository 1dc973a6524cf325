/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// costLimit bounds what one expression of a template may cost to evaluate, in CEL's units.
const costLimit = 100_000

// Environment compiles expressions.
type Environment struct {
	cel     *cel.Env
	options []cel.ProgramOption
}

// NewEnvironment returns an environment with the variables of a namespace, and more variables of type dyn.
func NewEnvironment(more ...string) (*Environment, error) {
	options := []cel.EnvOption{cel.Variable("namespaceObject", cel.MapType(cel.StringType, cel.DynType))}
	for _, name := range more {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	return newEnvironment(options, cel.CostLimit(costLimit))
}

// newEnvironment returns an environment with the functions of all environments and the creator of a namespace.
func newEnvironment(more []cel.EnvOption, options ...cel.ProgramOption) (*Environment, error) {
	environment, err := cel.NewEnv(append([]cel.EnvOption{
		ext.Strings(),
		ext.Encoders(),
		cel.OptionalTypes(),
		cel.Variable("creator", cel.StringType),
		cel.Variable("creatorGroups", cel.ListType(cel.StringType)),
		cel.Variable("requester", cel.StringType),
	}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot set up CEL: %w", err)
	}
	return &Environment{environment, options}, nil
}

// Variables returns the values of the variables for one namespace. A creator that another user named has the groups that kube-apiserver
// gives to a user who is impersonated without groups.
func Variables(namespace *corev1.Namespace) map[string]any {
	creator, requester := helper.Creator(namespace), namespace.Annotations[v1alpha1.AnnotationCreatedBy]
	groups := []string{user.AllAuthenticated}
	if creator == requester {
		groups = strings.FieldsFunc(namespace.Annotations[v1alpha1.AnnotationCreatedByGroups], func(r rune) bool { return r == '\n' })
	}
	return map[string]any{
		"namespaceObject": map[string]any{
			"metadata": map[string]any{
				"name":        namespace.Name,
				"uid":         string(namespace.UID),
				"labels":      namespace.Labels,
				"annotations": namespace.Annotations,
			},
		},
		"creator":       creator,
		"creatorGroups": groups,
		"requester":     requester,
	}
}

// KnownVariables returns the values of the variables for a namespace that can be older than nsinit. If its creator is not
// recorded, the result of an expression that depends on the creator is an error, and never that of an empty name.
func KnownVariables(namespace *corev1.Namespace) map[string]any {
	variables := Variables(namespace)
	if variables["creator"] == "" {
		unknown := types.NewErr(`the creator of the namespace is unknown: it has no annotation %[1]s. To leave such namespaces out, begin "when" with `+
			`"%[1]s" in namespaceObject.metadata.annotations &&`, v1alpha1.AnnotationCreatedBy)
		variables["creator"], variables["creatorGroups"], variables["requester"] = unknown, unknown, unknown
	}
	return variables
}

func (e *Environment) program(expression string) (cel.Program, *cel.Ast, error) {
	ast, issues := e.cel.Compile(expression)
	if issues.Err() != nil {
		return nil, nil, issues.Err()
	}
	program, err := e.cel.Program(ast, e.options...)
	return program, ast, err
}

// Condition is an expression that yields true or false.
type Condition struct {
	program cel.Program
	source  string
}

// Condition compiles an expression without ${}.
func (e *Environment) Condition(source string) (*Condition, error) {
	condition, _, err := e.condition(source, cel.BoolType, cel.DynType)
	return condition, err
}

// condition compiles an expression that has one of some types.
func (e *Environment) condition(source string, kinds ...*cel.Type) (*Condition, *cel.Ast, error) {
	program, ast, err := e.program(source)
	if err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(kinds, ast.OutputType().IsExactType) {
		return nil, nil, fmt.Errorf("it yields a value of type %s: it must yield true or false", ast.OutputType())
	}
	return &Condition{program, source}, ast, nil
}

// String returns the expression.
func (c *Condition) String() string { return c.source }

// Holds evaluates the condition.
func (c *Condition) Holds(variables map[string]any) (bool, error) {
	holds, _, err := c.evaluate(variables)
	if err != nil {
		return false, fmt.Errorf("expression %q: %w", c.source, err)
	}
	return holds, nil
}

// evaluate also returns what the evaluation cost, in CEL's units. It is 0 if costs are not tracked.
func (c *Condition) evaluate(variables map[string]any) (holds bool, cost uint64, err error) {
	value, details, err := c.program.Eval(variables)
	if details != nil && details.ActualCost() != nil {
		cost = *details.ActualCost()
	}
	if err != nil {
		return false, cost, err
	}
	holds, ok := value.Value().(bool)
	if !ok {
		return false, cost, errors.New("it yields neither true nor false")
	}
	return holds, cost, nil
}

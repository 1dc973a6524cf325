/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"fmt"
	"math"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/utils/lru"
)

const (
	// MaxConditionCost bounds the cost of one condition, estimated when it is written and measured when it is evaluated, in
	// CEL's units. It is the limit that kube-apiserver has for one call.
	MaxConditionCost = 1_000_000
	// MaxConditionLength is the length, in bytes, of the longest condition.
	MaxConditionLength = 16 << 10
	// unbounded is less than every estimate for a value of unknown size, of which some are a fraction of the largest uint64.
	unbounded = math.MaxInt64 / 1000
	// cachedConditions is how many compiled conditions a Selection keeps. A typical one needs 20 KiB.
	cachedConditions = 1024
)

// Selection compiles the conditions that select namespaces. Its methods can be called concurrently.
type Selection struct {
	environment func() (*Environment, error)
	cache       *lru.Cache // compiled, by expression
	costs       *lru.Cache // costed, by expression
}

// costed is the estimated cost of a condition, or why it is refused.
type costed struct {
	cost uint64
	err  error
}

// compiled is a condition, or why it cannot be compiled.
type compiled struct {
	condition *Condition
	err       error
}

// NewSelection returns a Selection that has compiled nothing.
func NewSelection() *Selection {
	return &Selection{environment: sync.OnceValues(newSelectionEnvironment), cache: lru.New(cachedConditions), costs: lru.New(cachedConditions)}
}

// newSelectionEnvironment returns an environment in which the fields of the namespace have types, so that a misspelled
// field is an error.
func newSelectionEnvironment() (*Environment, error) {
	field := func(name string, kind *apiservercel.DeclType) *apiservercel.DeclField {
		return apiservercel.NewDeclField(name, kind, true, nil, nil)
	}
	object := func(name string, fields ...*apiservercel.DeclField) *apiservercel.DeclType {
		byName := map[string]*apiservercel.DeclField{}
		for _, f := range fields {
			byName[f.Name] = f
		}
		return apiservercel.NewObjectType(name, byName)
	}
	texts := apiservercel.NewMapType(apiservercel.StringType, apiservercel.StringType, -1)
	namespace := object("Namespace", field("metadata", object("Namespace.metadata",
		field("name", apiservercel.StringType), field("uid", apiservercel.StringType), field("labels", texts), field("annotations", texts))))
	declared := func(e *cel.Env) (*cel.Env, error) {
		options, err := apiservercel.NewDeclTypeProvider(namespace).EnvOptions(e.CELTypeProvider())
		if err != nil {
			return nil, err
		}
		return e.Extend(options...)
	}
	return newEnvironment([]cel.EnvOption{declared, cel.Variable("namespaceObject", namespace.CelType()), cel.Macros(refused("optMap"), refused("optFlatMap"))},
		cel.CostLimit(MaxConditionCost), cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost))
}

// refused replaces a macro that copies its target, so that a short expression can become very large.
func refused(name string) cel.Macro {
	return cel.ReceiverMacro(name, 2, func(factory cel.MacroExprFactory, target ast.Expr, _ []ast.Expr) (ast.Expr, *cel.Error) {
		return nil, factory.NewError(target.ID(), fmt.Sprintf("%s is not available here because its cost cannot be bounded: use orValue or hasValue", name))
	})
}

// Check returns why an expression cannot be a condition, or nil. Errors in the expression have a line with a caret below
// the position.
func (s *Selection) Check(expression string) error {
	_, err := s.Cost(expression)
	return err
}

// Cost returns the estimated cost of a condition, in CEL's units, or the error of Check.
func (s *Selection) Cost(expression string) (uint64, error) {
	if cached, found := s.costs.Get(expression); found {
		result := cached.(costed)
		return result.cost, result.err
	}
	cost, err := s.estimate(expression)
	s.costs.Add(expression, costed{cost, err})
	return cost, err
}

func (s *Selection) estimate(expression string) (uint64, error) {
	environment, err := s.environment()
	if err != nil {
		return 0, err
	}
	if len(expression) > MaxConditionLength {
		return 0, fmt.Errorf("it has %d bytes and may have %d: split it into several conditions", len(expression), MaxConditionLength)
	}
	_, checked, err := environment.condition(expression, cel.BoolType)
	if err != nil {
		return 0, err
	}
	if err := checkFunctions(checked); err != nil {
		return 0, err
	}
	if parsed, issues := environment.cel.Parse(expression); issues.Err() == nil {
		if err := checkNames(parsed); err != nil {
			return 0, err
		}
	}
	estimate, err := environment.cel.EstimateCost(checked, sizes{})
	if err != nil {
		return 0, fmt.Errorf("cannot estimate the cost: %w", err)
	}
	switch {
	case estimate.Max > unbounded:
		return 0, fmt.Errorf("its cost cannot be bounded, and may be %d: use values of a known size, such as creator and the items of creatorGroups", MaxConditionCost)
	case estimate.Max > MaxConditionCost:
		return 0, fmt.Errorf("its estimated cost is %d, and may be %d: do not nest loops over labels, annotations and creatorGroups, and use == or startsWith instead of contains and matches",
			estimate.Max, MaxConditionCost)
	}
	return estimate.Max, nil
}

// SelectionVariables returns the values of the variables of conditions for one namespace. If there are too many labels,
// annotations or groups, reading them is an error.
func SelectionVariables(namespace *corev1.Namespace) map[string]any {
	variables := Variables(namespace)
	limit := func(in map[string]any, key string, count int) {
		if count > MaxEntries {
			in[key] = types.NewErr("there are %d %s, and a condition can read at most %d", count, key, MaxEntries)
		}
	}
	metadata, _ := variables["namespaceObject"].(map[string]any)["metadata"].(map[string]any)
	limit(metadata, "labels", len(namespace.Labels))
	limit(metadata, "annotations", len(namespace.Annotations))
	groups, _ := variables["creatorGroups"].([]string)
	limit(variables, "creatorGroups", len(groups))
	return variables
}

// Holds evaluates a condition with SelectionVariables, and returns what this cost, in CEL's units. It compiles conditions that Check refuses,
// because another version may have accepted them, but does not let them exceed MaxConditionCost.
func (s *Selection) Holds(expression string, variables map[string]any) (holds bool, cost uint64, err error) {
	result := s.compile(expression)
	if result.err != nil {
		return false, 0, result.err
	}
	return result.condition.evaluate(variables)
}

func (s *Selection) compile(expression string) compiled {
	if cached, found := s.cache.Get(expression); found {
		return cached.(compiled)
	}
	var result compiled
	environment, err := s.environment()
	if err == nil {
		result.condition, _, err = environment.condition(expression, cel.BoolType)
	}
	result.err = err
	s.cache.Add(expression, result)
	return result
}

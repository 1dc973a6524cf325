/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package expressions

import (
	"errors"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Sizes of the variables that the estimate assumes. Conditions cannot read more entries. Longer names of users and groups
// cost more: then MaxConditionCost ends the evaluation.
const (
	MaxEntries   = 1024 // labels, annotations and groups
	maxUser      = 1024 // characters of the name of a user
	maxGroup     = 256  // characters of the name of a group
	maxUID       = 36
	maxName      = validation.DNS1123LabelMaxLength
	maxKey       = validation.DNS1123SubdomainMaxLength + 1 + maxLabel // with a prefix
	maxLabel     = validation.LabelValueMaxLength
	maxAnnotated = apivalidation.TotalAnnotationSizeLimitB
)

// sizes estimates the sizes of the variables. It implements checker.CostEstimator.
type sizes struct{}

// EstimateSize implements checker.CostEstimator.
func (sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate { return sizeAt(node.Path()) }

// sizeAt returns the size of the value at a path: the number of characters or of entries. It is nil if the path leads to
// neither.
func sizeAt(path []string) *checker.SizeEstimate {
	largest := 0
	switch {
	case slices.Equal(path, []string{"creator"}), slices.Equal(path, []string{"requester"}):
		largest = maxUser
	case slices.Equal(path, []string{"creatorGroups"}):
		largest = MaxEntries
	case len(path) == 2 && path[0] == "creatorGroups":
		largest = maxGroup
	case len(path) < 3 || path[0] != "namespaceObject" || path[1] != "metadata":
		return nil
	case len(path) == 3:
		largest = map[string]int{"name": maxName, "uid": maxUID, "labels": MaxEntries, "annotations": MaxEntries}[path[2]]
	case path[3] == "@keys":
		largest = maxKey
	case path[2] == "labels":
		largest = maxLabel
	case path[2] == "annotations":
		largest = maxAnnotated
	}
	if largest == 0 {
		return nil
	}
	return &checker.SizeEstimate{Max: uint64(largest)}
}

// EstimateCallCost implements checker.CostEstimator. It adds the sizes of optional values, which CEL does not know.
func (s sizes) EstimateCallCost(function, _ string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	var size *checker.SizeEstimate
	switch {
	case (function == operators.OptIndex || function == operators.OptSelect) && len(args[0].Path()) > 0:
		size = sizeAt(append(slices.Clone(args[0].Path()), "@values"))
	case function == "optional.of":
		size = args[0].ComputedSize()
	case function == "value":
		size = (*target).ComputedSize()
	case function == "or" || function == "orValue":
		if first, second := (*target).ComputedSize(), args[0].ComputedSize(); first != nil && second != nil {
			size = new(first.Union(*second))
		}
	}
	if size == nil {
		return nil
	}
	return &checker.CallEstimate{CostEstimate: checker.FixedCostEstimate(1), ResultSize: size}
}

// isBounded reports whether the estimate knows what a function costs, and how large its result is. No function makes a
// long list, because the time of a loop grows with the square of its length while CEL measures the cost.
func isBounded(function string) bool {
	switch function {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse, operators.Conditional,
		operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
		operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate,
		operators.In, operators.Index, operators.OptIndex, operators.OptSelect,
		overloads.Size, overloads.StartsWith, overloads.EndsWith, overloads.Contains, overloads.Matches,
		overloads.TypeConvertInt, overloads.TypeConvertString,
		"charAt", "indexOf", "lastIndexOf", "lowerAscii", "upperAscii", "replace", "substring", "trim",
		"optional.of", "optional.none", "hasValue", "value", "or", "orValue":
		return true
	}
	return false
}

// checkFunctions returns an error for functions whose cost cannot be estimated.
func checkFunctions(checked *cel.Ast) error {
	return refuse(checked, func(e ast.Expr) string {
		switch e.Kind() {
		case ast.CallKind:
			if name := e.AsCall().FunctionName(); !isBounded(name) {
				return name + " is not available here because its cost cannot be bounded"
			}
		case ast.StructKind:
			return "objects are not available here: use a map"
		}
		return ""
	})
}

// checkNames returns an error for names that begin with a dot. kube-apiserver evaluates conditions for pods and Jobs in loops, and such
// a name is not that of the variable of a loop. A checked expression does not have the dot any more.
func checkNames(parsed *cel.Ast) error {
	return refuse(parsed, func(e ast.Expr) string {
		if e.Kind() == ast.IdentKind && strings.HasPrefix(e.AsIdent(), ".") {
			return e.AsIdent() + " begins with a dot: remove the dot"
		}
		return ""
	})
}

// refuse returns an error, with a caret for each position, for the parts of an expression that have a problem.
func refuse(tree *cel.Ast, problem func(e ast.Expr) string) error {
	native := tree.NativeRep()
	problems := common.NewErrors(tree.Source())
	ast.PostOrderVisit(native.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if text := problem(e); text != "" {
			problems.ReportErrorAtID(e.ID(), native.SourceInfo().GetStartLocation(e.ID()), "%s", text)
		}
	}))
	if len(problems.GetErrors()) == 0 {
		return nil
	}
	return errors.New(problems.ToDisplayString())
}

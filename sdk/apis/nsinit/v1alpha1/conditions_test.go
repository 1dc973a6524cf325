/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestConditionsHaveObservedGeneration: wherever nsinit makes a condition of its kinds, it sets the generation
// that the condition describes. Tools that wait for a condition compare it with that of the object.
func TestConditionsHaveObservedGeneration(t *testing.T) {
	elsewhere := map[string]string{
		"pkg/plan/degraded.go":                              "the registry sets it with the generation of the new object",
		"pkg/cli/status/command.go":                         "it prints a condition of a Namespace, which has no such field",
		"pkg/registry/nsinit/accessiblenamespace/object.go": "it describes a Namespace, which has no generation",
		"pkg/util/namespaces/conditions.go":                 "it copies a condition of a Namespace, which has no such field",
	}
	checked := 0
	root := os.DirFS("../../../..")
	for _, dir := range []string{"pkg", "sdk", "cmd", "vendor-hooks"} {
		if err := fs.WalkDir(root, dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasPrefix(path, "sdk/generated/") || strings.HasPrefix(entry.Name(), "zz_generated.") {
				return err
			}
			source, err := fs.ReadFile(root, path)
			if err != nil {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, condition := range conditionsMade(file) {
				checked++
				if !hasKey(condition, "ObservedGeneration") && elsewhere[path] == "" {
					t.Errorf("%s: this condition has no ObservedGeneration: add it", files.Position(condition.Pos()))
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if checked < 10 {
		t.Errorf("found %d conditions, want at least 10: the test does not recognize them", checked)
	}
}

// conditionsMade returns the literals of the type metav1.Condition, including the elements of slices.
func conditionsMade(file *ast.File) []*ast.CompositeLit {
	var found []*ast.CompositeLit
	ast.Inspect(file, func(node ast.Node) bool {
		literal, ok := node.(*ast.CompositeLit)
		if !ok {
			return true
		}
		switch kind := literal.Type.(type) {
		case *ast.ArrayType:
			if isCondition(kind.Elt) {
				for _, element := range literal.Elts {
					if element, ok := element.(*ast.CompositeLit); ok && element.Type == nil {
						found = append(found, element)
					}
				}
			}
		default:
			if isCondition(kind) {
				found = append(found, literal)
			}
		}
		return true
	})
	return found
}

func isCondition(kind ast.Expr) bool {
	selector, ok := kind.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Condition" {
		return false
	}
	pkg, ok := selector.X.(*ast.Ident)
	return ok && pkg.Name == "metav1"
}

func hasKey(literal *ast.CompositeLit, name string) bool {
	return slices.ContainsFunc(literal.Elts, func(element ast.Expr) bool {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		key, ok := pair.Key.(*ast.Ident)
		return ok && key.Name == name
	})
}

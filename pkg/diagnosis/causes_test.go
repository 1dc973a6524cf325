/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// TestRealCauses: an end-to-end test waits until kubectl nsinit why finds each cause on a real control plane. Causes are
// arguments of WaitWhy, or keys of wedges.
func TestRealCauses(t *testing.T) {
	paths, err := filepath.Glob("../../test/e2e/*_test.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	real := map[Cause]bool{}
	note := func(expressions ...ast.Expr) {
		for _, expression := range expressions {
			if selector, ok := expression.(*ast.SelectorExpr); ok {
				if from, ok := selector.X.(*ast.Ident); ok && from.Name == "diagnosis" {
					real[Cause(selector.Sel.Name)] = true
				}
			}
		}
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.CallExpr:
				if called, ok := node.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "WaitWhy" {
					note(node.Args...)
				}
			case *ast.KeyValueExpr:
				if _, ok := node.Value.(*ast.CompositeLit); ok {
					note(node.Key)
				}
			}
			return true
		})
	}
	for _, entry := range causes() {
		if !real[entry.cause] {
			t.Errorf("no end-to-end test produces %s: add one to TestWhyStuck, or wait for it with WaitWhy", entry.cause)
		}
	}
}

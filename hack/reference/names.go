/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const namesHeader = `# Labels, annotations, conditions and events

` + written + `
This page lists the names that nsinit uses in objects, events and errors.
[Troubleshoot](../troubleshoot.md#see-what-a-namespace-waits-for) says what to do.
`

// section is a table of the page.
type section struct {
	title, introduction, column string
	// names match the names of constants, and files the files that declare them, from the root of the repository.
	names, files *regexp.Regexp
}

// sections returns the tables of the page, in their order.
func sections() []section {
	const (
		api             = `^sdk/apis/nsinit/v1alpha1/`
		ofNamespaces    = api + `(names|types_namespacelifecycle)\.go$`
		ofRegistrations = api + `types_namespaceinitializerconfiguration\.go$|^pkg/controller/configuration/`
		ofObjects       = api + `types_initializerconfiguration\.go$|^pkg/controller/objects/`
		ofPopulations   = api + `types_namespacepopulation\.go$|^pkg/population/`
		conditions      = `^Condition[A-Z]`
		reasons         = `^[rR]eason[A-Z]`
	)
	var all []section
	for _, s := range [][5]string{
		{"Labels", "", "label", `^Label[A-Z]`, api},
		{"Annotations", "An optional policy uses another annotation to [protect namespaces](../freeze.md#protect-namespaces-from-deletion) from deletion.", "annotation", `^Annotation[A-Z]`, api},
		{"Finalizers", "", "finalizer", `Finalizer$|^FinalizerKubernetes$`, api},
		{"Annotations of the audit log", "nsinit-apiserver sets these annotations in its audit log. The audit log of kube-apiserver reports the opening of a gate as `nsinit-guard/gate-opened`.", "annotation", `^Audit[A-Z]`, api},
		{"Verbs", "RBAC grants these verbs. `kubectl nsinit rbac` prints the rules for an initializer.", "verb", `^Verb[A-Z]`, api},
		{"Resources for authorization", "", "resource of nsinit.dev", `^Resource[A-Z]`, api},
		{"Conditions of namespaces", "Namespaces and NamespaceLifecycles have these conditions. An AccessibleNamespace has the conditions of its namespace.", "condition", conditions, ofNamespaces},
		{"Reasons of these conditions", "", "reason", reasons, ofNamespaces},
		{"Conditions of NamespaceInitializerConfigurations", "NamespaceInitializerConfigurations also have the conditions `Ready` and `Stalled`.", "condition", conditions, ofRegistrations},
		{"Reasons of conditions of configurations", "", "reason", reasons, ofRegistrations},
		{"Conditions of InitializerConfigurations", "InitializerConfigurations also have the condition `Ready`.", "condition", conditions, ofObjects},
		{"Reasons of conditions of InitializerConfigurations", "", "reason", reasons, ofObjects},
		{"Conditions of populations", "NamespacePopulations and PopulatedNamespaces also have the condition `Ready`.", "condition", conditions, ofPopulations},
		{"Reasons of conditions of populations", "", "reason", reasons, ofPopulations},
		{"Reasons of errors", "", "reason", reasons, `^pkg/admission/`},
		{"Events of namespaces", "Programs that use the SDK record `InitializerError` and `FinalizerError`. When a namespace opens, the event has the reason of the condition `Ready`. " +
			"Events also report the reasons `InitializationFailed`, `OpenedByHand`, `Frozen` and `Unfrozen`, and the condition `PlanDegraded`.", "reason", `^event[A-Z]`, `^pkg/controller/lifecycle/|^sdk/initializer/`},
		{"Events of the gate", "nsinit-controller-manager records these events on the ValidatingAdmissionPolicy `nsinit-guard-create`.", "reason", `^event[A-Z]`, `^pkg/controller/gate/`},
		{"Events of pods and Jobs", "nsinit-controller-manager records these events on pods and Jobs that wait for initializers.", "reason", `^event[A-Z]`, `^pkg/controller/objects/`},
		{"Events of populations", "", "reason", `^event[A-Z]`, `^pkg/population/`},
	} {
		all = append(all, section{s[0], s[1], s[2], regexp.MustCompile(s[3]), regexp.MustCompile(s[4])})
	}
	return all
}

// constant is a constant of the code with a text.
type constant struct{ file, name, value, comment string }

// namesPage returns the page of the names in objects.
func namesPage(root string) (string, error) {
	constants, err := constantsOf(root)
	if err != nil {
		return "", err
	}
	var page strings.Builder
	fmt.Fprintf(&page, namesHeader, "constants and their comments")
	listed := map[constant]bool{}
	for _, s := range sections() {
		fmt.Fprintf(&page, "\n## %s\n\n", s.title)
		if s.introduction != "" {
			fmt.Fprintf(&page, "%s\n\n", s.introduction)
		}
		fmt.Fprintf(&page, "| %s | |\n| --- | --- |\n", s.column)
		for _, c := range constants {
			if !s.names.MatchString(c.name) || !s.files.MatchString(c.file) {
				continue
			}
			if c.comment == "" {
				return "", fmt.Errorf("%s: %s has no comment that names it", c.file, c.name)
			}
			listed[c] = true
			fmt.Fprintf(&page, "| `%s` | %s |\n", c.value, cell(meaning(c, constants)))
		}
	}
	seen := regexp.MustCompile(`^(Label|Annotation|Audit|Condition|[rR]eason|event)[A-Z]`)
	for _, c := range constants {
		if seen.MatchString(c.name) && !listed[c] {
			return "", fmt.Errorf("%s: no section of %s has %s", c.file, "hack/reference/names.go", c.name)
		}
	}
	return page.String(), nil
}

// meaning returns the comment of a constant without its name, and with the values of other constants instead of their names.
func meaning(c constant, constants []constant) string {
	text := c.comment
	for _, prefix := range []string{c.name + ": ", c.name + " is ", c.name + ", ", c.name + " "} {
		if rest, found := strings.CutPrefix(text, prefix); found {
			text = rest
			break
		}
	}
	text = regexp.MustCompile(`\b[A-Z]\w+\b`).ReplaceAllStringFunc(text, func(word string) string {
		for _, other := range constants {
			if other.name == word && filepath.Dir(other.file) == filepath.Dir(c.file) {
				return "`" + other.value + "`"
			}
		}
		return word
	})
	first, size := utf8.DecodeRuneInString(text)
	if word, _, _ := strings.Cut(text, " "); strings.HasPrefix(word, "nsinit") || strings.Contains(word, "-") {
		return text // the name of a program
	}
	return string(unicode.ToUpper(first)) + text[size:]
}

// constantsOf returns the constants in pkg and sdk whose value is a text without spaces, in the order of their files.
func constantsOf(root string) ([]constant, error) {
	var all []constant
	files := token.NewFileSet()
	for _, folder := range []string{"sdk", "pkg"} {
		if err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			name := entry.Name()
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (name == "generated" || name == "testdata" || path == filepath.Join(root, "pkg", "cli")):
				return fs.SkipDir
			case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_") || strings.HasSuffix(name, ".pb.go"):
				return nil
			}
			file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			all = append(all, declared(file, filepath.ToSlash(relative))...)
			return literals(files, file)
		}); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b constant) int { return cmp.Compare(a.file, b.file) })
	return all, nil
}

// declared returns the constants of a file.
func declared(file *ast.File, name string) []constant {
	var all []constant
	for _, declaration := range file.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		comment := ""
		for _, spec := range group.Specs {
			spec := spec.(*ast.ValueSpec)
			if own := cmp.Or(spec.Doc, group.Doc); own != nil {
				comment = strings.Join(strings.Fields(own.Text()), " ")
			}
			for i, value := range spec.Values {
				literal, ok := value.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING || !slices.Contains([]string{"", "FinalizerName", "metav1.StatusReason"}, types.ExprString(cmp.Or(spec.Type, ast.Expr(&ast.Ident{})))) {
					continue
				}
				c := constant{file: name, name: spec.Names[i].Name}
				if c.value, _ = strconv.Unquote(literal.Value); c.value == "" || strings.ContainsAny(c.value, " \n") {
					continue
				}
				if strings.Contains(comment, c.name) {
					c.comment = comment
				}
				all = append(all, c)
			}
		}
	}
	return all
}

// literals returns an error for a reason of a condition that is no constant: the page would lack it.
func literals(files *token.FileSet, file *ast.File) error {
	var err error
	ast.Inspect(file, func(node ast.Node) bool {
		if pair, ok := node.(*ast.KeyValueExpr); ok {
			key, _ := pair.Key.(*ast.Ident)
			if value, ok := pair.Value.(*ast.BasicLit); ok && key != nil && key.Name == "Reason" && value.Kind == token.STRING {
				err = fmt.Errorf("%s: the reason %s is no constant with a comment", files.Position(value.Pos()), value.Value)
			}
		}
		return err == nil
	})
	return err
}

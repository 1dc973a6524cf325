/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// partsOf returns the parts of a target of the Makefile. This file is the only list of what make test and make test-all contain:
// make test tests the behaviour of nsinit; make test-all also tests packaging, tools and other versions of Kubernetes.
func partsOf(target string) []string {
	behaviour := []string{"unit", "faults-slice", "e2e"}
	switch target {
	case "test":
		return behaviour
	case "test-all":
		return append(behaviour, "tools", "packaging", "test-versions")
	case "stress": // of tests that are chosen by name
		return []string{"unit", "e2e", "tools", "packaging"}
	case "packaging":
		return []string{"tools", "packaging"}
	}
	return []string{target} // it is a part
}

// modulesOf returns the modules of a part of unit tests: those of the product, or those of tools and packaging. In the first module,
// the packages in hack and test are tools, and the others the product.
func modulesOf(part string) []string {
	switch part {
	case "unit":
		return []string{".", "sdk", "test/sdk"}
	case "tools":
		return []string{".", "hack/chart", "hack/release", "hack/site", "test/monitoring", "test/perf"}
	}
	return nil
}

// suitesOf returns the folders of a part of end-to-end tests.
func suitesOf(part string) []string {
	switch part {
	case "e2e":
		return []string{"test/e2e"}
	case "packaging", "test-versions":
		return []string{"test/e2e", "test/packaging"}
	}
	return nil
}

// contains reports whether a test in a folder belongs to a part. Functions of the framework that it calls mark it.
func contains(part, dir, test string) bool {
	environment := strings.Contains(test, "framework.Environment(t)")
	switch part {
	case "e2e":
		return !environment
	case "packaging":
		return environment || filepath.Base(dir) == part
	case "test-versions":
		return strings.Contains(test, "framework.DependsOnKubernetes(t)")
	}
	return true
}

// usesPlanes reports whether a part needs control planes.
func usesPlanes(part string) bool { return part == "faults-slice" || suitesOf(part) != nil }

// testsIn returns the tests of a part in a folder that match.
func testsIn(part, dir string, match *regexp.Regexp) (names []string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, file := range files {
		source, _ := os.ReadFile(file)
		if strings.HasPrefix(string(source), "//go:build") && !strings.HasPrefix(string(source), "//go:build e2e\n") {
			continue
		}
		for _, function := range strings.Split(string(source), "\nfunc ")[1:] {
			name, _, isTest := strings.Cut(function, "(t *testing.T) {")
			if isTest && strings.HasPrefix(name, "Test") && match.MatchString(name) && contains(part, dir, function) {
				names = append(names, name)
			}
		}
	}
	return names
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// written returns the documents that people write, by their paths. A line of a command that ends with a backslash is joined with the next one.
func written(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d documents: %v", len(files), err)
	}
	documents := map[string]string{}
	for _, file := range append(files, filepath.Join(root, "README.md")) {
		if file != "metrics.md" {
			documents[file] = strings.ReplaceAll(read(t, file), "\\\n", " ")
		}
	}
	return documents
}

// words returns what the first group of a pattern matches in a text.
func words(pattern, text string) map[string]bool {
	all := map[string]bool{}
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all[match[1]] = true
	}
	return all
}

// missing reports each match of a pattern in the documents that does not exist. A match is a word, or a list of words in backticks.
func missing(t *testing.T, what, pattern string, exists func(word string) bool) {
	t.Helper()
	found := 0
	for file, text := range written(t) {
		all := words(pattern, text)
		for list := range all {
			if strings.Contains(list, "`") {
				delete(all, list)
				maps.Copy(all, words("`([^`]+)`", list))
			}
		}
		for word := range all {
			found++
			if !exists(word) {
				t.Errorf("%s: %s %q does not exist: correct it, or run make generate if it is new", file, what, word)
			}
		}
	}
	if found == 0 {
		t.Errorf("no document has a match of %s", pattern)
	}
}

// TestNames: what the documents name exists, as the references do, which are generated from the code.
func TestNames(t *testing.T) {
	const list = "((?:`[A-Z][A-Za-z]+`(?:, and | and |, or | or |, )?)+)"
	names := words("(?m)^\\| `([^`]+)` \\|", read(t, "reference/names.md"))
	names["nsinit.dev/deletion-protection"] = true // only an optional policy has it
	named := func(name string) bool { return names[name] }
	metrics := words("(?m)^\\| `([^`]+)` \\|", read(t, "metrics.md"))
	missing(t, "condition", "`([A-Z][A-Za-z]+)=(?:True|False|Unknown)`", named)
	missing(t, "condition", `--for=condition=([A-Z][A-Za-z]+)`, named)
	missing(t, "condition", `\bconditions?\s+`+list, named)
	missing(t, "reason", `\breasons?\s+`+list, named)
	missing(t, "reason", "(?m)^\\| (?:`\\w+=\\w+`(?:, )?)+ \\| "+list+" \\|", named) // troubleshoot.md
	missing(t, "label or annotation", "`(nsinit\\.dev/[a-z-]+)", named)
	missing(t, "metric", `\b(nsinit_[a-z_]+)`, func(name string) bool {
		return metrics[name] || metrics[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")]
	})
}

// TestFlags: the commands of the plugin in the documents exist, and have the flags with which they are called. Flags that stand for themselves are those of
// nsinit's programs, or of the plugin.
func TestFlags(t *testing.T) {
	const flag = `--([a-z][a-z0-9-]*)`
	all := words("(?m)^\\| `"+flag, read(t, "reference/flags.md"))
	shared := words(flag, read(t, "reference/plugin/README.md"))
	pages, err := filepath.Glob("reference/plugin/*.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]map[string]bool{}
	for _, page := range pages {
		flags := words(`(?m)^ +(?:-\w, )?`+flag, read(t, page))
		maps.Copy(flags, shared)
		maps.Copy(all, flags)
		commands[strings.TrimSuffix(filepath.Base(page), ".md")] = flags
	}
	call := regexp.MustCompile("kubectl nsinit ([a-z]+)([^`|;#\\n]*)")
	for file, text := range written(t) {
		for _, match := range call.FindAllStringSubmatch(text, -1) {
			if commands[match[1]] == nil && match[1] != "completion" {
				t.Errorf("%s: kubectl nsinit %s does not exist", file, match[1])
			}
			for name := range words(flag, match[2]) {
				if commands[match[1]] != nil && !commands[match[1]][name] {
					t.Errorf("%s: kubectl nsinit %s has no flag --%s", file, match[1], name)
				}
			}
		}
	}
	for _, ofOthers := range []string{
		"all-namespaces", "cascade", "validate", // kubectl
		"set", "reset-then-reuse-values", // helm
		"archive", "local-image", // kubectl krew, and cosign
		"kube-api-burst", "kube-api-qps", "use-service-account-credentials", // kube-controller-manager
		"default-service-account",         // Flux
		"bump-revision", "mark-compacted", // etcdutl
	} {
		all[ofOthers] = true
	}
	missing(t, "the flag", "`"+flag, func(name string) bool { return all[name] })
}

// TestPaths: the files and folders of the repository that the documents name, other than in links, exist.
func TestPaths(t *testing.T) {
	missing(t, "the path", "(?m)(?:^|[\\s`(=])((?:artifacts|cmd|hack|pkg|sdk|test|vendor-hooks)/[A-Za-z0-9_./-]*[A-Za-z0-9_])", func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil || path == "artifacts/deploy/own/kustomization.yaml" || strings.Contains(path, "/v0.") // readers write it; a tag
	})
}

// TestVersions: the documents name the versions of Kubernetes with which nsinit is tested, and the oldest one as the requirement.
func TestVersions(t *testing.T) {
	modules, err := filepath.Glob(filepath.Join(root, "hack", "dev", "kubernetes", "v*", "go.mod"))
	if err != nil || len(modules) == 0 {
		t.Fatalf("%d versions: %v", len(modules), err)
	}
	tested := map[string]bool{}
	for _, module := range modules {
		maps.Copy(tested, words(`\bk8s\.io/kubernetes v([0-9.]+)`, read(t, module)))
	}
	want := slices.Sorted(maps.Keys(tested))
	minor := func(version string) string { return version[:strings.LastIndex(version, ".")] }
	oldest, newest := minor(want[0]), minor(want[len(want)-1])
	for _, file := range []string{filepath.Join(root, "README.md"), "install.md"} {
		text := read(t, file)
		if found := slices.Sorted(maps.Keys(words(`\b(1\.3\d\.\d+)\b`, text))); !slices.Equal(found, want) {
			t.Errorf("%s names the versions %v, and nsinit is tested with %v", file, found, want)
		}
		if found := words(`Kubernetes (1\.\d+) or later`, text); !maps.Equal(found, map[string]bool{oldest: true}) {
			t.Errorf("%s requires the versions %v, and the oldest one is %s", file, found, oldest)
		}
	}
	if !strings.Contains(read(t, filepath.Join(root, "hack", "reference", "crd-ref-docs.yaml")), `kubernetesVersion: "`+newest+`"`) {
		t.Errorf("the reference of the API does not link to that of Kubernetes %s", newest)
	}
}

// TestLimits: the comment of each field of the API, which kubectl explain and the reference show, has the limit that validation enforces.
func TestLimits(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "sdk", "apis", "nsinit", "v1alpha1", "types_*.go"))
	if err != nil {
		t.Fatal(err)
	}
	limits := 0
	for _, file := range files {
		for _, comment := range regexp.MustCompile(`(?m)(?:^\t//.*\n)+`).FindAllString(read(t, file), -1) {
			for limit := range words(`\+k8s:(?:maxItems|maxLength|minimum|maximum)=(\d+)`, comment) {
				limits++
				if text, _, _ := strings.Cut(comment, "// +"); !regexp.MustCompile(`\b` + limit + `\b`).MatchString(text) {
					t.Errorf("%s: a comment does not have the limit %s:\n%s", filepath.Base(file), limit, text)
				}
			}
		}
	}
	if limits == 0 {
		t.Error("no field has a limit")
	}
}

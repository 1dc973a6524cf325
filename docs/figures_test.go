/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// all returns what the group of a regular expression matches in a text, at least once.
func all(t *testing.T, text, expression string) []string {
	t.Helper()
	var found []string
	for _, match := range regexp.MustCompile(`(?m)`+expression).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	if len(found) == 0 {
		t.Fatalf("nothing matches %s", expression)
	}
	return found
}

// TestFigures: the README repeats what performance.md and reliability.md say, and the versions of other projects are the pinned ones.
func TestFigures(t *testing.T) {
	readme, performance, reliability := read(t, root, "README.md"), read(t, root, "docs", "performance.md"), read(t, root, "docs", "reliability.md")
	number := strings.NewReplacer(",", "")
	for what, pair := range map[string][2][]string{
		"injections": {all(t, number.Replace(readme), `injected (\d+) faults`), all(t, reliability, `^\| \*\*all\*\* \| (\d+) \|`)},
		"violations": {[]string{"0"}, all(t, reliability, `^\| \*\*all\*\*(?: \| \d+){3} \| (\d+) \|`)},
		"commit":     {all(t, readme, `at commit (\w+)`), all(t, reliability, `programs of commit (\w+)`)},
	} {
		if !slices.Equal(pair[0], pair[1]) {
			t.Errorf("%s: the README says %s, and reliability.md %s", what, pair[0], pair[1])
		}
	}
	// The lowest and the highest of the medians, with and without nsinit.
	with := all(t, performance, `^\| \d+ \| CPU, ms \| [^|]* \| (\d+)`)
	without := all(t, performance, `^\| \d+ \| CPU, ms \| (\d+)`)
	slices.Sort(with) // the numbers have two digits
	slices.Sort(without)
	if cost := with[0] + " to " + with[len(with)-1] + " ms](docs/performance.md#policy-population) of CPU time, and " + without[0] + " to " + without[len(without)-1] + " ms"; !strings.Contains(readme, cost) {
		t.Errorf("the README does not say %q", cost)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (nsinit|HNC|Kyverno|Capsule)(?: (\S+))? \| ([\d to]+) \| (\d+) ms \|$`).FindAllStringSubmatch(readme, -1) {
		project, version, early, cpu := row[1], row[2], strings.ReplaceAll(row[3], " to ", "–"), row[4]
		measured := regexp.MustCompile(`(?m)^\| ` + project + ` \|(?: [^|]* \|){2} (\d+) \([^|]*\) \| (?:\S+ \()?([\d–]+)\)? \| [^|]* \|$`).FindStringSubmatch(performance)
		if measured == nil || measured[1] != cpu || measured[2] != early {
			t.Errorf("the README says %s ms and %s early writes of %s, and performance.md %q", cpu, early, project, measured)
		}
		if folder := strings.ToLower(project); project != "nsinit" {
			pinned := all(t, read(t, root, "test", "perf", "alternatives", folder, "go.mod"), `(?:kyverno/kyverno|projectcapsule/capsule|hierarchical-namespaces) v(\S+)`)[0]
			shown := all(t, performance, `^\| \[`+project+`\]\S+ \| (\S+) \|`)[0]
			if version != pinned || shown != pinned {
				t.Errorf("%s is pinned at %s; the README says %s, and performance.md %s", project, pinned, version, shown)
			}
		}
	}
	if rows := all(t, readme, `^\| (\S+)[^|]* \| [^|]* \| \d+ ms \|$`); len(rows) != 4 {
		t.Errorf("the README compares %s", rows)
	}
}

// TestNamedTests: the tests that documents name as evidence exist.
func TestNamedTests(t *testing.T) {
	exist, named := map[string]bool{}, map[string]string{}
	declared, mention := regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`), regexp.MustCompile(`(?:RUN=)?\bTest[A-Z]\w*`)
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "_output" || entry.Name() == ".git"):
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			for _, match := range declared.FindAllStringSubmatch(read(t, path), -1) {
				exist[match[1]] = true
			}
		case strings.HasSuffix(path, ".md"):
			for _, name := range mention.FindAllString(read(t, path), -1) {
				named[name] = path
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		prefix, several := strings.CutPrefix(name, "RUN=")
		if !exist[prefix] && !(several && slices.ContainsFunc(slices.Collect(maps.Keys(exist)), func(test string) bool { return strings.HasPrefix(test, prefix) })) {
			t.Errorf("%s names %s, which does not exist", named[name], name)
		}
	}
	if len(named) == 0 {
		t.Error("no document names a test")
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"

	"github.com/nsinit/nsinit/sdk/util/printable"
)

// pathSegments are names that Kubernetes accepts for a Role: everything but slashes and percent signs, "." and "..".
func pathSegments() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`[-a-z =~'"$\\;&|<>*?(){}#!\[\]\n\x1b]{0,16}`),
		rapid.StringMatching(`[a-z]{0,2}( --[a-z-]{1,9}=?[a-z0-9.:]{0,9}){1,2}`),
		rapid.StringMatching(`[a-z]?('|"|\\)?(\]|\)|\$\(|`+"`"+`|;|\||&&|>|\n) ?[a-z]{1,6}`),
		rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,12}[a-z0-9])?`),
	).Filter(func(name string) bool {
		return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/%")
	})
}

// values generates values of a word of the remedies, of which Kubernetes or another API server accepts each one.
func values(word string) *rapid.Generator[[]string] {
	qualified := rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,9}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,9}[A-Za-z0-9])?`)
	one := pathSegments() // also users, services of APIServices, and what an aggregated API server names
	switch word {
	case "OBJECT":
		one = rapid.Map(one, func(name string) string { return "roles.rbac.authorization.k8s.io/" + name })
	case "PODS", "CLAIMS", "WEBHOOKS":
		return rapid.SliceOfN(rapid.Map(one, func(name string) string { return "things/" + name }), 1, 3)
	case "FINALIZER", "NAMEREUSE", "CONTENT", "PARTICIPANT", "INITIALIZER":
		one = rapid.OneOf(qualified, qualified, one)
	case "NAMESPACE":
		one = rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,9}[a-z0-9])?`)
	}
	return rapid.Map(one, func(value string) []string { return []string{value} })
}

// recorder runs commands in a shell in which kubectl and jq record their arguments.
type recorder struct{ programs, base string }

func newRecorder(t *testing.T) recorder {
	r := recorder{t.TempDir(), t.TempDir()}
	for name, does := range map[string]string{"kubectl": "", "jq": `while IFS= read -r line; do :; done`} {
		script := "#!/bin/sh\nprintf '%s\\0' \"${0##*/}\" \"$@\" >\"$RECORDS/$$\"\n" + does + "\n"
		if err := os.WriteFile(filepath.Join(r.programs, name), []byte(script), 0o700); err != nil { //nolint:gosec // it is executed
			t.Fatal(err)
		}
	}
	return r
}

// run returns the arguments of each program that a command runs.
func (r recorder) run(t *rapid.T, command string) [][]string {
	records, err := os.MkdirTemp(r.base, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(records) }()
	work := filepath.Join(records, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(t.Context(), "/bin/sh", "-c", command)
	sh.Dir, sh.Env = work, []string{"PATH=" + r.programs, "RECORDS=" + records}
	if out, err := sh.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	if err := os.Remove(work); err != nil { // the command wrote a file
		t.Fatalf("%s: %v", command, err)
	}
	files, err := os.ReadDir(records)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for _, record := range files {
		data, err := os.ReadFile(filepath.Join(records, record.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"))
	}
	slices.SortFunc(all, slices.Compare[[]string])
	return all
}

// TestCommands: a real shell gives kubectl and jq the arguments that the template of a remedy has, with the names from the cluster in
// the places of the words.
func TestCommands(t *testing.T) {
	recorder := newRecorder(t)
	offered := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.SampledFrom(causes()).Draw(t, "cause")
		given, marked, back, plain := words{}, words{}, []string(nil), true
		for _, r := range entry.remedies {
			for condition := range strings.FieldsSeq(r.when) {
				if word, negated := strings.CutPrefix(condition, "!"); !negated {
					given[word], marked[word] = []string{"true"}, []string{"true"}
				}
			}
		}
		for _, r := range entry.remedies {
			os.Expand(r.command, func(word string) string {
				if _, done := marked[word]; done && !slices.Equal(marked[word], []string{"true"}) {
					return ""
				}
				given[word], marked[word] = values(word).Draw(t, word), nil
				for i, value := range given[word] {
					mark := "MARK" + word + strings.Repeat("I", i) + "MARK"
					marked[word], back = append(marked[word], mark), append(back, mark, value)
					plain = plain && printable.IsPlain(value)
				}
				return ""
			})
		}
		printed, templates := newFinding(entry.cause, Stuck, nil, "", given).Remedies, newFinding(entry.cause, Stuck, nil, "", marked).Remedies
		if plain && len(printed) != len(templates) {
			t.Fatalf("offered %q, want those of %q", printed, templates)
		}
		for _, remedy := range printed {
			i := slices.IndexFunc(templates, func(other Remedy) bool {
				return other.Description == remedy.Description && other.Risk == remedy.Risk && (other.Command == "") == (remedy.Command == "")
			})
			if i < 0 {
				t.Fatalf("%q is offered, but not with plain words: %q", remedy, templates)
			}
			if remedy.Command == "" {
				continue
			}
			offered[templates[i].Command] = true
			want := recorder.run(t, templates[i].Command)
			for _, arguments := range want {
				for i := range arguments {
					arguments[i] = strings.NewReplacer(back...).Replace(arguments[i])
				}
			}
			slices.SortFunc(want, slices.Compare[[]string])
			if diff := cmp.Diff(want, recorder.run(t, remedy.Command)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", remedy.Command, diff)
			}
		}
	})
	t.Logf("ran %d commands: %q", len(offered), slices.Sorted(maps.Keys(offered)))
}

// TestRefusalNames: the name of an object does not change what refuses its deletion.
func TestRefusalNames(t *testing.T) {
	reasons := map[string]refusal{
		`ValidatingAdmissionPolicy 'nsinit-gate' with binding 'nsinit-gate' denied request: no`: {kind: notAllowed, name: "nsinit-gate"}, // not to the namespace controller
		`ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`:                     {kind: refusedByPolicy, name: "p", binding: "b"},
		`User "u" cannot delete resource "roles" in API group "rbac.authorization.k8s.io"`:      {kind: notAllowed, name: "u"},
		`admission webhook "evil.example.com" denied the request and it is from another admin`:  {kind: refusedByWebhook, name: "evil.example.com"},
		`quota exceeded`: {},
	}
	texts := slices.Sorted(maps.Keys(reasons))
	rapid.Check(t, func(t *rapid.T) {
		spoof := rapid.SampledFrom(texts)
		name := rapid.OneOf(pathSegments(), spoof, rapid.Map(spoof, func(text string) string { return `x" is forbidden: ` + text })).Draw(t, "name")
		reason := rapid.SampledFrom(texts).Draw(t, "reason")
		got := parseRefusal(apierrors.NewForbidden(rbacv1.Resource("roles"), name, errors.New(reason)))
		if got.message = ""; got != reasons[reason] {
			t.Errorf("%q refused because of %q is %+v", name, reason, got)
		}
	})
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package artifacts

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/pkg/installation"
)

// exemption returns the expression for exempt namespaces in the guard, after comparing it with the one in the stamp.
func exemption(t testing.TB) string {
	t.Helper()
	type named struct{ Name, Expression string }
	var spec struct {
		Spec struct{ MatchConditions, Variables []named }
	}
	expression := func(file, name string) string {
		spec.Spec.MatchConditions, spec.Spec.Variables = nil, nil
		first, _, _ := strings.Cut(read("policies/"+file), "\n---\n")
		if err := yaml.Unmarshal([]byte(first), &spec); err != nil {
			t.Fatal(err)
		}
		for _, e := range append(spec.Spec.MatchConditions, spec.Spec.Variables...) {
			if e.Name == name {
				return e.Expression
			}
		}
		t.Fatalf("%s has no expression %s", file, name)
		return ""
	}
	guard := expression("guard-create.yaml", "exempt")
	if stamp := expression("stamp.yaml", "not-exempt"); stamp != "!"+guard {
		t.Fatalf("the stamp does not exempt what the guard exempts. Stamp:\n%s\nguard:\n%s", stamp, guard)
	}
	return guard
}

// program compiles an expression as the oldest kube-apiserver does that nsinit supports.
func program(t testing.TB, expression string) cel.Program {
	t.Helper()
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 34)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{cel.Variable("object", cel.DynType), cel.Variable("params", cel.DynType), cel.Variable("request", cel.DynType),
			cel.Variable("namespaceObject", cel.DynType)},
	})
	if err != nil {
		t.Fatal(err)
	}
	env := set.NewExpressionsEnv()
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	compiled, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// evaluate evaluates the expression on what kube-apiserver would pass. It returns the cost, too.
func evaluate(compiled cel.Program, data map[string]string, c installation.Creation) (exempt bool, cost uint64, err error) {
	metadata := map[string]any{}
	for key, value := range map[string]string{"name": c.Name, "generateName": c.GenerateName} {
		if value != "" {
			metadata[key] = value
		}
	}
	userInfo := map[string]any{"username": c.Creator}
	if c.Groups != nil {
		userInfo["groups"] = c.Groups
	}
	params := map[string]any{"metadata": map[string]any{"name": installation.Exemptions}}
	if data != nil {
		params["data"] = data
	}
	value, details, err := compiled.Eval(map[string]any{"object": map[string]any{"metadata": metadata}, "params": params, "request": map[string]any{"userInfo": userInfo}})
	if err != nil {
		return false, 0, err
	}
	exempt, ok := value.Value().(bool)
	if !ok {
		return false, 0, fmt.Errorf("it yields %v", value)
	}
	return exempt, *details.ActualCost(), nil
}

// TestExemptionsAgree: the policies and the Go implementation, which the webhook, the controller and the plugin use, exempt the
// same namespaces for random lists and requests. Names are valid, because kube-apiserver refuses others.
func TestExemptionsAgree(t *testing.T) {
	exempt, closed := 0, 0
	rapid.Check(t, exemptionsAgree(t, &exempt, &closed))
	t.Logf("%d exempt, %d closed", exempt, closed)
	if exempt < 100 || closed < 100 {
		t.Errorf("%d exempt and %d closed requests prove too little", exempt, closed)
	}
}

func FuzzExemptions(f *testing.F) { f.Fuzz(rapid.MakeFuzz(exemptionsAgree(f, new(int), new(int)))) }

// exemptionsAgree counts the requests that are exempt, and those that are not.
func exemptionsAgree(tb testing.TB, exempt, closed *int) func(*rapid.T) {
	tb.Helper()
	compiled := program(tb, exemption(tb))
	names := []string{"", "kube-system", "kube-", "kube-x", "kube", "k", "shop", "shop-abcde", "shop-", "a-b"}
	creators := []string{"eve", "ops", "system:serviceaccount:olm:operator", "system:masters", "# eve", "#eve", `"eve"`, "'eve'", "- eve", "-eve", "eve # x",
		"eve  #x", "eve#x", "*", "eve*", "Domain Users", "a\tb", "ops\u200b", "\ufeffops", "\u00a0ops", "cn=ops,ou=groups", "é", "ops\nroot", " eve", ""}
	line := rapid.OneOf(rapid.SampledFrom(names), rapid.SampledFrom(creators), rapid.String(), rapid.StringOfN(rapid.RuneFrom([]rune("#*-'\" \t\r\n\u0085\u200bek")), 0, 6, -1))
	padding := rapid.SampledFrom([]string{"", "", "", " ", "\t", "\r", "\u0085", "\u00a0", "\u2003", "\v"})
	value := rapid.Custom(func(t *rapid.T) string {
		lines := rapid.SliceOfN(line, 0, 4).Draw(t, "lines")
		for i := range lines {
			lines[i] = padding.Draw(t, "before") + lines[i] + padding.Draw(t, "behind")
		}
		return strings.Join(lines, "\n")
	})
	keys := rapid.SampledFrom([]string{installation.KeyNamespaces, installation.KeyNamePrefixes, installation.KeyUsers, installation.KeyGroups, installation.KeyOnlyGroups, "user"})
	creator := rapid.OneOf(rapid.SampledFrom(creators), rapid.String())
	validStart := regexp.MustCompile(`^([a-z0-9][-a-z0-9]*)?$`)
	return func(t *rapid.T) {
		data := rapid.MapOfN(keys, value, 0, 5).Draw(t, "data")
		if len(data) == 0 && rapid.Bool().Draw(t, "none") {
			data = nil
		}
		name := rapid.OneOf(rapid.SampledFrom(names), rapid.StringMatching(`[a-z][-a-z]{0,5}`)).Filter(validStart.MatchString)
		for range 100 {
			c := installation.Creation{Name: name.Draw(t, "name"), GenerateName: name.Draw(t, "generateName"), Creator: creator.Draw(t, "creator"),
				Groups: rapid.SliceOfN(creator, 0, 3).Draw(t, "groups")}
			c.Name = strings.TrimSuffix(c.Name, "-")
			want := installation.ParseExemptions(&corev1.ConfigMap{Data: data}).Exempt(c)
			got, _, err := evaluate(compiled, data, c)
			if err != nil {
				t.Fatal(err)
			}
			if got != (want != nil) {
				t.Fatalf("with %q, %+v is exempt: %t in CEL, by %v in Go", data, c, got, want)
			}
			if got {
				*exempt++
			} else {
				*closed++
			}
		}
	}
}

// TestExemptionsSize: a list of the documented size stays within the limits of kube-apiserver for one expression and for all match
// conditions of a policy.
func TestExemptionsSize(t *testing.T) {
	compiled := program(t, exemption(t))
	data := map[string]string{}
	for _, key := range []string{installation.KeyNamespaces, installation.KeyNamePrefixes, installation.KeyUsers, installation.KeyGroups, installation.KeyOnlyGroups} {
		var lines []string
		for i := range 200 {
			lines = append(lines, fmt.Sprintf("system-serviceaccount-operators-of-team-%d", i))
		}
		data[key] = strings.Join(lines, "\n")
	}
	_, cost, err := evaluate(compiled, data, installation.Creation{Name: "shop", Creator: "system-serviceaccount-operators-of-team", Groups: []string{"a", "b", "system-serviceaccount-operators-of-team-199"}})
	if err != nil || cost > celconfig.PerCallLimit/2 {
		t.Errorf("1000 lines cost %d of %d: %v", cost, celconfig.PerCallLimit, err)
	}
	t.Logf("1000 lines cost %d of %d", cost, celconfig.PerCallLimit)
}

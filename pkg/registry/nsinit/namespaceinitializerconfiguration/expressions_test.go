/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestExpressions: an expression that is new to a configuration is checked, and one that the stored configuration has is
// not, whatever the endpoint and its place.
func TestExpressions(t *testing.T) {
	const valid, broken = `"team-a" in creatorGroups`, `creatorGroup.exists(g, g == "team-a")`
	of := func(expressions ...string) *nsinit.NamespaceInitializerConfiguration {
		c := &nsinit.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"}, Initializers: []v1alpha1.RegisteredInitializer{{Name: "a.example.com"}}}
		for i, expression := range expressions {
			c.Initializers[0].MatchConditions = append(c.Initializers[0].MatchConditions, v1alpha1.MatchCondition{Name: string(rune('a' + i)), Expression: expression})
		}
		return c
	}
	strategy := generic.NewStrategy(NewKind(nil, clock.RealClock{}), "", runtime.NewScheme())
	const message = "initializers[0].matchConditions[1].expression: Invalid value: \"creatorGroup.exists(g, g == \\\"team-a\\\")\": " +
		"ERROR: <input>:1:1: undeclared reference to 'creatorGroup' (in container '')\n | creatorGroup.exists(g, g == \"team-a\")\n | ^"
	for name, test := range map[string]struct {
		updated, old *nsinit.NamespaceInitializerConfiguration
		want         string
	}{
		"a new configuration":         {of(valid, broken), nil, message},
		"a new valid one":             {of(valid), nil, ""},
		"an added expression":         {of(valid, broken), of(valid), message},
		"a changed expression":        {of(valid, broken), of(valid, broken+" "), message},
		"an unchanged one":            {of(valid, broken), of(valid, broken), ""},
		"a moved one":                 {of(broken, valid), of(valid, broken), ""},
		"one that is no longer there": {of(valid), of(broken), ""},
	} {
		t.Run(name, func(t *testing.T) {
			errs := strategy.Validate(t.Context(), test.updated)
			if test.old != nil {
				errs = strategy.ValidateUpdate(t.Context(), test.updated, test.old)
			}
			if (test.want == "") != (len(errs) == 0) || len(errs) > 0 && (len(errs) != 1 || errs[0].Error() != test.want) {
				t.Errorf("got %v\nwant %s", errs, test.want)
			}
		})
	}
}

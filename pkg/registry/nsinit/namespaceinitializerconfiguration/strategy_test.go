/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/features"
)

// TestFailOnCreate: a configuration becomes fail-closed by an update, or where the gate
// allows it.
func TestFailOnCreate(t *testing.T) {
	gate := featuregate.NewVersionedFeatureGate(version.MustParse("0.1"))
	if err := features.Add(gate); err != nil {
		t.Fatal(err)
	}
	strategy := NewStrategy(runtime.NewScheme(), gate)
	of := func(policies ...nsinit.FailurePolicyType) *nsinit.NamespaceInitializerConfiguration {
		c := &nsinit.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"}}
		for i, policy := range policies {
			initializer := nsinit.RegisteredInitializer{Name: string(rune('a'+i)) + ".example.com"}
			if policy != "" {
				seconds := int32(5)
				initializer.FailurePolicy, initializer.TimeoutSeconds = &policy, &seconds
			}
			c.Initializers = append(c.Initializers, initializer)
		}
		return c
	}
	for name, test := range map[string]struct {
		configuration *nsinit.NamespaceInitializerConfiguration
		want          string
	}{
		"waiting":           {of("", ""), ""},
		"fail-open":         {of(nsinit.Ignore, ""), ""},
		"fail-closed":       {of(nsinit.Fail), "initializers[0].failurePolicy"},
		"one of them fails": {of("", nsinit.Ignore, nsinit.Fail), "initializers[2].failurePolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := strategy.Validate(t.Context(), test.configuration)
			switch {
			case test.want == "" && len(errs) > 0:
				t.Error(errs)
			case test.want != "" && (len(errs) != 1 || errs[0].Field != test.want || errs[0].Type != field.ErrorTypeForbidden):
				t.Errorf("%v, want one for %s", errs, test.want)
			}
			if errs := strategy.ValidateUpdate(t.Context(), test.configuration, of("")); len(errs) > 0 {
				t.Errorf("an update: %v", errs)
			}
		})
	}
	if err := gate.Set("FailPolicyOnCreate=true"); err != nil {
		t.Fatal(err)
	}
	if errs := NewStrategy(runtime.NewScheme(), gate).Validate(t.Context(), of(nsinit.Fail)); len(errs) > 0 {
		t.Errorf("with the feature gate: %v", errs)
	}
}

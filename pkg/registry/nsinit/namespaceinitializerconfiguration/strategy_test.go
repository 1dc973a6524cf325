/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestFailOnCreate: an initializer becomes fail-closed by an update after the one that adds it.
func TestFailOnCreate(t *testing.T) {
	strategyOf := func(endpoint string) *generic.Strategy[configuration] {
		return generic.NewStrategy(NewKind(nil, clock.RealClock{}), endpoint, runtime.NewScheme())
	}
	strategy := strategyOf("")
	of := func(policies ...v1alpha1.FailurePolicyType) *nsinit.NamespaceInitializerConfiguration {
		c := &nsinit.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"}}
		for i, policy := range policies {
			initializer := v1alpha1.RegisteredInitializer{Name: string(rune('a'+i)) + ".example.com"}
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
		"fail-open":         {of(v1alpha1.Ignore, ""), ""},
		"fail-closed":       {of(v1alpha1.Fail), "initializers[0].failurePolicy"},
		"one of them fails": {of("", v1alpha1.Ignore, v1alpha1.Fail), "initializers[2].failurePolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := strategy.Validate(t.Context(), test.configuration)
			switch {
			case test.want == "" && len(errs) > 0:
				t.Error(errs)
			case test.want != "" && (len(errs) != 1 || errs[0].Field != test.want || errs[0].Type != field.ErrorTypeForbidden):
				t.Errorf("%v, want one for %s", errs, test.want)
			}
			errs = strategy.ValidateUpdate(t.Context(), test.configuration, of())
			switch {
			case test.want == "" && len(errs) > 0:
				t.Errorf("an update that adds them: %v", errs)
			case test.want != "" && (len(errs) != 1 || errs[0].Field != test.want || errs[0].Type != field.ErrorTypeForbidden):
				t.Errorf("an update that adds them: %v, want one for %s", errs, test.want)
			}
			if errs := strategy.ValidateUpdate(t.Context(), test.configuration, of("", v1alpha1.Fail, v1alpha1.Ignore)); len(errs) > 0 {
				t.Errorf("an update of known initializers: %v", errs)
			}
		})
	}
	renamed := of(v1alpha1.Fail)
	renamed.Initializers[0].Name = "renamed.example.com"
	if errs := strategy.ValidateUpdate(t.Context(), renamed, of(v1alpha1.Fail)); len(errs) != 1 || errs[0].Field != "initializers[0].failurePolicy" {
		t.Errorf("an initializer under another name: %v", errs)
	}
	moved := of(v1alpha1.Ignore, v1alpha1.Fail)
	moved.Initializers = moved.Initializers[1:]
	if errs := strategy.ValidateUpdate(t.Context(), moved, of("", v1alpha1.Fail)); len(errs) > 0 {
		t.Errorf("an initializer in another place: %v", errs)
	}
	for name, endpoint := range map[string]interface {
		ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList
	}{"status": strategyOf("status"), "finalize": strategyOf("finalize")} {
		if errs := endpoint.ValidateUpdate(t.Context(), of(v1alpha1.Fail), of(v1alpha1.Fail)); len(errs) > 0 {
			t.Errorf("%s of a configuration with %s: %v", name, v1alpha1.Fail, errs)
		}
	}
}

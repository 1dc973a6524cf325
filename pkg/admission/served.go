/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// unserved returns a message for each initializer of a configuration that no program serves. New objects wait for it.
func unserved(configuration nsinit.Reported, initializers []v1alpha1.RegisteredInitializer, objects string) []string {
	var messages []string
	for i, initializer := range initializers {
		entry := generic.ReportOf(configuration, initializer.Name)
		what := fmt.Sprintf("initializers[%d] %q", i, initializer.Name)
		switch {
		case entry != nil && entry.ReportTime != nil && meta.IsStatusConditionFalse(entry.Conditions, v1alpha1.ConditionServed):
			messages = append(messages, fmt.Sprintf("%s is not served: user %q last reported at %s, so new %s wait for it; check its program",
				what, entry.Reporter, entry.ReportTime.UTC().Format(time.RFC3339), objects))
		case entry != nil && entry.ReportTime != nil:
		case initializer.Activation != nil && *initializer.Activation == v1alpha1.ActivationWhenServed:
			messages = append(messages, fmt.Sprintf("%s has no effect yet: no program has reported that it serves it (activation: %s); start the program", what, v1alpha1.ActivationWhenServed))
		default:
			until := "until its deadline"
			if initializer.FailurePolicy == nil {
				until = "without limit, because it has no failurePolicy"
			}
			messages = append(messages, fmt.Sprintf("%s is not served yet: new %s wait for it %s; if its program runs, it reports within %s, otherwise start it, or set activation: %s",
				what, objects, until, timing.ReportInterval, v1alpha1.ActivationWhenServed))
		}
	}
	return messages
}

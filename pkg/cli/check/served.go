/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

// served checks whether programs serve the registered initializers. One that never reported is no problem, because
// a person may act as the initializer. The check of the objects reports if the configurations cannot be listed.
func (i *inspection) served(ctx context.Context) {
	const check = "Initializers"
	list, err := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	served, all, overdue := 0, 0, false
	var never, unlimited []string
	for _, configuration := range list.Items {
		all += len(configuration.Initializers)
		for _, initializer := range configuration.Initializers {
			entry := helper.RegistrationStatus(&configuration, initializer.Name)
			switch {
			case entry == nil || entry.ReportTime == nil:
				never = append(never, initializer.Name)
				if initializer.FailurePolicy == nil && ptr.Deref(initializer.Activation, "") != v1alpha1.ActivationWhenServed {
					unlimited = append(unlimited, initializer.Name)
				}
			case meta.IsStatusConditionFalse(entry.Conditions, v1alpha1.ConditionServed):
				overdue = true
				i.add(check, Problem, "check whether the program of the initializer runs, and read its log",
					"initializer %q of configuration %q is not served: user %q last reported %s ago", initializer.Name, configuration.Name, entry.Reporter, duration.HumanDuration(i.now.Sub(entry.ReportTime.Time)))
			default:
				served++
			}
		}
	}
	if overdue || all == 0 {
		return
	}
	message := fmt.Sprintf("%d of %d are served", served, all)
	if len(never) > 0 {
		message += "; no program has ever reported that it serves " + strings.Join(never, ", ")
	}
	if len(unlimited) > 0 {
		message += "; without a failurePolicy, new namespaces wait without limit for " + strings.Join(unlimited, ", ")
	}
	i.add(check, OK, "", "%s", message)
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// served reports of each initializer that has its turn whether a program serves it. An initializer that never
// reported may be a person, and one that reports is slow only while its turn is stalled.
func served(o Observation) []Finding {
	if o.phase() != Initializing || o.lifecycle() != lifecycleCurrent || o.failed() {
		return nil
	}
	var found []Finding
	lifecycle := o.Lifecycle.Object
	for _, name := range helper.CurrentInitializers(lifecycle) {
		configuration, registration := helper.Registration(o.Configurations, name)
		if registration == nil {
			continue
		}
		progress := helper.Entry(lifecycle, name)
		w := words{"INITIALIZER": {name}, "CONFIGURATION": {configuration}}
		if registration.ReportTime == nil {
			w["NEVER"] = []string{"true"}
			found = append(found, o.finding(InitializerNotServed, Waiting, nil, fmt.Sprintf("no program has ever reported that it serves initializer %q", name), w))
			continue
		}
		reported := &metav1.Time{Time: registration.ReportTime.Time}
		age := duration.HumanDuration(max(0, o.age(reported)))
		w["PODS"] = []string{actorNamespace(&v1alpha1.InitializerStatus{LastActor: registration.Reporter})}
		w["REPORTED"] = []string{"true"}
		stalled := helper.IsStalled(lifecycle, name)
		switch {
		case o.isOverdue(registration):
			found = append(found, o.controlled(o.initializerActor(name), InitializerNotServed, Stuck, reported,
				fmt.Sprintf("no program serves initializer %q: user %q last reported %s ago", name, registration.Reporter, age), w))
		case stalled:
			message := fmt.Sprintf("the program of initializer %q runs: user %q reported %s ago", name, registration.Reporter, age)
			if progress != nil && progress.Message != "" {
				message += "; its last message: " + progress.Message
			}
			found = append(found, o.controlled(o.initializerActor(name), InitializerSlow, Stuck, nil, message, w))
		}
	}
	return found
}

// isOverdue reports whether no program reports any more that it serves an initializer.
func (o Observation) isOverdue(registration *v1alpha1.RegisteredInitializerStatus) bool {
	return apimeta.IsStatusConditionFalse(registration.Conditions, v1alpha1.ConditionServed) ||
		o.age(&metav1.Time{Time: registration.ReportTime.Time}) > timing.ReportOverdue+timing.MaxClockSkew
}

// initializerActor identifies the program of an initializer or a participant: the user who last reported that it serves
// it, and the one who acted as it in this namespace.
func (o Observation) initializerActor(name string) actor {
	a := actor{finalizer: name}
	if entry := helper.Entry(o.Lifecycle.Object, name); entry != nil {
		a.acted = entry.LastActor
	}
	if _, a.report = helper.Registration(o.Configurations, name); a.report != nil {
		a.user = a.report.Reporter
	}
	return a
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// step is what the controller does next with an object.
type step string

const (
	// wait does nothing until the deadline, if there is one.
	wait step = ""
	// release removes initializers that no configuration registers.
	release step = "release"
	// skip removes the first initializer at its deadline.
	skip step = "skip"
	// fail ends the object at the deadline of the first initializer.
	fail step = "fail"
)

// next returns the next step for an object that waits, the initializers that it concerns, and the time until the deadline, or 0.
func next(object metav1.Object, registered map[string]*v1alpha1.Initializer, now time.Time) (step, []string, time.Duration) {
	pending := helper.PendingOfObject(object)
	if len(pending) == 0 || object.GetDeletionTimestamp() != nil {
		return wait, nil, 0
	}
	unknown := slices.DeleteFunc(slices.Clone(pending), func(name string) bool { return registered[name] != nil })
	if len(unknown) > 0 {
		return release, unknown, 0
	}
	first := registered[pending[0]]
	if first.FailurePolicy == nil {
		return wait, nil, 0
	}
	timeout := time.Duration(ptr.Deref(first.TimeoutSeconds, v1alpha1.DefaultTimeoutSeconds)) * time.Second
	if left := object.GetCreationTimestamp().Add(timeout).Sub(now); left > 0 {
		return wait, nil, left
	}
	if *first.FailurePolicy == v1alpha1.Fail {
		return fail, pending[:1], 0
	}
	return skip, pending[:1], 0
}

// byName returns the initializers of configurations that have an effect by name.
func byName(configurations []*v1alpha1.InitializerConfiguration) map[string]*v1alpha1.Initializer {
	all := map[string]*v1alpha1.Initializer{}
	for _, initializer := range ordered(configurations) {
		all[initializer.Name] = initializer.Initializer
	}
	return all
}

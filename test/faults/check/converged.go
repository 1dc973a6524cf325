/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/faults/history"
)

// Converged is I2: after the faults end, every namespace becomes Active or is removed within a bound. No closed
// namespace is ever Ready, or, when kube-apiserver serves watches again, without a condition that states the reason.
// Only histories with the marks of the end of the faults and of the bound are judged.
func Converged(v *View) []Violation {
	quiet, ended := v.MarkAt(history.MarkQuiet)
	settled, waited := v.MarkAt(history.MarkSettled)
	if !ended || !waited {
		return nil
	}
	served := quiet
	if mark, ok := v.MarkAt(history.MarkServed); ok {
		served = mark
	}
	var all []Violation
	for _, n := range v.Incarnations() {
		if last := n.versionAt(settled.At); last != nil && !last.Deleted {
			if message := unconverged(*last); message != "" {
				all = append(all, Violation{Check: "I2", Namespace: n.Name, UID: n.UID, Revisions: []int64{last.Revision},
					Message: fmt.Sprintf("%s, %s after the last fault: %s", message, (settled.At - quiet.At).Round(time.Second), conditions(*last))})
			}
		}
		if removed, ok := v.MarkAt(history.MarkRemoved); ok && n.Removed == 0 {
			all = append(all, Violation{Check: "I2", Namespace: n.Name, UID: n.UID, Revisions: []int64{n.Last().Revision},
				Message: fmt.Sprintf("the namespace was not removed, %s after the last fault: %s", (removed.At - quiet.At).Round(time.Second), conditions(n.Last()))})
		}
		if i := slices.IndexFunc(n.Versions, readyThoughClosed); i >= 0 {
			all = append(all, Violation{Check: "I2", Namespace: n.Name, UID: n.UID, Revisions: []int64{n.Versions[i].Revision},
				Message: "the namespace is Ready although its gate is closed: " + conditions(n.Versions[i])})
		}
		if violation := v.silent(n, served.At, settled.At); violation != nil {
			all = append(all, *violation)
		}
	}
	return all
}

// versionAt returns the last version that was seen at a time, or nil.
func (n *Incarnation) versionAt(at time.Duration) *history.Event {
	var last *history.Event
	for i := range n.Versions {
		if n.Versions[i].Seen <= at {
			last = &n.Versions[i]
		}
	}
	return last
}

// unconverged returns what is wrong with a version of a namespace, or "".
func unconverged(last history.Event) string {
	switch {
	case last.Object.Deleting:
		return "the namespace is still terminating"
	case closed(last):
		return "the gate of the namespace is still closed"
	case !has(last, v1alpha1.ConditionReady, corev1.ConditionTrue):
		return "the gate of the namespace is open, but the namespace is not Ready"
	}
	return ""
}

// readyThoughClosed reports whether a closed namespace claims to be Ready.
func readyThoughClosed(version history.Event) bool {
	return !version.Deleted && closed(version) && has(version, v1alpha1.ConditionReady, corev1.ConditionTrue)
}

// silent finds a version that lasted too long without a condition that states the reason, or with a wrong one.
func (v *View) silent(n *Incarnation, served, settled time.Duration) *Violation {
	since := map[string]time.Duration{}
	for i, version := range n.Versions {
		until := settled
		if i+1 < len(n.Versions) {
			until = n.Versions[i+1].Seen
		}
		for message, wrong := range map[string]bool{
			"the namespace is closed and no condition states the reason": !version.Deleted && closed(version) && !version.Object.Deleting &&
				!has(version, v1alpha1.ConditionInitializing, corev1.ConditionTrue),
			"the namespace is terminating and Ready": !version.Deleted && version.Object.Deleting && has(version, v1alpha1.ConditionReady, corev1.ConditionTrue),
		} {
			if !wrong {
				delete(since, message)
				continue
			}
			if _, before := since[message]; !before {
				since[message] = max(version.Seen, served)
			}
			if lasted := until - since[message]; lasted > v.ReasonDelay {
				return &Violation{Check: "I2", Namespace: n.Name, UID: n.UID, Revisions: []int64{version.Revision},
					Message: fmt.Sprintf("%s, for %s: %s", message, lasted.Round(time.Second), conditions(version))}
			}
		}
	}
	return nil
}

// has reports whether a namespace has a condition with a message.
func has(version history.Event, kind corev1.NamespaceConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(version.Object.Core.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == kind && c.Status == status && c.Message != ""
	})
}

// conditions returns the conditions of a namespace on one line.
func conditions(version history.Event) string {
	var all []string
	for _, c := range version.Object.Core.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message))
	}
	if len(all) == 0 {
		return "it has no condition"
	}
	return strings.Join(all, ", ")
}

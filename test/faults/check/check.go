/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/test/faults/history"
)

// Violation is a proof that a history violates an invariant.
type Violation struct {
	// Check is the checker that found it: I1 to I9, Plan or Linearizable.
	Check     string    `json:"check"`
	Namespace string    `json:"namespace,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
	// Revisions are the revisions of the changes that prove it.
	Revisions []int64 `json:"revisions,omitempty"`
	// Operation is the ID of the operation that proves it, or 0.
	Operation int64  `json:"operation,omitempty"`
	Message   string `json:"message"`
}

// String returns everything on one line.
func (v Violation) String() string {
	text := v.Check + ":"
	if v.Namespace != "" {
		text += fmt.Sprintf(" namespace %q", v.Namespace)
	}
	if v.UID != "" {
		text += fmt.Sprintf(" (UID %s)", v.UID)
	}
	if len(v.Revisions) > 0 {
		text += " at revisions " + strings.Trim(fmt.Sprint(v.Revisions), "[]")
	}
	if v.Operation != 0 {
		text += fmt.Sprintf(", operation %d", v.Operation)
	}
	return text + ": " + v.Message
}

// Options are the parameters of the checks.
type Options struct {
	// NamePrefix is the prefix of the names of the namespaces that the campaign creates. Others are not judged.
	NamePrefix string
	// ReasonDelay is how long a closed namespace may be without a condition after the last
	// fault was healed.
	ReasonDelay time.Duration
}

// Checker is one named check.
type Checker struct {
	Name string
	// Summary describes the invariant.
	Summary string
	Check   func(*View) []Violation
}

// Checkers returns every check in the order of the report.
func Checkers() []Checker {
	return []Checker{
		{"I1", "etcd stores no write of a tenant in a namespace before the revision that opens the gate of this namespace.", Early},
		{"I2", "After the faults end, every namespace becomes Active or is removed within a time limit. Each closed namespace reports the reason.", Converged},
		{"I3", "etcd stores every acknowledged write to the API of nsinit.", Durable},
		{"I4", "The gate of each namespace opens once, after each initializer in the plan has acted. Each initializer leaves one result, which stays until the namespace is deleted, and until the participant that holds the content has cleaned up.", Once},
		{"I5", "No gate opens while the storage of nsinit is lost.", Lost},
		{"I6", "A pod gets no node, and a Job gets no pods, before all of its initializers are done. Each initializer removes only itself, in the order of the configuration. After the faults end, every pod gets a node and every Job starts within a time limit.", Held},
		{"I7", "etcd stores no write of a tenant in a namespace that has been frozen for 10 seconds. If a fault delays the caches of kube-apiserver, the 10 seconds begin after it. A population changes no open namespace that has been frozen or terminating for 10 seconds.", Frozen},
		{"I8", "When the gate of a namespace opens, the quota of its population is in force. After the faults end, each namespace gets the last version of the population.", Populated},
		{"I9", "A user sees no AccessibleNamespace that RBAC does not show to the user. A namespace names the user on whose behalf a portal created it, and no other user.", Seen},
		{"Plan", "The plan of a namespace is the merge of all configurations at one revision of etcd. The merge includes every change that was stored before a client began to create the namespace.", Plans},
		{"Linearizable", "Acknowledged writes and reads of NamespaceLifecycles and configurations are linearizable. The API allows each change.", Linearizable},
	}
}

// All applies every checker.
func All(h *history.History, options Options) []Violation {
	view := NewView(h, options)
	var all []Violation
	for _, checker := range Checkers() {
		all = append(all, checker.Check(view)...)
	}
	slices.SortStableFunc(all, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all
}

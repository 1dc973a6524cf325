/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package diagnosis reports the state of a namespace, what the namespace waits for and what helps. It works for
// every namespace of every cluster, with or without nsinit, and changes nothing.
//
// Diagnose first reads everything once: the result is an Observation, and failed reads are a part of it. Rules then
// judge the Observation. A rule reads nothing and does not depend on the order of the rules. The table of causes
// holds the meaning and the remedies of each cause; docs/why.md shows the meanings. A new cause needs a rule, an
// entry in causes.go, a test, and an end-to-end test with the real cause.
//
// The causes are those that keep namespaces Terminating (APIs that do not answer, admission that refuses deletions,
// finalizers, grace periods, emptied finalizers), and those that nsinit adds: pending initializers and participants,
// and nsinit itself.
//
// DiagnoseAll and Watch do this for every namespace that may not be healthy, and DiagnoseDeletion for one that is to be
// deleted. Fixes returns the remedies that a program can apply, as requests with preconditions: it sends none of them.
package diagnosis

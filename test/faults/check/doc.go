/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package check judges a history. Each checker is a pure function that returns what a history
// violates: the invariants I1 to I6, the plan, and linearizability.
//
//	I1   no tenant write is stored in a namespace before the revision that opened its gate
//	I2   every namespace becomes Active or is removed within a bound, and says what it waits for
//	I3   every acknowledged write to nsinit's API is stored
//	I4   each gate opens once, after each planned initializer has acted, with one result
//	I5   while nsinit's storage is lost, no gate opens
//	I6   no pod has a node, and no Job has pods, while an initializer is pending
//
// Revisions of one etcd order what is in it. What is in different etcds, or known to a client
// only, is compared by time, and only where the order is certain: a client's request lies between
// its start and its end, and a change was committed before the watch delivered it.
package check

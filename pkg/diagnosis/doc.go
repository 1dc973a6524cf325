/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package diagnosis says where a namespace stands, what it waits for and what helps, for any
// namespace of any cluster, with or without nsinit.
//
// A diagnosis changes nothing. It reads the namespace, the aggregated APIs, everything that is
// in the namespace and nsinit's record of it, and tries with dry-run whether what is left
// could be deleted. What may not be read is listed as not examined; everything else goes on.
//
// The causes are those that keep namespaces Terminating according to the analysis of namespace
// deletion (APIs that do not answer, admission that refuses deletions, finalizers, grace
// periods, finalizers that were emptied by hand), and what nsinit adds: initializers and
// participants that are waited for, and nsinit itself.
package diagnosis

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package admission holds the admission plugins of nsinit. They decide what depends on other objects:
//
//   - NamespaceInitializers. When a NamespaceLifecycle is created, the plugin reads the namespace, and writes the current
//     initializers into the plan. Only users with the verb open can set another plan. When a configuration is written, the plugin
//     checks who registers which initializer, warns of initializers and predecessors that have no effect, and refuses
//     initializers that wait for each other, and plans that are too large.
//   - NamespaceLifecycleProtection refuses to delete the NamespaceLifecycle of a live namespace.
//   - StorageSpace refuses new objects while the storage is full.
//
// A Reader reads all configurations for each plan. A read is consistent: it contains every
// write that was acknowledged before the read was requested, by any nsinit-apiserver. So a configuration
// applies to each NamespaceLifecycle whose creation begins after the configuration was acknowledged.
//
// Reads go to etcd and bypass the watch cache. The watch cache answers a consistent list when etcd has
// reported its progress, which takes up to 100 ms while other objects are written. BenchmarkRead compares
// both on an embedded etcd with 10 configurations and 2 cores:
//
//	callers   list from the watch cache   shared read of etcd
//	1         6.2 ms                      0.5 ms
//	100       89 ms                       1.1 ms
//
// Requests share reads. A request uses only a read that began after the request, so at most one read is
// in flight, and at most one waits. The number of reads does not depend on the number of requests.
package admission

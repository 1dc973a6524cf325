/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package initializer is the SDK for authors of initializers: programs that act on every new namespace before tenants
// can write to it and, optionally, when it is deleted, before it is removed.
//
// An author gives a name and one or two functions. The SDK calls Initialize when the initializer has its turn for a
// namespace, and Finalize when the namespace is deleted. Other initializers can have their turn in the same namespace at the
// same time. When the function returns nil, the SDK removes the initializer, and no other, from the NamespaceLifecycle. The
// initializers that waited for it then have their turn, or the namespace is removed. When the function
// returns an error, the SDK writes it as a message to the NamespaceLifecycle and to an event of the namespace, and calls
// the function again with exponential back-off. An error of Initialize that is wrapped by Fail is permanent: the
// initialization fails, and nsinit deletes the namespace.
//
// A function can be called more than once for one namespace: after an error, after a crash, or by another replica. It
// must be idempotent; IdempotencyKey gives the key. One process never calls it twice at the same time for one namespace.
// For several replicas, set Options.Election.
//
// The context of a call ends when the turn is over: when nsinit-controller-manager ends it at the initializer's deadline,
// when the namespace is deleted, when another client removed the initializer, when the lease is lost, or when the process stops.
//
// With Options.Registration the initializer registers itself. Otherwise an administrator adds it to a
// NamespaceInitializerConfiguration, with finalizer: true if it has a function Finalize.
//
// The replica that acts reports every 20 seconds, in the status of each configuration that registers the initializer,
// that it serves the initializer.
//
// The service account needs the ClusterRole nsinit:initializer, the verb initialize (and finalize) on
// initializers.nsinit.dev with the initializer's name, the ClusterRole nsinit:configure to register itself, and the
// permissions of its functions.
package initializer

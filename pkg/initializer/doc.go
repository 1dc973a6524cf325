/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package initializer is the SDK for authors of initializers: processes that must act on
// every new namespace before tenants may write into it, and, if they want, once more when
// it is deleted, before it may disappear.
//
// An author gives a name and a function, or two. Initialize is called when it is the
// initializer's turn for a namespace, Finalize when the namespace is being deleted. When
// the function returns nil, the SDK removes the initializer from the namespace's record,
// and the next one has its turn, or the namespace goes. When it returns an error, the error
// becomes the message that people read in the record's status, on the namespace and in an
// event, and the function is called again, later and later. An error of Initialize that is
// wrapped by Fail ends the initialization for good, and with it the namespace.
//
// A function may be called more than once for one namespace: after an error, after a crash,
// or by another replica. So it has to be idempotent, for which IdempotencyKey gives the key.
// It is never called twice at a time for one namespace, in one process; give
// Options.Election for several.
//
// The context of a call ends when the turn is over: at the initializer's deadline, when the
// namespace is deleted, when somebody else removed the initializer, when the lease is lost,
// or when the process stops.
//
// With Options.Registration the initializer registers itself. Otherwise somebody names it in
// a NamespaceInitializerConfiguration, with finalizer: true if it has a function Finalize.
//
// The service account needs the ClusterRole nsinit:initializer, the verb initialize (and
// finalize) on initializers.nsinit.dev with the initializer's name, the ClusterRole
// nsinit:configure to register itself, and whatever its functions do.
package initializer

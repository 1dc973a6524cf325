/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package initializer is the SDK for authors of initializers: processes that must act on
// every new namespace before tenants may write into it.
//
// An author gives a name, which a NamespaceInitializerConfiguration registers, and a
// function. The function is called when it is the initializer's turn for a namespace. It
// may be called more than once for one namespace: after an error, after a crash, or by
// another replica. So it has to be idempotent, for which the UID of the namespace is the
// key. When it returns nil, the SDK removes the initializer from the namespace's record,
// and the next one has its turn. When it returns an error, the error becomes the message
// that people read in the record's status and on the namespace, and the function is
// called again, later and later. An error that is wrapped by Fail ends the initialization
// for good, and with it the namespace.
//
// The context of a call ends when the turn is over: when the namespace is deleted, when
// somebody else removed the initializer, or when the process stops.
//
// The service account needs the ClusterRole nsinit:initializer, the verb initialize on
// initializers.nsinit.dev with the initializer's name, and whatever the function itself
// does.
package initializer

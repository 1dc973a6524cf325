/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package framework holds what the end-to-end tests share: control planes, programs, users, namespaces, initializers and
// waiting for conditions. Share is the usual beginning of a test:
//
//	c := framework.Share(t)
//	c.Configure(t, framework.Initializers("one.example.com")...)
//	namespace := c.CreateNamespace(t, c.Admin).Name
//	c.WaitCurrent(t, namespace, "one.example.com")
//
// Everything that a test creates with this package is removed when the test ends. A method without an error in its result
// fails the test.
package framework

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package earlywrite answers kube-apiserver when somebody writes into a namespace that is being
// initialized: it asks them to try again later, which kubectl and every client of client-go do
// by themselves, so that a namespace can be applied together with its content.
//
// It is an admission webhook that kube-apiserver reaches through the aggregator, so the caller is
// authenticated like any other. It refuses whatever it is asked about, because what it knows may be out
// of date when the gate behind it decides, and it never holds a request. It is not what keeps the
// namespace closed, and fails open: where it does not answer, the gate refuses.
//
// kube-apiserver asks it about closed namespaces only, except for resources that are named namespaces.
// It asks about these in every namespace, and this package admits them if the namespace is open.
package earlywrite

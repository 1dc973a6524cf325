/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package earlywrite is an admission webhook for writes into namespaces that are being initialized. Its
// response has the header Retry-After. kubectl and all clients of client-go then retry the write, so
// that a namespace can be applied together with its content.
//
// kube-apiserver reaches the webhook through the aggregator, which authenticates it like any other
// client. The webhook refuses each write without a delay, because its cache may be older than the state
// that the gate checks. It does not keep the namespace closed: if it does not answer, the gate refuses.
//
// kube-apiserver calls it only for closed namespaces, except for resources that are named namespaces.
// For these it is called in every namespace, and admits them if the namespace is open.
package earlywrite

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package webhook has the admission webhooks that nsinit-apiserver serves: AdmissionReviews are a resource without objects, of which each
// name is a webhook. kube-apiserver calls it through the aggregation layer. So the webhooks need no separate service and no separate
// certificate, and RBAC controls access to them.
//
// stamp closes the gate of new namespaces and stores their creator, for versions of kube-apiserver without MutatingAdmissionPolicy. It
// makes the same changes as artifacts/policies/stamp.yaml, with the same exemptions. The guard checks the changes.
//
// early-writes refuses writes into namespaces that are being initialized, with the header Retry-After. kubectl and all clients of client-go
// then retry the write, so that a namespace can be applied together with its content. It refuses each write without a delay, because its
// cache may be older than the state that the gate checks. It does not keep the namespace closed: if it does not answer, the gate refuses.
// kube-apiserver calls it only for closed namespaces, except for resources that are named namespaces. For these it is called in every
// namespace, and admits them if the namespace is open.
package webhook

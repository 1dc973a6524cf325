/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package registrations follows the admission policies and webhooks that are registered in the cluster, for
// the plugins of k8s.io/apiserver that evaluate them.
//
// It keeps only registrations whose rules match resources that these plugins evaluate. The policies of nsinit
// itself match namespaces and their content, so nsinit-apiserver neither compiles them nor watches their
// parameters. Each kind of parameter has a separate informer, which ends with its last policy.
//
// The informers do not decide readiness: while they have not read the registrations, Ready returns why, and
// only requests that the plugins evaluate are refused.
package registrations

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package nsinit holds the internal types of the nsinit.dev API group: the form
// in which strategies, validation and admission process objects of any version.
// While there is one version, v1alpha1, its types of specs and statuses are internal, too.
//
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1
// +groupName=nsinit.dev
package nsinit

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package nsinit holds the internal types of the nsinit.dev API group: the form
// in which strategies, validation and admission process objects of any version.
// The types in v1alpha1 document the fields.
//
// +k8s:deepcopy-gen=package
// +groupName=nsinit.dev
package nsinit

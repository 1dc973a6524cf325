/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package nsinit holds the internal types of the nsinit.dev API group: the form
// in which strategies, validation and admission see objects, whatever version a
// client sent. What fields mean is written on the wire types in v1alpha1.
//
// +k8s:deepcopy-gen=package
// +groupName=nsinit.dev
package nsinit

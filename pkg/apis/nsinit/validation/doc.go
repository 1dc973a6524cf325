/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package validation has the rules for objects of the nsinit.dev group that span several fields
// or two versions of an object. The rules for single fields are declared on the types in v1alpha1
// and generated.
package validation

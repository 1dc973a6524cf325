/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package expressions evaluates CEL expressions that read a namespace and its creator.
//
// An Environment renders templates: JSON values whose strings can contain expressions in ${...}. Their results are data:
// they are not searched for expressions, and cannot change the structure of the template.
//
// A Selection evaluates the matchConditions that select namespaces. They are type-checked, and their cost is bounded
// when they are written.
package expressions

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package expressions renders templates: JSON values whose strings can contain CEL expressions in ${...}. Expressions
// read the namespace and its creator. Their results are data: they are not searched for expressions, and cannot change
// the structure of the template.
package expressions

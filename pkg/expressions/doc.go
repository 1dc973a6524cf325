/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package expressions fills in templates: JSON values whose strings may hold CEL expressions in
// ${...}, which see the namespace and its creator. What an expression yields is data: it is
// never looked at for expressions again, and cannot change the structure of the template.
package expressions

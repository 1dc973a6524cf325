/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package validation says what an object of the nsinit.dev group may be, and which
// change of it is a legal transition. What a single field may hold is declared on the
// wire types and generated; here stands what spans fields or two versions of an object.
package validation

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package apierrors tells an object that is gone from an API that is, and makes the answer of a server that cannot
// serve a request now.
package apierrors

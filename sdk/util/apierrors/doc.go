/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package apierrors distinguishes an object that does not exist from an API that is unavailable, and creates errors
// with a delay for the retry.
package apierrors

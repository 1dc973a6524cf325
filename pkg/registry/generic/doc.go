/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package generic derives the storage of a kind from one declaration. A Kind names the parts of
// its objects. Each endpoint (the main one and the subresources) declares the parts that it owns.
// A write to an endpoint keeps all other parts as they are stored, and their fields are not
// recorded in managedFields.
//
// A kind can be deleted in two steps: a DELETE sets the deletion timestamp, and the object is
// removed from storage once its spec.finalizers are empty.
package generic

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package existing follows the namespaces of the cluster, with their labels and annotations. The populations select
// namespaces by them.
package existing

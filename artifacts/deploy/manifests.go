/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package deploy holds the manifests that the programs of nsinit apply themselves.
package deploy

import _ "embed"

//go:embed base/in-force/apiservice.yaml
var apiService string

// APIService returns the manifest with which nsinit-controller-manager registers the API of nsinit.
func APIService() string { return apiService }

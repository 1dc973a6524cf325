/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command release makes the parts of a release that are not compiled: the image and the chart as OCI layouts, rendered
// manifests, the manifest of the kubectl plugin for krew, provenance, checksums and signatures. It needs neither a container
// engine nor a network. hack/release.sh runs it.
//
// The same input gives the same files, except for signatures: those of ECDSA contain a random number.
package main

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package certificates makes and renews the certificates of nsinit-apiserver: a CA, which
// it keeps in a Secret of its own, the serving certificate, in the Secret that the server mounts,
// and the caBundle of the APIService. At every moment the certificate that is served is signed by
// a CA that kube-apiserver trusts.
package certificates

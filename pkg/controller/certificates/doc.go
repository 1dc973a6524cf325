/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package certificates issues and renews the certificates of nsinit-apiserver. It stores the CA in a
// separate Secret, and the serving certificate in the Secret that the server mounts. It sets the
// caBundle of the APIService, so that kube-apiserver always trusts the CA of the serving certificate.
package certificates

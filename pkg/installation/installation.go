/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package installation names what every installation of nsinit has in the cluster.
package installation

const (
	// Namespace is where nsinit is installed.
	Namespace = "nsinit-system"
	// ControllerManager is the name of nsinit-controller-manager: of the program, its
	// deployment, and the Lease by which its instances agree on which of them acts.
	ControllerManager = "nsinit-controller-manager"
	// APIServer is the name of nsinit-apiserver: of the program, its workload, its service
	// and the label of its pods.
	APIServer = "nsinit-apiserver"
	// ServingSecret is the Secret that holds the certificate that nsinit's programs serve.
	ServingSecret = "nsinit-apiserver-tls" //nolint:gosec // its name
)

// ServingNames are the DNS names by which nsinit's programs are reached.
func ServingNames() []string {
	var names []string
	for _, service := range []string{APIServer, ControllerManager} {
		for _, suffix := range []string{".svc", ".svc.cluster.local"} {
			names = append(names, service+"."+Namespace+suffix)
		}
	}
	return names
}

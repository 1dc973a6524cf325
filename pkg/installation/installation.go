/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package installation has the names of the objects of every installation of nsinit.
package installation

const (
	// Namespace is where nsinit is installed.
	Namespace = "nsinit-system"
	// ControllerManager is the name of nsinit-controller-manager, its Deployment and its Lease.
	ControllerManager = "nsinit-controller-manager"
	// APIServer is the name of nsinit-apiserver, its workload, its Service and the label of its pods.
	APIServer = "nsinit-apiserver"
	// PartOf selects the workloads of nsinit by their label.
	PartOf = "app.kubernetes.io/part-of=nsinit"
	// ServingSecret is the Secret with the serving certificate of nsinit's programs.
	ServingSecret = "nsinit-apiserver-tls" //nolint:gosec // its name
)

// ServingNames returns the DNS names of nsinit's programs.
func ServingNames() []string {
	var names []string
	for _, service := range []string{APIServer, ControllerManager} {
		for _, suffix := range []string{".svc", ".svc.cluster.local"} {
			names = append(names, service+"."+Namespace+suffix)
		}
	}
	return names
}

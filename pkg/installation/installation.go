/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package installation has the names of the objects of every installation of nsinit.
package installation

import (
	"cmp"
	"fmt"
	"os"
	"strings"
)

const (
	// DefaultNamespace is the namespace of nsinit in the manifests that it delivers.
	DefaultNamespace = "nsinit-system"
	// APIService is the name of nsinit's APIService.
	APIService = "v1alpha1.nsinit.dev"
	// ControllerManager is the name of nsinit-controller-manager, its Deployment and its Lease.
	ControllerManager = "nsinit-controller-manager"
	// APIServer is the name of nsinit-apiserver, its workload, its Service and the label of its pods.
	APIServer = "nsinit-apiserver"
	// Off is the name of the ConfigMap that keeps nsinit from closing new namespaces, in the namespace of nsinit.
	Off = "nsinit-off"
	// OffUser is the key of that ConfigMap with the user who created it.
	OffUser = "user"
	// GuardCreate is the name of the policy that checks new namespaces. Events on it say whether they are closed.
	GuardCreate = "nsinit-guard-create"
	// Follows is the name of the binding that matches nothing, and names the namespace of nsinit.
	Follows = "nsinit-guard-create.follows-nsinit-exemptions"
	// Stamp is the name of the policy or the webhook that closes new namespaces.
	Stamp = "nsinit-stamp"
	// OpenedBy is the name of the policy or the webhook that records who opens a namespace by hand.
	OpenedBy = "nsinit-stamp-opened-by"
	// ObjectsGuard is the name of the policy that guards pods and Jobs that wait for initializers. The component objects has it.
	ObjectsGuard = "nsinit-objects-guard"
	// ObjectsRelease is the name of the policy of the same component that starts Jobs.
	ObjectsRelease = "nsinit-objects-release"
	// PartOf selects the workloads of nsinit by their label.
	PartOf = "app.kubernetes.io/part-of=nsinit"
	// ServingSecret is the Secret with the serving certificate of nsinit's programs.
	ServingSecret = "nsinit-apiserver-tls" //nolint:gosec // its name
)

// Gates returns the names of the policies, and of their bindings, that keep a closed namespace closed and its creator true.
func Gates() []string {
	return []string{"nsinit-gate", "nsinit-gate-namesakes", "nsinit-guard", "nsinit-guard-creator"}
}

// Namespace returns the namespace of a program of nsinit: that of its pod, which the manifests put into the environment
// variable POD_NAMESPACE, or else DefaultNamespace.
func Namespace() string { return cmp.Or(os.Getenv("POD_NAMESPACE"), DefaultNamespace) }

// InNamespace returns a delivered manifest for an installation in another namespace.
func InNamespace(manifest, namespace string) string {
	return strings.ReplaceAll(manifest, DefaultNamespace, namespace)
}

// ServingNames returns the DNS names of nsinit's programs in a namespace.
func ServingNames(namespace string) []string {
	var names []string
	for _, service := range []string{APIServer, ControllerManager} {
		for _, suffix := range []string{".svc", ".svc.cluster.local"} {
			names = append(names, service+"."+namespace+suffix)
		}
	}
	return names
}

// ParseNamespacedName splits NAMESPACE/NAME.
func ParseNamespacedName(text string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q is not the name of an object: use NAMESPACE/NAME", text)
	}
	return namespace, name, nil
}

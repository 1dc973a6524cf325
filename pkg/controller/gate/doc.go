/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package gate brings the gate into force: it creates the binding of the stamp, or its webhook, and then that of the guard of
// creation. Until then, new namespaces stay open, so an installation that fails changes nothing for them.
//
// It creates them when nsinit works: the API accepts a NamespaceLifecycle in a dry run, for which nsinit-apiserver reads
// its etcd. Later failures remove nothing, so the gate holds. While the ConfigMap nsinit-off exists, it removes
// them. Namespaces that are closed stay closed until their initializers are done.
//
// It also registers the API, and removes the registration during an outage, because Kubernetes removes no namespace while an API that is
// registered does not answer.
package gate

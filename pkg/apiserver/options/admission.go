/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package options

import (
	"k8s.io/apimachinery/pkg/util/sets"
	admissioninterface "k8s.io/apiserver/pkg/admission"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/nsinit/nsinit/pkg/admission"
	"github.com/nsinit/nsinit/pkg/admission/clusteradmission"
)

// admissionOptions returns the admission options of nsinit-apiserver. All plugins are on by default. Those that evaluate the policies and
// webhooks of the cluster come last.
//
// The generic NamespaceLifecycle plugin is left out, because it has no effect on cluster-scoped resources.
// NamespaceInitializers reads namespaces live, because a stale cache would have the former namespace of a name.
func admissionOptions() *genericoptions.AdmissionOptions {
	options := genericoptions.NewAdmissionOptions()
	options.Plugins = admissioninterface.NewPlugins()
	options.RecommendedPluginOrder = append(admission.Order(), clusteradmission.Order()...)
	options.DefaultOffPlugins = sets.New[string]()
	admission.Register(options.Plugins)
	clusteradmission.Register(options.Plugins)
	return options
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package options

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/nsinit/nsinit/pkg/admission/plugin/clusteradmission"
	"github.com/nsinit/nsinit/pkg/admission/plugin/lifecycleprotection"
	"github.com/nsinit/nsinit/pkg/admission/plugin/namespaceinitializers"
	"github.com/nsinit/nsinit/pkg/admission/plugin/storagespace"
)

// admissionOptions returns the admission options of nsinit-apiserver. All plugins are on by default. The first
// two are cheap, and change nothing. The plugins that evaluate the policies and webhooks of the cluster come last.
//
// The generic NamespaceLifecycle plugin is left out, because it has no effect on cluster-scoped resources.
// NamespaceInitializers reads namespaces live, because a stale cache would have the former namespace of a name.
func admissionOptions() *genericoptions.AdmissionOptions {
	options := genericoptions.NewAdmissionOptions()
	options.Plugins = admission.NewPlugins()
	options.RecommendedPluginOrder = append([]string{storagespace.PluginName, lifecycleprotection.PluginName, namespaceinitializers.PluginName},
		clusteradmission.Order()...)
	options.DefaultOffPlugins = sets.New[string]()
	storagespace.Register(options.Plugins)
	lifecycleprotection.Register(options.Plugins)
	namespaceinitializers.Register(options.Plugins)
	clusteradmission.Register(options.Plugins)
	return options
}

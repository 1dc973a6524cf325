/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package admission chooses the admission chain of nsinit-apiserver.
package admission

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/nsinit/nsinit/pkg/admission/plugin/namespaceinitializers"
	"github.com/nsinit/nsinit/pkg/admission/plugin/recordprotection"
	"github.com/nsinit/nsinit/pkg/admission/plugin/storagespace"
)

// order is the order in which plugins act; all of them are on by default. StorageSpace and
// protection come first because they change nothing and are cheap for what they refuse.
//
// The webhook and policy plugins that generic API servers have by default are left out
// on purpose: their informers want APIs that older clusters do not serve, and a foreign
// webhook that selects everything could keep records from being written, which would
// keep namespaces closed. The generic NamespaceLifecycle plugin has nothing to do for
// resources that are cluster-scoped. NamespaceInitializers reads the namespace of a record
// live: a cache that is behind would refuse the record of a namespace whose name was used before.
func order() []string {
	return []string{
		storagespace.PluginName,
		recordprotection.PluginName,
		namespaceinitializers.PluginName,
	}
}

// Options returns the admission options of nsinit-apiserver: its own plugins, in its own
// order.
func Options() *genericoptions.AdmissionOptions {
	options := genericoptions.NewAdmissionOptions()
	options.Plugins = admission.NewPlugins()
	options.RecommendedPluginOrder = order()
	options.DefaultOffPlugins = sets.New[string]()
	storagespace.Register(options.Plugins)
	recordprotection.Register(options.Plugins)
	namespaceinitializers.Register(options.Plugins)
	return options
}

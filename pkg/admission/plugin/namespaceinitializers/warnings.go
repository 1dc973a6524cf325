/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializers

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

// warn adds a warning to the response for each initializer of a written configuration that has no effect. Its
// condition NamesAccepted reports the same. The request succeeds in any case.
func (p *Plugin) warn(ctx context.Context, attributes admission.Attributes) {
	written, ok := attributes.GetObject().(*nsinit.NamespaceInitializerConfiguration)
	if !ok || attributes.GetSubresource() != "" || written.DeletionTimestamp != nil {
		return
	}
	var configuration v1alpha1.NamespaceInitializerConfiguration
	err := v1alpha1.Convert_nsinit_NamespaceInitializerConfiguration_To_v1alpha1_NamespaceInitializerConfiguration(written, &configuration, nil)
	var items []v1alpha1.NamespaceInitializerConfiguration
	if err == nil {
		items, err = p.source.List(ctx)
	}
	if err != nil {
		klog.FromContext(ctx).Info("Cannot check whether the initializers of a configuration have an effect", "configuration", written.Name, "err", err)
		return
	}
	all := make([]*v1alpha1.NamespaceInitializerConfiguration, 0, len(items))
	for i := range items {
		all = append(all, &items[i])
	}
	for _, message := range helper.Ineffective(&configuration, all) {
		warning.AddWarning(ctx, "", message)
	}
}

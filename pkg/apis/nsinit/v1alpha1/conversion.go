/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/conversion"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// Convert_v1alpha1_NamespaceInitializers_To_nsinit_NamespaceInitializers moves the deprecated turnStartTime to the
// first pending initializer, which was the only one with a turn.
func Convert_v1alpha1_NamespaceInitializers_To_nsinit_NamespaceInitializers(in *NamespaceInitializers, out *nsinit.NamespaceInitializers, s conversion.Scope) error {
	if err := autoConvert_v1alpha1_NamespaceInitializers_To_nsinit_NamespaceInitializers(in, out, s); err != nil {
		return err
	}
	if in.TurnStartTime != nil && len(in.Pending) > 0 && in.Pending[0].TurnStartTime == nil {
		out.Pending = slices.Clone(out.Pending) // which is the memory of in.Pending
		out.Pending[0].TurnStartTime = in.TurnStartTime
	}
	return nil
}

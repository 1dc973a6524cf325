/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package install registers every version of the nsinit.dev group with a scheme.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Install registers the internal and the wire types of the group, and the order
// in which its versions are preferred.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(nsinit.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
}

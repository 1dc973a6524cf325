/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// FieldCurrentInitializer is the field of NamespaceLifecycles that selects by initializer: those in which the
// initializer has its turn. An empty value selects those in which none has.
const FieldCurrentInitializer = "status.currentInitializer"

// CurrentInitializerField returns the field, and its value, that a NamespaceLifecycle has for the server while the
// initializer has its turn. A selector can only compare one value of a field, and several initializers can have their
// turns at the same time.
func CurrentInitializerField(name string) (field, value string) {
	return FieldCurrentInitializer + "s[" + name + "]", "true"
}

// addFieldLabelConversions names the fields that field selectors may use.
func addFieldLabelConversions(scheme *runtime.Scheme) error {
	lifecycles := selectable("metadata.name", "status.phase", FieldCurrentInitializer)
	if err := scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind("NamespaceLifecycle"), func(label, value string) (string, string, error) {
		if label == FieldCurrentInitializer && value != "" {
			label, value = CurrentInitializerField(value)
			return label, value, nil
		}
		return lifecycles(label, value)
	}); err != nil {
		return err
	}
	for _, kind := range []string{"AccessibleNamespace", "NamespaceInitializerConfiguration"} {
		if err := scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind(kind), selectable("metadata.name", "status.phase")); err != nil {
			return err
		}
	}
	return nil
}

func selectable(supported ...string) runtime.FieldLabelConversionFunc {
	return func(label, value string) (string, string, error) {
		if slices.Contains(supported, label) {
			return label, value, nil
		}
		return "", "", fmt.Errorf("%q is not a known field selector: use one of %q", label, supported)
	}
}

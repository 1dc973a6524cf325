/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
)

// ReadObjects returns the objects of the files or streams of a builder of unstructured objects.
func ReadObjects(from *resource.Builder) ([]*unstructured.Unstructured, error) {
	infos, err := from.Flatten().Do().Infos()
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, info := range infos {
		object, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("%s is a %T", info.Name, info.Object)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

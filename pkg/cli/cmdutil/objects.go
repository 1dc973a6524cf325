/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/nsinit/nsinit/pkg/installation"
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

// ReadManifests returns the objects of delivered manifests, for an installation in a namespace.
func ReadManifests(namespace string, manifests ...string) ([]*unstructured.Unstructured, error) {
	text := installation.InNamespace(strings.Join(manifests, "\n---\n"), namespace)
	return ReadObjects(resource.NewLocalBuilder().Unstructured().Stream(strings.NewReader(text), "manifests"))
}

// MapTexts returns a copy of a value of an unstructured object in which a function has changed each text.
func MapTexts(value any, change func(text string) string) any {
	switch v := value.(type) {
	case string:
		return change(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = MapTexts(v[i], change)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for key := range v {
			object[key] = MapTexts(v[key], change)
		}
		return object
	}
	return value
}

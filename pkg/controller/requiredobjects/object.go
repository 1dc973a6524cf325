/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package requiredobjects

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object that every usable namespace has.
type Object struct {
	Resource schema.GroupResource
	Name     string
}

// String returns the object as Parse reads it.
func (o Object) String() string { return o.Resource.String() + "/" + o.Name }

// ByKubernetes returns the objects that kube-controller-manager creates in every namespace. A pod needs
// both of them.
func ByKubernetes() []Object {
	return []Object{
		{Resource: schema.GroupResource{Resource: "serviceaccounts"}, Name: "default"},
		{Resource: schema.GroupResource{Resource: "configmaps"}, Name: "kube-root-ca.crt"},
	}
}

// Parse reads objects in the form resource[.group]/name. Its error names the first wrong one.
func Parse(texts []string) ([]Object, error) {
	var objects []Object
	for _, text := range texts {
		resource, name, ok := strings.Cut(text, "/")
		object := Object{Resource: schema.ParseGroupResource(resource), Name: name}
		switch reasons := content.IsPathSegmentName(name); {
		case !ok || object.Resource.Resource == "" || name == "":
			return nil, fmt.Errorf("%q: write resource[.group]/name, such as serviceaccounts/default", text)
		case len(reasons) > 0:
			return nil, fmt.Errorf("%q: the name %s", text, reasons[0])
		case slices.Contains(objects, object):
			return nil, fmt.Errorf("%q: it is listed twice", text)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

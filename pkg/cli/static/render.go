/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package static

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/nsinit/nsinit/artifacts/policies"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
)

const (
	// suffix is what the name of each static policy and binding ends with.
	suffix = ".static.k8s.io"
	// parameter is how the expressions of the policies read the exemptions.
	parameter = "params.?data[?key]"
)

// kinds are the kinds of policies, each of which kube-apiserver reads from another folder.
func kinds() []string { return []string{"validating", "mutating"} }

// render returns the policies and bindings of a kind as static ones, with these exemptions.
func render(kind string, exemptions map[string]string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, name := range []string{"gate.yaml", "guard.yaml", "freeze.yaml", "guard-create.yaml", "stamp.yaml"} {
		data, err := policies.Files().ReadFile(name)
		if err != nil {
			return nil, err
		}
		objects, err := cmdutil.ReadObjects(resource.NewLocalBuilder().Unstructured().Stream(bytes.NewReader(data), name))
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if !strings.HasPrefix(strings.ToLower(object.GetKind()), kind) {
				continue
			}
			if err := renderObject(object, literal(exemptions)); err != nil {
				return nil, err
			}
			all = append(all, object)
		}
	}
	return all, nil
}

// renderObject makes a policy or a binding a static one: with another name, and the exemptions in place of a parameter.
func renderObject(object *unstructured.Unstructured, exemptions string) error {
	object.SetName(object.GetName() + suffix)
	if name, found, _ := unstructured.NestedString(object.Object, "spec", "policyName"); found {
		if err := unstructured.SetNestedField(object.Object, name+suffix, "spec", "policyName"); err != nil {
			return err
		}
	}
	unstructured.RemoveNestedField(object.Object, "spec", "paramRef")
	if _, found, _ := unstructured.NestedMap(object.Object, "spec", "paramKind"); found {
		unstructured.RemoveNestedField(object.Object, "spec", "paramKind")
		replaced := 0
		object.Object["spec"] = replace(object.Object["spec"], exemptions, &replaced)
		if replaced != 1 {
			return fmt.Errorf("%s %s reads its parameter %d times, want once", object.GetKind(), object.GetName(), replaced)
		}
	}
	return nil
}

// replace returns a value with the parameter replaced in all texts, and counts how often.
func replace(value any, exemptions string, count *int) any {
	switch v := value.(type) {
	case string:
		*count += strings.Count(v, parameter)
		return strings.ReplaceAll(v, parameter, exemptions+"[?key]")
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = replace(v[i], exemptions, count)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for key := range v {
			object[key] = replace(v[key], exemptions, count)
		}
		return object
	}
	return value
}

// literal returns the exemptions as an expression in CEL: a map.
func literal(exemptions map[string]string) string {
	entries := make([]string, 0, len(exemptions))
	for _, key := range slices.Sorted(maps.Keys(exemptions)) {
		entries = append(entries, strconv.QuoteToASCII(key)+": "+strconv.QuoteToASCII(exemptions[key]))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

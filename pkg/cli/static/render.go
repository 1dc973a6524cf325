/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package static

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nsinit/nsinit/artifacts"
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

// render returns the policies and bindings of a kind as static ones, with these exemptions. The namespace of the ConfigMap is
// that of nsinit.
func render(kind string, exemptions *corev1.ConfigMap) ([]*unstructured.Unstructured, error) {
	objects, err := cmdutil.ReadManifests(exemptions.Namespace, append(artifacts.Policies(true), artifacts.Stamp(), artifacts.GuardCreate())...)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, object := range objects {
		if !strings.HasPrefix(strings.ToLower(object.GetKind()), kind) {
			continue
		}
		if err := renderObject(object, literal(exemptions.Data)); err != nil {
			return nil, err
		}
		all = append(all, object)
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
		object.Object["spec"] = cmdutil.MapTexts(object.Object["spec"], func(text string) string {
			replaced += strings.Count(text, parameter)
			return strings.ReplaceAll(text, parameter, exemptions+"[?key]")
		})
		if replaced != 1 {
			return fmt.Errorf("%s %s reads its parameter %d times, want once", object.GetKind(), object.GetName(), replaced)
		}
	}
	return nil
}

// literal returns the exemptions as an expression in CEL: a map.
func literal(exemptions map[string]string) string {
	entries := make([]string, 0, len(exemptions))
	for _, key := range slices.Sorted(maps.Keys(exemptions)) {
		entries = append(entries, strconv.QuoteToASCII(key)+": "+strconv.QuoteToASCII(exemptions[key]))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Manifests are the objects that every namespace gets, in the order in which they are
// applied.
type Manifests struct {
	documents []document
}

// document is one object whose strings may hold expressions.
type document struct {
	number int
	root   map[string]any // strings are *text
}

// LoadFile reads manifests from a file of YAML documents.
func LoadFile(path string) (*Manifests, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the administrator names the file
	if err != nil {
		return nil, fmt.Errorf("cannot read the manifests: %w", err)
	}
	manifests, err := Load(data)
	if err != nil {
		return nil, fmt.Errorf("the manifests in %s are not valid: %w", path, err)
	}
	return manifests, nil
}

// Load reads manifests, and reports everything that is wrong with them.
func Load(data []byte) (*Manifests, error) {
	environment, err := newEnvironment()
	if err != nil {
		return nil, fmt.Errorf("cannot set up CEL: %w", err)
	}
	manifests := &Manifests{}
	var errs []error
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for number := 1; ; number++ {
		raw, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var content map[string]any
		if err := yaml.UnmarshalStrict(raw, &content); err != nil {
			errs = append(errs, fmt.Errorf("document %d: %w", number, err))
			continue
		}
		if len(content) == 0 {
			continue // comments
		}
		errs = append(errs, check(number, content)...)
		compiled, compileErrs := compileValue(func(source string) (*text, error) { return compile(environment, source) }, content, fmt.Sprintf("document %d: ", number))
		errs = append(errs, compileErrs...)
		if root, ok := compiled.(map[string]any); ok {
			manifests.documents = append(manifests.documents, document{number: number, root: root})
		}
	}
	if len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	if len(manifests.documents) == 0 {
		return nil, errors.New("there is no manifest")
	}
	return manifests, nil
}

// check looks at what must be literal.
func check(number int, content map[string]any) []error {
	object := unstructured.Unstructured{Object: content}
	var errs []error
	for _, required := range []struct{ field, value string }{
		{"apiVersion", object.GetAPIVersion()}, {"kind", object.GetKind()}, {"metadata.name", object.GetName()},
	} {
		if required.value == "" {
			errs = append(errs, fmt.Errorf("document %d: %s is missing", number, required.field))
		}
	}
	if namespace := object.GetNamespace(); namespace != "" {
		errs = append(errs, fmt.Errorf("document %d: metadata.namespace is %q: leave it out, it is the namespace that is initialized", number, namespace))
	}
	return errs
}

// compileValue replaces every string by its compiled form. Keys are literal.
func compileValue(compile func(string) (*text, error), value any, path string) (any, []error) {
	var errs []error
	switch typed := value.(type) {
	case string:
		compiled, err := compile(typed)
		if err != nil {
			return nil, []error{fmt.Errorf("%s: %w", path, err)}
		}
		return compiled, nil
	case []any:
		result := make([]any, len(typed))
		for i := range typed {
			var inner []error
			result[i], inner = compileValue(compile, typed[i], fmt.Sprintf("%s[%d]", path, i))
			errs = append(errs, inner...)
		}
		return result, errs
	case map[string]any:
		result := make(map[string]any, len(typed))
		for key := range typed {
			var inner []error
			result[key], inner = compileValue(compile, typed[key], path+"."+key)
			errs = append(errs, inner...)
		}
		return result, errs
	}
	return fromJSON(value), nil
}

// Render returns the objects for one namespace.
func (m *Manifests) Render(namespace *corev1.Namespace) ([]*unstructured.Unstructured, error) {
	values := parameters(namespace)
	var objects []*unstructured.Unstructured
	for _, document := range m.documents {
		rendered, err := renderValue(document.root, values, fmt.Sprintf("document %d: ", document.number))
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{Object: rendered.(map[string]any)}
		object.SetNamespace(namespace.Name)
		objects = append(objects, object)
	}
	return objects, nil
}

func renderValue(value any, values map[string]any, path string) (any, error) {
	switch typed := value.(type) {
	case *text:
		rendered, err := typed.render(values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return rendered, nil
	case []any:
		result := make([]any, len(typed))
		for i := range typed {
			var err error
			if result[i], err = renderValue(typed[i], values, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return nil, err
			}
		}
		return result, nil
	case map[string]any:
		result := make(map[string]any, len(typed))
		for key := range typed {
			var err error
			if result[key], err = renderValue(typed[key], values, path+"."+key); err != nil {
				return nil, err
			}
		}
		return result, nil
	}
	return value, nil
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// crdGroup is the group of the CustomResourceDefinition with the schema of NamespacePopulations.
const crdGroup = "perf.nsinit.dev"

// api is a typed client of NamespacePopulations, which are served in one of two ways.
type api struct {
	*gentype.ClientWithList[*v1alpha1.NamespacePopulation, *v1alpha1.NamespacePopulationList]
	// server is the process that holds the objects in memory.
	server string
}

// aggregated uses nsinit-apiserver with protobuf.
func aggregated(p *plane) (api, error) {
	return newAPI(p, v1alpha1.GroupName, runtime.ContentTypeProtobuf, "nsinit-apiserver")
}

// custom uses a CustomResourceDefinition, which is served as JSON.
func custom(p *plane) (api, error) {
	return newAPI(p, crdGroup, runtime.ContentTypeJSON, "kube-apiserver")
}

func newAPI(p *plane, group, contentType, server string) (api, error) {
	version := schema.GroupVersion{Group: group, Version: v1alpha1.SchemeGroupVersion.Version}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(version, &v1alpha1.NamespacePopulation{}, &v1alpha1.NamespacePopulationList{})
	metav1.AddToGroupVersion(scheme, version)
	config := rest.CopyConfig(p.admin)
	config.APIPath, config.GroupVersion, config.ContentType = "/apis", &version, contentType
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return api{}, err
	}
	return api{gentype.NewClientWithList(resourceName, client, runtime.NewParameterCodec(scheme), "",
		func() *v1alpha1.NamespacePopulation { return &v1alpha1.NamespacePopulation{} },
		func() *v1alpha1.NamespacePopulationList { return &v1alpha1.NamespacePopulationList{} }), server}, nil
}

// resourceName is that of both kinds.
const resourceName = "namespacepopulations"

// create creates an object of about two kilobytes. Its names and values are not expressions.
func (a api) create(ctx context.Context, name string) error {
	population := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range 4 {
		population.Spec.Manifests = append(population.Spec.Manifests, v1alpha1.PopulationManifest{Name: fmt.Sprintf("manifest-%d", i), Template: runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"content-%d"},"data":{"value":%q}}`, i, strings.Repeat("x", 300))}})
	}
	_, err := a.Create(ctx, population, metav1.CreateOptions{})
	return err
}

func (a api) get(ctx context.Context, name string) error {
	_, err := a.Get(ctx, name, metav1.GetOptions{})
	return err
}

// update reads and updates an object.
func (a api) update(ctx context.Context, name string) error {
	population, err := a.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	population.Annotations = map[string]string{"time": time.Now().String()}
	_, err = a.Update(ctx, population, metav1.UpdateOptions{})
	return err
}

// define creates the CustomResourceDefinition, with the schema that nsinit-apiserver publishes.
func define(ctx context.Context, p *plane) error {
	text, err := p.core.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/nsinit.dev/v1alpha1").DoRaw(ctx)
	if err != nil {
		return err
	}
	var published struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal(text, &published); err != nil {
		return err
	}
	s := structural{published.Components.Schemas}
	name := ""
	for candidate := range s.schemas {
		if strings.HasSuffix(candidate, ".NamespacePopulation") {
			name = candidate
		}
	}
	root := s.of(map[string]any{"$ref": "#/components/schemas/" + name})
	root["properties"].(map[string]any)["metadata"] = map[string]any{"type": "object"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": resourceName + "." + crdGroup},
		"spec": map[string]any{
			"group": crdGroup, "scope": "Cluster", "names": map[string]any{"plural": resourceName, "singular": "namespacepopulation", "kind": "NamespacePopulation", "listKind": "NamespacePopulationList"},
			"versions": []any{map[string]any{"name": "v1alpha1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": root}, "subresources": map[string]any{"status": map[string]any{}}}},
		},
	}}
	definitions := p.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := p.dynamic.Resource(schema.GroupVersionResource{Group: crdGroup, Version: "v1alpha1", Resource: resourceName}).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	})
}

// structural makes a schema of a CustomResourceDefinition of one with references.
type structural struct{ schemas map[string]map[string]any }

func (s structural) of(from map[string]any) map[string]any {
	if all, ok := from["allOf"].([]any); ok {
		return s.of(all[0].(map[string]any))
	}
	if reference, ok := from["$ref"].(string); ok {
		if strings.HasSuffix(reference, ".RawExtension") {
			return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}
		return s.of(s.schemas[strings.TrimPrefix(reference, "#/components/schemas/")])
	}
	to := map[string]any{}
	for key, value := range from {
		switch key {
		case "type", "format", "required", "enum", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type":
			to[key] = value
		case "items", "additionalProperties":
			to[key] = s.of(value.(map[string]any))
		case "properties":
			properties := map[string]any{}
			for name, property := range value.(map[string]any) {
				properties[name] = s.of(property.(map[string]any))
			}
			to[key] = properties
		}
	}
	return to
}

// requestsTo measures how many requests one kind of objects is served with, in a second, while the other kind is not used.
func requestsTo(which func(*plane) (api, error)) func(context.Context, *plane, string) (map[string]float64, error) {
	const objects, requests, lists, watchers, events = 5000, 2000, 5, 200, 200
	return func(ctx context.Context, p *plane, prefix string) (map[string]float64, error) {
		if err := define(ctx, p); err != nil {
			return nil, err
		}
		a, err := which(p)
		if err != nil {
			return nil, err
		}
		name := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
		figures := map[string]float64{}
		rate := func(what string, count int, request func(ctx context.Context, name string) error) error {
			took, err := repeat(count, clients, func(i int) error { return request(ctx, name(i)) })
			figures[what+" per second"] = float64(count) / took
			return err
		}
		memory, err := p.memory()
		if err != nil {
			return nil, err
		}
		if err := rate("creates", objects, a.create); err != nil {
			return nil, err
		}
		grown, err := p.memory()
		if err != nil {
			return nil, err
		}
		figures["memory of the server for each object, kB"] = (grown[a.server] - memory[a.server]) / objects / 1000
		if err := rate("gets", requests, a.get); err != nil {
			return nil, err
		}
		if err := rate("updates", requests, a.update); err != nil {
			return nil, err
		}
		var times []float64
		for range lists {
			began := time.Now()
			list, err := a.List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			if len(list.Items) < objects {
				return nil, fmt.Errorf("a list has %d of %d objects", len(list.Items), objects)
			}
			times = append(times, time.Since(began).Seconds())
		}
		slices.Sort(times)
		figures["lists per second"] = 1 / median(times)
		if figures["watch events per second"], err = fanOut(ctx, a, watchers, events, name); err != nil {
			return nil, err
		}
		return figures, a.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
}

// fanOut updates objects while many clients watch them, and returns how many events they receive in a second.
func fanOut(ctx context.Context, a api, watchers, updates int, name func(int) string) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("not all events of %d watches arrived", watchers))
	defer cancel()
	list, err := a.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	var received atomic.Int64
	done := make(chan struct{})
	for range watchers {
		watcher, err := a.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			return 0, err
		}
		defer watcher.Stop()
		go func() {
			for range watcher.ResultChan() {
				if received.Add(1) == int64(watchers*updates) {
					close(done)
				}
			}
		}()
	}
	began := time.Now()
	if _, err := repeat(updates, clients, func(i int) error { return a.update(ctx, name(i)) }); err != nil {
		return 0, err
	}
	select {
	case <-done:
		return float64(watchers*updates) / time.Since(began).Seconds(), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
)

// outcome is what becomes of a change that is sent to an endpoint.
type outcome string

const (
	changed outcome = "changed" // the endpoint takes it
	kept    outcome = "kept"    // the endpoint ignores it
	refused outcome = "refused" // the endpoint answers with an error
)

// part is one part of an object: how a caller changes it, and what is stored of it.
type part[T any] struct {
	change func(T)
	read   func(T) any
}

func recordParts() map[string]part[*v1alpha1.NamespaceLifecycle] {
	type record = *v1alpha1.NamespaceLifecycle
	return map[string]part[record]{
		"labels":               {func(r record) { r.Labels = map[string]string{"a": "b"} }, func(r record) any { return r.Labels }},
		"annotations":          {func(r record) { r.Annotations = map[string]string{"a": "b"} }, func(r record) any { return r.Annotations }},
		"metadata.finalizers":  {func(r record) { r.Finalizers = []string{"a.example.com/x"} }, func(r record) any { return r.Finalizers }},
		"ownerReferences":      {func(r record) { r.OwnerReferences = owner() }, func(r record) any { return r.OwnerReferences }},
		"spec.namespaceUID":    {func(r record) { r.Spec.NamespaceUID = "other" }, func(r record) any { return r.Spec.NamespaceUID }},
		"spec.plan":            {func(r record) { r.Spec.Plan = r.Spec.Plan[1:] }, func(r record) any { return r.Spec.Plan }},
		"spec.initializers":    {func(r record) { r.Spec.Initializers.Pending = r.Spec.Initializers.Pending[1:] }, func(r record) any { return r.Spec.Initializers }},
		"spec.finalizers":      {func(r record) { r.Spec.Finalizers = nil }, func(r record) any { return r.Spec.Finalizers }},
		"spec.turnStartTime":   {func(r record) { r.Spec.Initializers.TurnStartTime = &metav1.MicroTime{} }, func(r record) any { return r.Spec.Initializers.TurnStartTime }},
		"spec.skipped":         {func(r record) { r.Spec.Skipped = []string{"a.example.com"} }, func(r record) any { return r.Spec.Skipped }},
		"status.phase":         {func(r record) { r.Status.Phase = v1alpha1.LifecycleActive }, func(r record) any { return r.Status.Phase }},
		"status.current":       {func(r record) { r.Status.CurrentInitializer = "" }, func(r record) any { return r.Status.CurrentInitializer }},
		"status.state":         {func(r record) { r.Status.Initializers[0].State = v1alpha1.InitializerDone }, func(r record) any { return r.Status.Initializers[0].State }},
		"status.message":       {func(r record) { r.Status.Initializers[0].Message = "half way" }, func(r record) any { return r.Status.Initializers[0].Message }},
		"status.conditions":    {stalled, func(r record) any { return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionStalled) }},
		"derived conditions":   {func(r record) { r.Status.Conditions[0].Message = "changed" }, func(r record) any { return r.Status.Conditions[0].Message }},
		"uid (a precondition)": {func(r record) { r.UID = "other" }, func(r record) any { return r.UID }},
	}
}

func owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "x", UID: "y"}}
}

// TestRecordEndpoints shows, for each endpoint and each part of a record, whether a
// caller who may do everything can change that part there.
func TestRecordEndpoints(t *testing.T) {
	t.Parallel()
	metadata := map[string]outcome{"labels": changed, "annotations": changed, "metadata.finalizers": changed, "ownerReferences": changed}
	endpoints := map[string]map[string]outcome{
		"":           merge(metadata, map[string]outcome{"spec.namespaceUID": refused}),
		"status":     {"status.message": changed, "status.conditions": changed},
		"finalize":   {"spec.finalizers": changed},
		"initialize": {"spec.initializers": changed, "spec.skipped": refused, "status.current": kept},
	}
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	client := server.Client(t, "admin").NsinitV1alpha1()
	for endpoint, expected := range endpoints {
		for _, verb := range verbs(endpoint) {
			for name, part := range recordParts() {
				t.Run(fmt.Sprintf("%s %s of %s", verb, name, orMain(endpoint)), func(t *testing.T) {
					old := server.MustRecord(t, uniqueName())
					sent := old.DeepCopy()
					part.change(sent)
					err := write(client.RESTClient(), verb, "namespacelifecycles", endpoint, old, sent)
					now, getErr := client.NamespaceLifecycles().Get(context.Background(), old.Name, metav1.GetOptions{})
					if getErr != nil {
						t.Fatal(getErr)
					}
					check(t, expectation(expected, name), err, part.read(old), part.read(now))
				})
			}
		}
	}
}

func configurationParts() map[string]part[*v1alpha1.NamespaceInitializerConfiguration] {
	type configuration = *v1alpha1.NamespaceInitializerConfiguration
	return map[string]part[configuration]{
		"labels":               {func(c configuration) { c.Labels = map[string]string{"a": "b"} }, func(c configuration) any { return c.Labels }},
		"annotations":          {func(c configuration) { c.Annotations = map[string]string{"a": "b"} }, func(c configuration) any { return c.Annotations }},
		"metadata.finalizers":  {func(c configuration) { c.Finalizers = []string{"a.example.com/x"} }, func(c configuration) any { return c.Finalizers }},
		"initializers":         {func(c configuration) { c.Initializers = c.Initializers[1:] }, func(c configuration) any { return c.Initializers }},
		"generation":           {func(c configuration) { c.Generation = 99 }, func(c configuration) any { return c.Generation }},
		"spec.finalizers":      {func(c configuration) { c.Spec.Finalizers = nil }, func(c configuration) any { return c.Spec.Finalizers }},
		"status.phase":         {func(c configuration) { c.Status.Phase = "" }, func(c configuration) any { return c.Status.Phase }},
		"status.pending":       {func(c configuration) { c.Status.PendingNamespaces = 7 }, func(c configuration) any { return c.Status.PendingNamespaces }},
		"uid (a precondition)": {func(c configuration) { c.UID = "other" }, func(c configuration) any { return c.UID }},
	}
}

// TestConfigurationEndpoints is the same matrix for configurations.
func TestConfigurationEndpoints(t *testing.T) {
	t.Parallel()
	endpoints := map[string]map[string]outcome{
		"":         {"labels": changed, "annotations": changed, "metadata.finalizers": changed, "initializers": changed},
		"status":   {"status.pending": changed},
		"finalize": {"spec.finalizers": changed},
	}
	server := testserver.Start(t)
	client := server.Client(t, "admin").NsinitV1alpha1()
	for endpoint, expected := range endpoints {
		for _, verb := range verbs(endpoint) {
			for name, part := range configurationParts() {
				t.Run(fmt.Sprintf("%s %s of %s", verb, name, orMain(endpoint)), func(t *testing.T) {
					old := server.MustConfigure(t, testserver.Configuration(uniqueName(), "a.example.com", "b.example.com"))
					sent := old.DeepCopy()
					part.change(sent)
					err := write(client.RESTClient(), verb, "namespaceinitializerconfigurations", endpoint, old, sent)
					now, getErr := client.NamespaceInitializerConfigurations().Get(context.Background(), old.Name, metav1.GetOptions{})
					if getErr != nil {
						t.Fatal(getErr)
					}
					check(t, expectation(expected, name), err, part.read(old), part.read(now))
				})
			}
		}
	}
}

// verbs returns the ways to write to an endpoint.
func verbs(endpoint string) []string {
	all := []string{http.MethodPut, string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.JSONPatchType)}
	if endpoint == "finalize" {
		all = append(all, http.MethodPost)
	}
	return all
}

// expectation returns what must become of a part: what is not mentioned is kept, and a
// foreign UID is refused everywhere.
func expectation(expected map[string]outcome, name string) outcome {
	if name == "uid (a precondition)" {
		return refused
	}
	if want, ok := expected[name]; ok {
		return want
	}
	return kept
}

func check(t *testing.T, want outcome, err error, before, after any) {
	t.Helper()
	differs := cmp.Diff(before, after)
	switch {
	case want == refused && err == nil:
		t.Error("the write was accepted")
	case want == refused && !apierrors.IsInvalid(err) && !apierrors.IsConflict(err):
		t.Errorf("the write was refused, but with %v", err)
	case want != refused && err != nil:
		t.Errorf("the write was refused: %v", err)
	case want == changed && differs == "":
		t.Errorf("nothing changed: it is still %v", after)
	case want != changed && differs != "":
		t.Errorf("it changed:\n%s", differs)
	}
}

// write sends an object by one of the verbs of an endpoint. A patch holds the difference
// between the two objects.
func write(client rest.Interface, verb, resource, endpoint string, old, updated runtime.Object) error {
	name := updated.(metav1.Object).GetName()
	before, after := mustJSON(old), mustJSON(updated)
	var request *rest.Request
	var body []byte
	switch verb {
	case http.MethodPut:
		request, body = client.Put(), after
	case http.MethodPost:
		request, body = client.Post(), after
	case string(types.JSONPatchType):
		request, body = client.Patch(types.JSONPatchType), jsonPatch(before, after)
	case string(types.StrategicMergePatchType):
		patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, updated)
		if err != nil {
			return err
		}
		request, body = client.Patch(types.StrategicMergePatchType), patch
	default:
		request, body = client.Patch(types.MergePatchType), mergePatch(before, after)
	}
	request = request.Resource(resource).Name(name).Body(body)
	if verb == http.MethodPut || verb == http.MethodPost {
		request = request.SetHeader("Content-Type", "application/json")
	}
	if endpoint != "" {
		request = request.SubResource(endpoint)
	}
	return request.Do(context.Background()).Error()
}

// mergePatch returns the top-level fields that differ, whole.
func mergePatch(before, after []byte) []byte {
	return mustJSON(difference(mustObject(before), mustObject(after)))
}

func difference(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for key, value := range after {
		was, isMap := before[key].(map[string]any)
		is, stillMap := value.(map[string]any)
		switch {
		case isMap && stillMap:
			if inner := difference(was, is); len(inner) > 0 {
				patch[key] = inner
			}
		case cmp.Diff(before[key], value) != "":
			patch[key] = value
		}
	}
	for key := range before {
		if _, still := after[key]; !still {
			patch[key] = nil
		}
	}
	return patch
}

// jsonPatch replaces the whole of metadata's changed fields, spec and status.
func jsonPatch(before, after []byte) []byte {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	var operations []operation
	for key, value := range difference(mustObject(before), mustObject(after)) {
		if fields, ok := value.(map[string]any); ok && key == "metadata" {
			for field, fieldValue := range fields {
				operations = append(operations, operation{"add", "/metadata/" + field, fieldValue})
			}
			continue
		}
		operations = append(operations, operation{"add", "/" + key, mustObject(after)[key]})
	}
	return mustJSON(operations)
}

func merge(parts ...map[string]outcome) map[string]outcome {
	all := map[string]outcome{}
	for _, m := range parts {
		maps.Copy(all, m)
	}
	return all
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package testserver

import (
	"context"
	"encoding/json"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned/scheme"
)

// FieldManager is the manager of the fields that Write writes.
const FieldManager = "writer"

// Verbs returns the methods and types of patches with which a change can be sent to an endpoint. The name
// of the main endpoint is empty. Server-side apply is missing, because it does not remove fields of other
// managers.
func Verbs(endpoint string) []string {
	all := []string{http.MethodPut, string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.JSONPatchType)}
	if endpoint == "finalize" {
		all = append(all, http.MethodPost)
	}
	return all
}

// Write sends an object to an endpoint with a verb of Verbs, or by server-side apply. A patch has the
// difference between the two objects. Server-side apply sends the whole object.
func Write(client rest.Interface, verb, resource, endpoint string, old, updated runtime.Object) error {
	before, after := MustJSON(old), MustJSON(updated)
	var request *rest.Request
	var body []byte
	switch verb {
	case http.MethodPut:
		request, body = client.Put().SetHeader("Content-Type", "application/json"), after
	case http.MethodPost:
		request, body = client.Post().SetHeader("Content-Type", "application/json"), after
	case string(types.ApplyPatchType):
		request, body = client.Patch(types.ApplyPatchType).Param("force", "true"), applied(updated)
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
	request = request.Resource(resource).Name(updated.(metav1.Object).GetName()).Param("fieldManager", FieldManager).Body(body)
	if endpoint != "" {
		request = request.SubResource(endpoint)
	}
	return request.Do(context.Background()).Error()
}

// applied returns the configuration that applies an object.
func applied(object runtime.Object) []byte {
	object = object.DeepCopyObject()
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		panic(err)
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	object.(metav1.Object).SetManagedFields(nil)
	return MustJSON(object)
}

func mergePatch(before, after []byte) []byte {
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		panic(err)
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
	for key, value := range mustObject(mergePatch(before, after)) {
		if fields, ok := value.(map[string]any); ok && key == "metadata" {
			for field, fieldValue := range fields {
				operations = append(operations, operation{"add", "/metadata/" + field, fieldValue})
			}
			continue
		}
		operations = append(operations, operation{"add", "/" + key, mustObject(after)[key]})
	}
	return MustJSON(operations)
}

// MustJSON returns a value as JSON.
func MustJSON(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}

func mustObject(data []byte) map[string]any {
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		panic(err)
	}
	return object
}

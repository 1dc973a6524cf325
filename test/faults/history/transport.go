/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package history

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

type namespaceKey struct{}

// WithNamespace returns a context whose requests are meant for one incarnation of a namespace.
func WithNamespace(ctx context.Context, uid types.UID) context.Context {
	return context.WithValue(ctx, namespaceKey{}, uid)
}

// Record returns the configuration of a client each of whose writes is recorded, and each of
// its reads of one object of nsinit. The client speaks JSON.
func (r *Recorder) Record(config *rest.Config, client, role string) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &transport{recorder: r, next: next, client: client, role: role, resolver: request.RequestInfoFactory{
			APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
		}}
	})
	return config
}

type transport struct {
	recorder     *Recorder
	next         http.RoundTripper
	client, role string
	resolver     request.RequestInfoFactory
}

// answer is what is read of every response: objects and Status have it.
type answer struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name            string    `json:"name"`
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	} `json:"metadata"`
	Message string                `json:"message"`
	Details *metav1.StatusDetails `json:"details"`
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	info, err := t.resolver.NewRequestInfo(req)
	if err != nil || !recorded(info, req) {
		return t.next.RoundTrip(req)
	}
	operation := t.recorder.Begin(t.client, t.role)
	operation.Verb, operation.Group, operation.Resource, operation.Subresource = info.Verb, info.APIGroup, info.Resource, info.Subresource
	operation.Name = info.Name
	if info.Resource != "namespaces" {
		operation.Namespace = info.Namespace
	}
	operation.NamespaceUID, _ = req.Context().Value(namespaceKey{}).(types.UID)
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			data, _ := io.ReadAll(body)
			operation.Request = compact(data)
		}
	}
	response, err := t.next.RoundTrip(req)
	if err != nil {
		operation.Outcome, operation.Message = Unknown, err.Error()
		t.recorder.End(operation)
		return response, err
	}
	data, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(data), failing{err}))
	operation.Code = response.StatusCode
	operation.Outcome = outcome(response.StatusCode)
	if err != nil {
		operation.Outcome, operation.Message = Unknown, err.Error()
	}
	operation.read(data)
	t.recorder.End(operation)
	return response, nil
}

// recorded reports whether a request is part of the history.
func recorded(info *request.RequestInfo, req *http.Request) bool {
	if !info.IsResourceRequest || req.URL.Query().Has("dryRun") {
		return false
	}
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	case "get":
		return info.APIGroup == "nsinit.dev" && info.Name != ""
	}
	return false
}

// outcome says what the code of an answer means. A server may fail after it has written.
func outcome(code int) Outcome {
	switch {
	case code < 300:
		return Acknowledged
	case code < 500:
		return Refused
	}
	return Unknown
}

// read takes over what the answer says.
func (o *Operation) read(data []byte) {
	var a answer
	if json.Unmarshal(data, &a) != nil {
		return
	}
	if a.Kind == "Status" {
		if o.Message == "" {
			o.Message = a.Message
		}
		if a.Details != nil {
			o.UID = a.Details.UID
		}
		return
	}
	o.UID = a.Metadata.UID
	o.ResourceVersion, _ = strconv.ParseInt(a.Metadata.ResourceVersion, 10, 64)
	if o.Name == "" {
		o.Name = a.Metadata.Name
	}
	if o.Group == "nsinit.dev" {
		o.Response = compact(data)
	}
}

// compact drops what no checker needs, and what is not JSON.
func compact(data []byte) json.RawMessage {
	var object map[string]any
	if len(data) == 0 || json.Unmarshal(data, &object) != nil {
		return nil
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	data, err := json.Marshal(object)
	if err != nil {
		return nil
	}
	return data
}

// failing is the end of a body whose reading failed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

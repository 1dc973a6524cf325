//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

const (
	mergePatch     = string(types.MergePatchType)
	jsonPatch      = string(types.JSONPatchType)
	strategicPatch = string(types.StrategicMergePatchType)
	applyPatch     = string(types.ApplyPatchType)
)

// cell is one request to a namespace. {ns} in its path and body stands for the namespace.
type cell struct {
	name, method, path string
	// contentType is JSON if it is empty. accept is what the client asks for, if it is not empty.
	contentType, accept, body string
	// change is made to the stored object, which becomes the body. It is for PUT without a body.
	change func(*unstructured.Unstructured)
	// connect means that the request opens a connection. It has no body and no dry run.
	connect bool
	// watch means that the response does not end.
	watch bool
	// exception is the name of the exception that lets the request pass in a closed namespace, if there is one.
	exception string
}

// gateClient makes requests as one user. admin reads the objects that the user changes.
type gateClient struct{ user, admin rest.Interface }

func newGateClient(c *framework.Cluster, config *rest.Config) gateClient {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return gateClient{
		user:  kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(),
		admin: c.Core.CoreV1().RESTClient(),
	}
}

// try makes the request, and stores nothing if it is a dry run. It repeats an update of an object that a controller
// changed meanwhile, and a request for which a busy kube-apiserver has no time.
func (c gateClient) try(ctx context.Context, cell cell, namespace string, dryRun bool) error {
	for range 10 {
		err := c.once(ctx, cell, namespace, dryRun)
		if isBusy := apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err); !isBusy && !apierrors.IsConflict(err) {
			return err
		}
	}
	return c.once(ctx, cell, namespace, dryRun)
}

func (c gateClient) once(ctx context.Context, cell cell, namespace string, dryRun bool) error {
	path, body := strings.ReplaceAll(cell.path, "{ns}", namespace), strings.ReplaceAll(cell.body, "{ns}", namespace)
	if cell.method == http.MethodPut && !cell.connect && body == "" {
		changed, err := c.changed(ctx, path, cell.change)
		if err != nil {
			return fmt.Errorf("the administrator reads %s: %w", path, err)
		}
		body = changed
	}
	request := c.user.Verb(cell.method).RequestURI(path).MaxRetries(0)
	if dryRun && !cell.connect {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	if cell.contentType == applyPatch {
		request = request.Param("fieldManager", "e2e").Param("force", "true")
	}
	if cell.accept != "" {
		request = request.SetHeader("Accept", cell.accept)
	}
	if body != "" {
		contentType := cell.contentType
		if contentType == "" {
			contentType = "application/json"
		}
		request = request.SetHeader("Content-Type", contentType).Body([]byte(body))
	}
	if cell.watch {
		events, err := request.Stream(ctx)
		if err == nil {
			err = events.Close()
		}
		return err
	}
	return request.Do(ctx).Error()
}

// changed returns the object at a path in JSON with a change.
func (c gateClient) changed(ctx context.Context, path string, change func(*unstructured.Unstructured)) (string, error) {
	stored, err := c.admin.Get().RequestURI(path).DoRaw(ctx)
	if err != nil {
		return "", err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(stored); err != nil {
		return "", err
	}
	if change == nil {
		change = func(object *unstructured.Unstructured) {
			annotations := object.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations["e2e.example.com/updated"] = "true"
			object.SetAnnotations(annotations)
		}
	}
	change(object)
	data, err := object.MarshalJSON()
	return string(data), err
}

// examples are objects in JSON by apiVersion and kind.
type examples map[string]*unstructured.Unstructured

func (e examples) of(t *testing.T, groupVersion, kind string) *unstructured.Unstructured {
	t.Helper()
	example, found := e[groupVersion+" "+kind]
	if !found {
		t.Errorf("testdata/namespaced.yaml has no %s of %s: add one", kind, groupVersion)
		return &unstructured.Unstructured{Object: map[string]any{}}
	}
	return example.DeepCopy()
}

// named returns the example under a name in JSON.
func (e examples) named(t *testing.T, groupVersion, kind, name string) string {
	t.Helper()
	object := e.of(t, groupVersion, kind)
	object.SetName(name)
	return framework.JSON(t, object.Object)
}

// generated returns the example with a generated name in JSON.
func (e examples) generated(t *testing.T, groupVersion, kind string) string {
	t.Helper()
	object := e.of(t, groupVersion, kind)
	object.SetGenerateName("new-")
	return framework.JSON(t, object.Object)
}

// cellsOf returns a cell for each verb of a namespaced resource or subresource, and more than one where a verb has
// several forms: the types of patches, the methods of HTTP that connect, apply and patches that create.
func (e examples) cellsOf(t *testing.T, groupVersion string, resource metav1.APIResource) []cell {
	t.Helper()
	parent, subresource, isSubresource := strings.Cut(resource.Name, "/")
	collection := "/apis/" + groupVersion + "/namespaces/{ns}/" + parent
	if groupVersion == "v1" {
		collection = "/api/v1/namespaces/{ns}/" + parent
	}
	object := collection + "/there"
	if isSubresource {
		object += "/" + subresource
		collection = object
	}
	ofKind := groupVersion
	if resource.Version != "" { // a subresource of another group
		ofKind = metav1.GroupVersion{Group: resource.Group, Version: resource.Version}.String()
	}
	of := " " + resource.Name + " (" + groupVersion + ")"
	var cells []cell
	add := func(c cell) {
		c.name += of
		c.exception = exceptionOf(groupVersion, resource.Name, c)
		cells = append(cells, c)
	}
	// The kind of a subresource that connects is that of its options.
	if isSubresource && strings.HasSuffix(resource.Kind, "Options") {
		for _, verb := range resource.Verbs {
			add(cell{name: "connect by " + methodOf(verb), method: methodOf(verb), path: object, connect: true})
		}
		if subresource == "proxy" { // discovery has no verbs for these
			add(cell{name: "connect by HEAD", method: http.MethodHead, path: object, connect: true})
			add(cell{name: "connect by OPTIONS", method: http.MethodOptions, path: object, connect: true})
		}
		return cells
	}
	for _, verb := range resource.Verbs {
		switch verb {
		case "get":
			add(cell{name: "get", method: http.MethodGet, path: object})
		case "list":
			add(cell{name: "list", method: http.MethodGet, path: collection})
		case "watch":
			add(cell{name: "watch", method: http.MethodGet, path: collection + "?watch=true", watch: true})
		case "create":
			body := e.generated(t, ofKind, resource.Kind)
			if !slices.Contains(resource.Verbs, "get") { // it is not stored
				body = framework.JSON(t, e.of(t, ofKind, resource.Kind).Object)
			}
			add(cell{name: "create", method: http.MethodPost, path: collection, body: body})
		case "update":
			add(cell{name: "update", method: http.MethodPut, path: object})
		case "delete":
			add(cell{name: "delete", method: http.MethodDelete, path: object})
		case "deletecollection":
			add(cell{name: "delete a collection of", method: http.MethodDelete, path: collection})
		case "patch":
			add(cell{name: "merge patch", method: http.MethodPatch, path: object, contentType: mergePatch, body: `{"metadata":{"annotations":{"e2e.example.com/patched":"true"}}}`})
			add(cell{name: "JSON patch", method: http.MethodPatch, path: object, contentType: jsonPatch, body: `[{"op":"add","path":"/metadata/annotations","value":{"e2e.example.com/patched":"true"}}]`})
			custom := strings.Contains(groupVersion, customGroup)
			if !custom { // custom resources take no such patches
				add(cell{name: "strategic merge patch", method: http.MethodPatch, path: object, contentType: strategicPatch, body: `{"metadata":{"annotations":{"e2e.example.com/patched":"true"}}}`})
			}
			if custom && subresource == "scale" { // kube-apiserver cannot convert what is applied
				continue
			}
			applied := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"annotations":{"e2e.example.com/applied":"true"}}}`, ofKind, resource.Kind)
			add(cell{name: "apply", method: http.MethodPatch, path: object, contentType: applyPatch, body: applied})
			if !isSubresource {
				add(cell{name: "create by apply", method: http.MethodPatch, path: collection + "/applied", contentType: applyPatch, body: e.named(t, ofKind, resource.Kind, "applied")})
			}
		default:
			t.Errorf("discovery has the verb %q of %s of %s: add a cell", verb, resource.Name, groupVersion)
		}
	}
	return cells
}

// methodOf returns the method of HTTP of a verb that connects.
func methodOf(verb string) string {
	switch verb {
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	}
	return strings.ToUpper(verb)
}

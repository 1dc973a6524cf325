//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
	// contentType is JSON if it is empty.
	contentType, body string
	// change is made to the stored object, which becomes the body. It is for PUT without a body.
	change func(*unstructured.Unstructured)
	// connect says that the request opens a connection. It has no body and no dry run.
	connect bool
}

// gateClient makes requests as one user. admin reads the objects that the user changes.
type gateClient struct{ user, admin rest.Interface }

func (c *cluster) gateClient(config *rest.Config) gateClient {
	return gateClient{
		user:  kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(),
		admin: c.core.CoreV1().RESTClient(),
	}
}

// try makes the request once and stores nothing if it is a dry run.
func (c gateClient) try(ctx context.Context, cell cell, namespace string, dryRun bool) error {
	path, body := strings.ReplaceAll(cell.path, "{ns}", namespace), strings.ReplaceAll(cell.body, "{ns}", namespace)
	if cell.method == http.MethodPut && !cell.connect && body == "" {
		stored, err := c.admin.Get().RequestURI(path).DoRaw(ctx)
		if err != nil {
			return err
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(stored); err != nil {
			return err
		}
		if cell.change != nil {
			cell.change(object)
		} else {
			object.SetAnnotations(map[string]string{"e2e.example.com/updated": "true"})
		}
		data, err := object.MarshalJSON()
		if err != nil {
			return err
		}
		body = string(data)
	}
	request := c.user.Verb(cell.method).RequestURI(path).MaxRetries(0)
	if dryRun && !cell.connect {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	if cell.contentType == applyPatch {
		request = request.Param("fieldManager", "e2e").Param("force", "true")
	}
	if body != "" {
		contentType := cell.contentType
		if contentType == "" {
			contentType = "application/json"
		}
		request = request.SetHeader("Content-Type", contentType).Body([]byte(body))
	}
	return request.Do(ctx).Error()
}

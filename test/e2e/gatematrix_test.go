//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// customGroup is in the name of each group of custom resources of these tests.
const customGroup = "e2e.example.com"

// thingDefinition defines custom resources.
func thingDefinition() string { return definition(customGroup, "Thing") }

// definition defines namespaced custom resources with each subresource that they can have.
func definition(group, kind string) string {
	singular := strings.ToLower(kind)
	return strings.NewReplacer("GROUP", group, "KIND", kind, "SINGULAR", singular).Replace(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: SINGULARs.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: KIND, plural: SINGULARs, singular: SINGULAR}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
`)
}

// The exceptions of the gate in a closed namespace. docs/security.md has a row for each, under the same name.
const (
	reads            = "reads"
	accessReviews    = "access reviews"
	otherServers     = "resources of other aggregated API servers"
	namespaceObjects = "the Namespace object"
)

// exceptionOf returns the exception that lets a request pass, if there is one.
func exceptionOf(groupVersion, resource string, c cell) string {
	switch {
	case c.method == http.MethodGet && !c.connect:
		return reads
	case resource == "localsubjectaccessreviews":
		return accessReviews
	case groupVersion == "wardle.example.com/v1alpha1": // served without policies, see serveFlunders
		return otherServers
	}
	return ""
}

// matrixCells returns every cell: all resources of discovery, other forms of requests, and requests for the namespace.
func matrixCells(t *testing.T, c *framework.Cluster, examples examples) ([]cell, error) {
	t.Helper()
	_, lists, err := c.Core.Discovery().ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	var cells []cell
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if resource.Namespaced {
				cells = append(cells, examples.cellsOf(t, list.GroupVersion, resource)...)
			}
		}
	}
	const (
		configMaps = "/api/v1/namespaces/{ns}/configmaps"
		configMap  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"new-"}}`
		namespace  = "/api/v1/namespaces/{ns}"
		annotation = `{"metadata":{"annotations":{"e2e.example.com/patched":"true"}}}`
	)
	return append(cells,
		cell{name: "create configmaps, dry run", method: http.MethodPost, path: configMaps + "?dryRun=All", body: configMap},
		cell{name: "create configmaps, strict", method: http.MethodPost, path: configMaps + "?fieldValidation=Strict", body: configMap},
		cell{name: "create configmaps, answered as a table", method: http.MethodPost, path: configMaps, body: configMap, accept: "application/json;as=Table;g=meta.k8s.io;v=v1"},
		cell{name: "create configmaps, answered as metadata", method: http.MethodPost, path: configMaps, body: configMap, accept: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
		cell{name: "delete configmaps immediately", method: http.MethodDelete, path: configMaps + "/there?gracePeriodSeconds=0&propagationPolicy=Orphan"},
		cell{name: "create leases by update", method: http.MethodPut, path: "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/new", body: examples.named(t, "coordination.k8s.io/v1", "Lease", "new")},
		cell{name: "connect to a path of pods/proxy", method: http.MethodPost, path: "/api/v1/namespaces/{ns}/pods/https:there:443/proxy/a/b", connect: true},
		cell{name: "connect to a path of services/proxy", method: http.MethodPost, path: "/api/v1/namespaces/{ns}/services/https:there:443/proxy/a/b", connect: true},
		cell{name: "merge patch namespaces", method: http.MethodPatch, path: namespace, contentType: mergePatch, body: annotation, exception: namespaceObjects},
		cell{name: "update namespaces", method: http.MethodPut, path: namespace, exception: namespaceObjects},
		cell{name: "merge patch namespaces/status", method: http.MethodPatch, path: namespace + "/status", contentType: mergePatch, body: annotation, exception: namespaceObjects},
		cell{name: "delete namespaces", method: http.MethodDelete, path: namespace, exception: namespaceObjects},
	), nil
}

// importantCells are cells that every version of Kubernetes has. TestGate tries them as every user.
func importantCells() []string {
	names := []string{
		"create configmaps (v1)", "update configmaps (v1)", "merge patch configmaps (v1)", "JSON patch configmaps (v1)", "strategic merge patch configmaps (v1)",
		"apply configmaps (v1)", "create by apply configmaps (v1)", "delete configmaps (v1)", "delete a collection of configmaps (v1)", "create configmaps, dry run",
		"create secrets (v1)", "create events (v1)", "create events (events.k8s.io/v1)", "create leases (coordination.k8s.io/v1)", "create leases by update",
		"create rolebindings (rbac.authorization.k8s.io/v1)", "create serviceaccounts/token (v1)", "create pods/eviction (v1)", "create pods/binding (v1)", "create bindings (v1)",
		"merge patch pods/status (v1)", "merge patch pods/ephemeralcontainers (v1)", "merge patch pods/resize (v1)", "merge patch deployments/status (apps/v1)",
		"update deployments/scale (apps/v1)", "create deployments (apps/v1)", "create things (e2e.example.com/v1)", "merge patch things (e2e.example.com/v1)",
		"update things/status (e2e.example.com/v1)", "update things/scale (e2e.example.com/v1)", "create namespaces (namesake.e2e.example.com/v1)",
		"update namespaces/status (namesake.e2e.example.com/v1)", "update namespaces/scale (namesake.e2e.example.com/v1)",
		"create flunders (wardle.example.com/v1beta1)",
	}
	for _, subresource := range []string{"exec", "attach", "portforward"} {
		names = append(names, "connect by GET pods/"+subresource+" (v1)", "connect by POST pods/"+subresource+" (v1)")
	}
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		names = append(names, "connect by "+method+" pods/proxy (v1)", "connect by "+method+" services/proxy (v1)")
	}
	return names
}

// readExamples reads testdata/namespaced.yaml.
func readExamples(t *testing.T, c *framework.Cluster) examples {
	t.Helper()
	file, err := os.Open(filepath.Join(c.Root, "test", "e2e", "testdata", "namespaced.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	found, decoder := examples{}, yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found[object.GetAPIVersion()+" "+object.GetKind()] = object
	}
}

// fill creates an object of each kind that has one in a namespace, as an administrator, who holds initialize.
func (e examples) fill(t *testing.T, c *framework.Cluster, cells []cell, namespace string) {
	t.Helper()
	admin := newGateClient(c, c.Admin)
	read := map[string]bool{}
	for _, cell := range cells {
		read[cell.path] = read[cell.path] || cell.method == http.MethodGet
	}
	for _, create := range cells {
		kind, isCreate := strings.CutPrefix(create.name, "create ")
		if !isCreate || create.method != http.MethodPost || !read[create.path+"/there"] {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(create.body)); err != nil {
			t.Fatal(err)
		}
		object.SetName("there")
		object.SetGenerateName("")
		create.body = framework.JSON(t, object.Object)
		framework.Eventually(t, "an administrator creates "+kind, func(ctx context.Context) error {
			if err := admin.try(ctx, create, namespace, false); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
}

// allRights grants a user every permission in a namespace that RBAC can grant there, and waits until they apply.
func allRights(t *testing.T, c *framework.Cluster, user string, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		if _, err := c.Core.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "all-rights"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.WaitMay(t, c.As(user), "configmaps", "create", namespace)
	}
}

// documentedExceptions returns the first column of the table of exceptions in docs/security.md.
func documentedExceptions(t *testing.T, c *framework.Cluster) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## What the gate does not refuse\n")
	section, _, _ = strings.Cut(section, "\n## ")
	names := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && strings.Contains(cells[1], "**") {
			names[strings.Trim(cells[1], " *")] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// passed checks that a request was not refused. A request that connects fails with another error, because there is no node.
func passed(c cell, err error) error {
	if err == nil || c.connect && !apierrors.IsForbidden(err) && !apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return fmt.Errorf("want it to pass, got %w", err)
}

// refusedByGate checks that the gate refused a request with its message. A response to HEAD has no body.
func refusedByGate(c cell, err error, namespace string) error {
	if c.method == http.MethodHead {
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("want a refusal, got %w", errors.Join(err, errors.New("(no other error)")))
		}
		return nil
	}
	policy := "nsinit-gate"
	if strings.Contains(c.path, "/namesake.e2e.example.com/") {
		policy = gateOfNamesakes
	}
	return framework.RefusedBy(policy, err, fmt.Sprintf("namespace %q", namespace), `"hold.example.com"`, "condition Ready")
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package artifacts

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestNamespaceRights: nsinit-controller-manager may write the parts of namespaces that it writes. It writes with PUT into
// namespaces/status only with --namespace-termination.
func TestNamespaceRights(t *testing.T) {
	for file, want := range map[string]map[string][]string{
		"deploy/base/controller-manager.yaml": {
			"namespaces":          {"delete", "get", "initialize", "list", "open", "watch"},
			"namespaces/status":   {"patch"},
			"namespaces/finalize": {"update"},
		},
		"deploy/namespace-termination.yaml": {"namespaces/status": {"update"}},
	} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			var role rbacv1.ClusterRole
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
			if role.Kind != "ClusterRole" {
				continue
			}
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					if name, _, _ := strings.Cut(resource, "/"); name == "namespaces" {
						got[resource] = slices.Sorted(slices.Values(append(got[resource], rule.Verbs...)))
					}
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bufio"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestKubectl reads and writes nsinit's kinds with the stock kubectl, through the
// aggregator.
func TestKubectl(t *testing.T) {
	c := framework.Connect(t)
	must := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	says := func(out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%q is missing in:\n%s", part, out)
			}
		}
	}
	name := framework.UniqueName("kubectl")
	// The shape of the Namespace Initializer KEP.
	manifest := "apiVersion: nsinit.dev/v1alpha1\nkind: NamespaceInitializerConfiguration\nmetadata:\n  name: " + name + "\ninitializers:\n- name: one.example.com\n- name: two.example.com\n"
	for range 2 { // applying again changes nothing
		if _, err := c.KubectlInput(manifest, "apply", "--server-side"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_, _ = c.Kubectl("delete", "nsic", name, "--wait=false")
	})
	says(must("get", "namespaceinitializerconfigurations"), "NAME", "PHASE", "INITIALIZERS", "SERVED", "PENDING", "0/2", "one.example.com,two.example.com")
	says(must("describe", "nsic", name), "one.example.com", "Finalizers", "kubernetes")
	// kube-apiserver takes the OpenAPI document over some time after the APIService was registered, which the test before may have done.
	framework.Eventually(t, "kube-apiserver has the OpenAPI document of nsinit", func(context.Context) error {
		_, err := c.Kubectl("explain", "namespacelifecycles")
		return err
	})
	says(must("explain", "namespacelifecycles.spec.initializers"),
		"initializers tracks the initialization", "the field stays absent", "pending", "result")
	says(must("explain", "nsic.initializers.failurePolicy"), "the namespace waits", "Ignore", "Fail")
	says(must("api-resources", "--api-group=nsinit.dev"), "nsic", "nsl", "NamespaceLifecycle")
	says(must("get", "nsinit"), name)

	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, "one.example.com")
	says(must("get", "nsl", namespace), "WAITING FOR", "one.example.com (+1)", "Initializing")
	ctx, cancel := context.WithTimeout(t.Context(), framework.Patience)
	watch := exec.CommandContext(ctx, filepath.Join(framework.BinDir(), "kubectl"), "get", "nsl", "--watch")
	watch.Env = c.Environ()
	stdout, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = watch.Wait()
	}()
	lines := bufio.NewScanner(stdout)
	shows := func(phase string) {
		t.Helper()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), namespace) && strings.Contains(lines.Text(), phase) {
				return
			}
		}
		t.Errorf("kubectl get --watch does not show %s in phase %s: %v", namespace, phase, lines.Err())
	}
	shows("Initializing")
	c.RemoveFirst(t, namespace)
	c.RemoveFirst(t, namespace)
	shows("Active")
	c.WaitReady(t, namespace)
	says(must("get", "nsl", "--field-selector=status.phase=Active", "-o", "name"), "namespacelifecycle.nsinit.dev/"+namespace)
}

// TestMalformedConfiguration: kubectl shows every field that is wrong.
func TestMalformedConfiguration(t *testing.T) {
	c := framework.Share(t)
	_, err := c.KubectlInput(`{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespaceInitializerConfiguration","metadata":{"name":"bad"},"initializers":[
		{"name":"a.example.com"},{"name":"a.example.com"},{"name":"unqualified"},
		{"name":"b.example.com","failurePolicy":"Ignore","timeoutSeconds":-1},{"name":"c.example.com","failurePolicy":"Explode"}]}`, "create")
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, part := range []string{
		"initializers[1]: Duplicate value", `initializers[2].name: Invalid value: "unqualified": must be fully qualified`,
		"initializers[3].timeoutSeconds: Invalid value: -1", `initializers[4].failurePolicy: Unsupported value: "Explode": supported values: "Fail", "Ignore"`,
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in:\n%v", part, err)
		}
	}
}

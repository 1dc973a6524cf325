//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// gitopsInitializer is the initializer that the namespaces of the tools wait for.
const gitopsInitializer = "waits.example.com"

// gitopsGuide is a document in docs.
const gitopsGuide = "gitops.md"

// gitopsContent is what the tools apply into a new namespace.
const gitopsContent = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: %[1]s}
data: {color: blue}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: worker, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: worker, namespace: %[1]s}]
`

// gitopsNamespace is a namespace, to be followed by its content.
const gitopsNamespace = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---`

// gitops runs the code of Flux, Helm and Argo CD. test/gitops contains it, in a separate module.
type gitops struct {
	*framework.Cluster
	// kubeconfig is that of a user with the role that docs/gitops.md recommends: every verb of Kubernetes, none of nsinit.
	kubeconfig string
	// kustomization is a file that nsinit ships, and argocd one with the ConfigMap of Argo CD.
	kustomization, argocd string
}

func newGitOps(t *testing.T) *gitops {
	t.Helper()
	c := framework.Connect(t)
	c.Build(t, "test/gitops", "gitops", ".")
	g := &gitops{Cluster: c, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"),
		kustomization: filepath.Join(c.Root, "artifacts", "gitops", "flux-kustomization.yaml")}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	user := c.User(t, "e2e-gitops", documentedRules(t, c)...)
	for _, credentials := range config.AuthInfos {
		credentials.Impersonate = user.Impersonate.UserName
	}
	if err := clientcmd.WriteToFile(*config, g.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return g
}

// documentedRules returns the rules of the role in docs/gitops.md.
func documentedRules(t *testing.T, c *framework.Cluster) []rbacv1.PolicyRule {
	t.Helper()
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal([]byte(c.DocumentedFile(t, gitopsGuide, "Decide whether the gate applies to your tool")), &role); err != nil || len(role.Rules) == 0 {
		t.Fatalf("docs/gitops.md has no role: %v", err)
	}
	return role.Rules
}

// run runs a tool, and returns its output, or an error with what it says.
func (g *gitops) run(ctx context.Context, input string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, filepath.Join(framework.BinDir(), "gitops"), args...)
	command.Env, command.Stdin = g.Environ(), strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("gitops %s: %w: %s", args[0], err, stderr.String())
	}
	return stdout.Bytes(), nil
}

// flux applies a namespace and its content once.
func (g *gitops) flux(ctx context.Context, namespace string, args ...string) error {
	_, err := g.run(ctx, fmt.Sprintf(gitopsNamespace+gitopsContent, namespace), append([]string{"apply", g.kubeconfig}, args...)...)
	return err
}

// chart writes a chart with these templates.
func (g *gitops) chart(t *testing.T, templates string) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "templates"), 0o700),
		os.WriteFile(filepath.Join(dir, "templates", "all.yaml"), []byte(templates), 0o600),
		os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte("{apiVersion: v2, name: shop, version: 1.0.0}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// helm installs a chart with the content of a namespace into a new namespace once.
func (g *gitops) helm(t *testing.T, kubeconfig, namespace string) error {
	t.Helper()
	_, err := g.run(t.Context(), "", "install", kubeconfig, "--create-namespace", "shop", g.chart(t, fmt.Sprintf(gitopsContent, namespace)), namespace)
	return err
}

// during initializes a namespace in two seconds while a tool runs, and checks the content when both have ended.
func (g *gitops) during(t *testing.T, namespace string, tool func() error) {
	t.Helper()
	g.LeaveLater(t, namespace)
	ended, began := make(chan error, 1), time.Now()
	go func() { ended <- tool() }()
	g.WaitCurrent(t, namespace, gitopsInitializer)
	time.Sleep(2 * time.Second) // this is the work of the initializer
	if !g.IsClosed(t, namespace) {
		t.Error("the namespace was open before its initializer was done")
	}
	g.RemoveFirst(t, namespace)
	if err := <-ended; err != nil {
		t.Fatalf("after %s: %v", time.Since(began), err)
	}
	t.Logf("applied after %s", time.Since(began).Round(100*time.Millisecond))
	g.checkContent(t, namespace)
	if g.IsClosed(t, namespace) {
		t.Error("the namespace is closed")
	}
}

// checkContent checks that a namespace has the last object of its content.
func (g *gitops) checkContent(t *testing.T, namespace string) {
	t.Helper()
	if _, err := g.Core.RbacV1().RoleBindings(namespace).Get(t.Context(), "reader", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// gateRefused says whether a tool ended because the gate refused a write.
func gateRefused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'nsinit-gate'") && strings.Contains(err.Error(), "cannot be written to yet")
}

// TestGitOps: Flux and Helm apply a namespace together with its content. They are not changed for it.
func TestGitOps(t *testing.T) {
	g := newGitOps(t)
	g.Configure(t, framework.Initializers(gitopsInitializer)...)

	t.Run("Flux retries until the gate opens", func(t *testing.T) {
		namespace, refused := g.Name("flux"), 0
		g.during(t, namespace, func() error {
			for {
				err := g.flux(t.Context(), namespace)
				if !gateRefused(err) {
					return err
				}
				if refused++; refused == 1 {
					t.Log(err)
				}
				time.Sleep(time.Second) // this is spec.retryInterval
			}
		})
		t.Logf("Flux was refused %d times", refused)
	})
	t.Run("Flux waits with the health checks", func(t *testing.T) {
		namespace, kustomization := g.Name("flux"), filepath.Join(t.TempDir(), "kustomization.yaml")
		if err := os.WriteFile(kustomization, []byte(g.DocumentedFile(t, gitopsGuide, "Flux")), 0o600); err != nil {
			t.Fatal(err)
		}
		g.during(t, namespace, func() error { return g.flux(t.Context(), namespace, "--kustomization="+kustomization) })
	})
	t.Run("Flux sees that the initialization failed", g.testFailureInFlux)
	t.Run("Helm is refused, and installs into the open namespace", func(t *testing.T) {
		namespace := g.Name("helm")
		g.LeaveLater(t, namespace)
		if err := g.helm(t, g.kubeconfig, namespace); !gateRefused(err) {
			t.Fatalf("into the closed namespace: %v", err)
		} else {
			t.Log(err)
		}
		g.WaitCurrent(t, namespace, gitopsInitializer)
		g.RemoveFirst(t, namespace)
		g.WaitReady(t, namespace)
		if err := g.helm(t, g.kubeconfig, namespace); err != nil {
			t.Fatal(err)
		}
		g.checkContent(t, namespace)
	})
	t.Run("the gate does not apply to administrators", func(t *testing.T) {
		namespace := g.Name("helm")
		g.LeaveLater(t, namespace)
		if err := g.helm(t, g.Kubeconfig(), namespace); err != nil {
			t.Fatal(err)
		}
		if g.checkContent(t, namespace); !g.IsClosed(t, namespace) {
			t.Error("the namespace is open")
		}
	})

	askToRetry(t, g.Cluster, g.As("e2e-gitops"))
	t.Run("Flux retries as asked", func(t *testing.T) {
		namespace := g.Name("flux")
		g.during(t, namespace, func() error { return g.flux(t.Context(), namespace) })
	})
	t.Run("Helm retries as asked", func(t *testing.T) {
		namespace := g.Name("helm")
		g.during(t, namespace, func() error { return g.helm(t, g.kubeconfig, namespace) })
	})
	t.Run("Helm retries as asked, for a namespace in the chart", func(t *testing.T) {
		releases, namespace := g.CreateNamespace(t, g.Admin).Name, g.Name("helm")
		g.WaitCurrent(t, releases, gitopsInitializer)
		g.RemoveFirst(t, releases)
		g.WaitReady(t, releases)
		chart := g.chart(t, fmt.Sprintf(gitopsNamespace+gitopsContent, namespace))
		g.during(t, namespace, func() error {
			_, err := g.run(t.Context(), "", "install", g.kubeconfig, "shop", chart, releases)
			return err
		})
	})
}

// testFailureInFlux: Flux ends with a failure as soon as the initialization fails, and applies everything again.
func (g *gitops) testFailureInFlux(t *testing.T) {
	namespace, ended := g.Name("flux"), make(chan error, 1)
	again := func() error { return g.flux(t.Context(), namespace, "--kustomization="+g.kustomization) }
	go func() { ended <- again() }()
	g.fail(t, namespace)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "failed early") || !strings.Contains(err.Error(), "status: 'Failed'") {
		t.Fatalf("the first reconciliation ended with: %v", err)
	} else {
		t.Log(err)
	}
	g.WaitNoNamespace(t, namespace)
	g.during(t, namespace, again)
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package packaging

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

// gitopsUser is the user of the tools.
const gitopsUser = "e2e-gitops"

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
kind: RoleBinding
metadata: {name: reader, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
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
	// kubeconfig is that of gitopsUser.
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
	for _, credentials := range config.AuthInfos {
		credentials.Impersonate = gitopsUser
	}
	if err := clientcmd.WriteToFile(*config, g.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return g
}

// namespace returns a name for a namespace. Until the test ends, gitopsUser has the role of docs/gitops.md for this name.
func (g *gitops) namespace(t *testing.T) string {
	t.Helper()
	name := g.Name("gitops")
	document := strings.ReplaceAll(g.DocumentedFile(t, framework.GitOpsGuide, "Decide whether the gate applies to your tool"), `"shop"`, `"`+name+`"`)
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal([]byte(document), &role); err != nil || !strings.Contains(document, name) {
		t.Fatalf("docs/gitops.md has no role for the namespace \"shop\": %v", err)
	}
	g.User(t, gitopsUser, role.Rules...)
	g.LeaveLater(t, name)
	return name
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

// rbacRefused says whether a tool ended because the user does not have the permissions yet that come with the namespace.
func rbacRefused(err error) bool {
	return err != nil && strings.Contains(err.Error(), fmt.Sprintf("is forbidden: User %q cannot", gitopsUser))
}

// open initializes a namespace.
func (g *gitops) open(t *testing.T, namespace string) {
	t.Helper()
	g.WaitCurrent(t, namespace, gitopsInitializer)
	g.RemoveFirst(t, namespace)
	g.WaitReady(t, namespace)
}

// TestGitOps: Flux and Helm apply a namespace together with its content. They are not changed for it. Their user gets its
// permissions in the namespace from policy-population, the first initializer.
func TestGitOps(t *testing.T) {
	g := newGitOps(t)
	g.PopulateAsInExample(t)
	g.Configure(t, framework.Initializers(gitopsInitializer)...)

	g.StartPopulation(t)

	t.Run("Helm is refused, and installs into the open namespace", g.testHelm)
	t.Run("Flux retries until the gate opens", func(t *testing.T) {
		namespace, refused := g.namespace(t), 0
		g.during(t, namespace, func() error {
			for {
				err := g.flux(t.Context(), namespace)
				if !gateRefused(err) && !rbacRefused(err) {
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
		namespace, kustomization := g.namespace(t), filepath.Join(t.TempDir(), "kustomization.yaml")
		if err := os.WriteFile(kustomization, []byte(g.DocumentedFile(t, framework.GitOpsGuide, "Flux")), 0o600); err != nil {
			t.Fatal(err)
		}
		g.during(t, namespace, func() error { return g.flux(t.Context(), namespace, "--kustomization="+kustomization) })
	})
	t.Run("Flux sees that the initialization failed", g.testFailureInFlux)
	t.Run("the gate does not apply to administrators", func(t *testing.T) {
		namespace := g.namespace(t)
		if err := g.helm(t, g.Kubeconfig(), namespace); err != nil {
			t.Fatal(err)
		}
		if g.checkContent(t, namespace); !g.IsClosed(t, namespace) {
			t.Error("the namespace is open")
		}
	})
	t.Run("rights in every namespace", g.testRights)
}

// testHelm: Helm creates no namespace if its user gets the permissions with it. It installs into a namespace that is open.
func (g *gitops) testHelm(t *testing.T) {
	namespace := g.namespace(t)
	if err := g.helm(t, g.kubeconfig, namespace); !rbacRefused(err) {
		t.Fatalf("into a new namespace: %v", err)
	} else {
		t.Log(err)
	}
	if out, err := g.Kubectl("create", "namespace", namespace, "--as="+gitopsUser); err != nil {
		t.Fatal(err, out)
	}
	g.WaitCurrent(t, namespace, gitopsInitializer)
	g.WaitMay(t, g.As(gitopsUser), "secrets", "create", namespace)
	if err := g.helm(t, g.kubeconfig, namespace); !gateRefused(err) {
		t.Fatalf("into the closed namespace: %v", err)
	} else {
		t.Log(err)
	}
	g.open(t, namespace)
	if err := g.helm(t, g.kubeconfig, namespace); err != nil {
		t.Fatal(err)
	}
	g.checkContent(t, namespace)
}

// testRights: the user has its permissions when a namespace is created.
func (g *gitops) testRights(t *testing.T) {
	user := g.User(t, gitopsUser, framework.Everything())
	t.Run("Helm is refused for a namespace in the chart, and upgrades the failed release", g.testFailedRelease)

	g.AskTenantToRetry(t, user)
	t.Run("Flux retries as asked", func(t *testing.T) {
		namespace := g.Name("flux")
		g.LeaveLater(t, namespace)
		g.during(t, namespace, func() error { return g.flux(t.Context(), namespace) })
	})
	t.Run("Helm retries as asked", func(t *testing.T) {
		namespace := g.Name("helm")
		g.LeaveLater(t, namespace)
		g.during(t, namespace, func() error { return g.helm(t, g.kubeconfig, namespace) })
	})
	t.Run("Helm retries as asked, for a namespace in the chart", func(t *testing.T) {
		namespace := g.Name("helm")
		g.during(t, namespace, g.installer(t, namespace))
	})
}

// testFailedRelease: Helm stores a release in another namespace than the chart creates. The release fails, and the command that
// docs/gitops.md names succeeds when the namespace is open.
func (g *gitops) testFailedRelease(t *testing.T) {
	namespace := g.Name("helm")
	upgrade := g.installer(t, namespace, "--upgrade")
	if err := upgrade(); !gateRefused(err) {
		t.Fatalf("into the closed namespace: %v", err)
	} else {
		t.Log(err)
	}
	g.open(t, namespace)
	if err := upgrade(); err != nil {
		t.Fatal(err)
	}
	g.checkContent(t, namespace)
}

// installer opens a namespace, and returns a function that stores a release in it. The chart contains another namespace, which
// is deleted when the test ends.
func (g *gitops) installer(t *testing.T, namespace string, flags ...string) func() error {
	t.Helper()
	g.LeaveLater(t, namespace)
	releases := g.CreateNamespace(t, g.As(gitopsUser)).Name
	g.open(t, releases)
	g.WaitMay(t, g.As(gitopsUser), "secrets", "create", releases)
	args := append([]string{"install", g.kubeconfig}, flags...)
	args = append(args, "shop", g.chart(t, fmt.Sprintf(gitopsNamespace+gitopsContent, namespace)), releases)
	return func() error {
		_, err := g.run(t.Context(), "", args...)
		return err
	}
}

// testFailureInFlux: Flux ends with a failure as soon as the initialization fails, and applies everything again.
func (g *gitops) testFailureInFlux(t *testing.T) {
	namespace, ended := g.namespace(t), make(chan error, 1)
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

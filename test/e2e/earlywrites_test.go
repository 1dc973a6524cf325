//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// kepManifest is the manifest on which kubectl apply fails according to the KEP.
const kepManifest = `
apiVersion: v1
kind: Namespace
metadata:
  name: %[1]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  namespace: %[1]s
  name: namespace-editors
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: edit
subjects:
- kind: Group
  apiGroup: rbac.authorization.k8s.io
  name: team-a@corp.com
`

// earlyWrites returns the number of requests to the webhook so far.
func earlyWrites(t *testing.T, c *framework.Cluster) (total int) {
	t.Helper()
	data, err := c.Metrics(t)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		var count int
		if name, value, _ := strings.Cut(line, " "); strings.HasPrefix(name, "nsinit_early_writes_total{") {
			if _, err := fmt.Sscan(value, &count); err != nil {
				t.Fatal(err)
			}
			total += count
		}
	}
	return total
}

// TestApplyJustWorks: one kubectl apply writes a namespace and its content, and waits while the initialization takes
// some time.
func TestApplyJustWorks(t *testing.T) {
	c := framework.Connect(t)
	c.Configure(t, framework.Initializers("waits.example.com")...)
	team := c.User(t, "e2e-team",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"create", "get", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"edit"}, Verbs: []string{"bind"}})
	c.AskTenantToRetry(t, team)

	var together sync.WaitGroup
	for _, takes := range []time.Duration{200 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
		for name, apply := range map[string]func(namespace string) (string, error){
			"kubectl": func(namespace string) (string, error) {
				return c.KubectlInput(fmt.Sprintf(kepManifest, namespace), "apply", "--as=e2e-team")
			},
			"kubectl, server-side": func(namespace string) (string, error) {
				return c.KubectlInput(fmt.Sprintf(kepManifest, namespace), "apply", "--server-side", "--as=e2e-team")
			},
			"client-go": func(namespace string) (string, error) { return "", program(t.Context(), team, namespace) },
		} {
			together.Go(func() {
				t.Run(fmt.Sprintf("%s in %s", name, takes), func(t *testing.T) {
					namespace := framework.UniqueName("apply")
					t.Cleanup(func() {
						_ = c.Core.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
					})
					before := earlyWrites(t, c)
					began, applied := time.Now(), make(chan error, 1)
					go func() {
						out, err := apply(namespace)
						if err != nil {
							err = fmt.Errorf("%w\n%s", err, out)
						}
						applied <- err
					}()
					c.WaitCurrent(t, namespace, "waits.example.com")
					select {
					case err := <-applied:
						t.Fatalf("it did not wait for the initializer: %v", err)
					case <-time.After(takes): // this is the work of the initializer
					}
					c.RemoveFirst(t, namespace)
					err := <-applied
					took := time.Since(began)
					if err != nil {
						t.Fatalf("after %s: %v", took, err)
					}
					binding, err := c.Core.RbacV1().RoleBindings(namespace).Get(t.Context(), "namespace-editors", metav1.GetOptions{})
					if err != nil || c.IsClosed(t, namespace) {
						t.Errorf("closed: %v, the role binding: %v", c.IsClosed(t, namespace), err)
					}
					if earlyWrites(t, c) == before {
						t.Error("no write came too early, so the test shows nothing")
					}
					t.Logf("initialization %s: written after %s (%s)", takes, took.Round(10*time.Millisecond), binding.CreationTimestamp.UTC().Format(time.TimeOnly))
				})
			})
		}
	}
	together.Wait()
}

// program writes the objects of the manifest with the typed client, without code that waits.
func program(ctx context.Context, config *rest.Config, namespace string) error {
	client := kubernetes.NewForConfigOrDie(config)
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "namespace-editors"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "team-a@corp.com"}},
	}, metav1.CreateOptions{})
	return err
}

// TestEarlyWrites: the webhook asks for a retry of early writes, and does not match other requests.
func TestEarlyWrites(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	c.Configure(t, framework.Initializers("waits.example.com")...)
	tenant := c.User(t, "e2e-early", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "configmaps"}, Verbs: []string{"create", "get"}})
	initializer := c.User(t, "e2e-initializer", framework.Initialize(), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}})
	powerless := c.User(t, "e2e-powerless", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	c.AskTenantToRetry(t, tenant)
	ctx := t.Context()
	closed, open := c.CreateNamespace(t, tenant).Name, c.CreateNamespace(t, tenant).Name
	for _, namespace := range []string{closed, open} {
		c.WaitCurrent(t, namespace, "waits.example.com")
	}
	c.RemoveFirst(t, open)
	c.WaitReady(t, open)

	framework.Eventually(t, "a tenant is asked to retry, and told for whom the namespace waits", func(ctx context.Context) error {
		err := framework.WriteOnce(ctx, tenant, closed)
		seconds, retry := apierrors.SuggestsClientDelay(err)
		if !apierrors.IsTooManyRequests(err) || !retry || seconds < 1 || !strings.Contains(err.Error(), `waiting for initializer "waits.example.com"`) {
			return fmt.Errorf("answered: %w (%d s)", err, seconds)
		}
		return nil
	})

	// The webhook does not match these requests.
	asked := earlyWrites(t, c)
	for range 20 {
		if err := framework.WriteOnce(ctx, tenant, open); err != nil {
			t.Fatalf("a write into an open namespace: %v", err)
		}
	}
	if err := framework.WriteOnce(ctx, initializer, closed); err != nil {
		t.Errorf("an initializer's write: %v", err)
	}
	if err := framework.WriteOnce(ctx, powerless, closed); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "nsinit") {
		t.Errorf("a user without permissions got: %v", err)
	}
	if _, err := c.Kubectl("auth", "can-i", "create", "configmaps", "--namespace", closed, "--as=e2e-early"); err != nil {
		t.Error(err)
	}
	if now := earlyWrites(t, c); now != asked {
		t.Errorf("nsinit-apiserver was asked %d times about writes that are not too early", now-asked)
	}

	// Without nsinit-apiserver the webhook admits the write, and the gate refuses it.
	c.Dev(t, "stop", "nsinit-apiserver")
	t.Cleanup(func() { c.Dev(t, "start", "nsinit-apiserver") })
	if err := framework.Refused(framework.WriteOnce(ctx, tenant, closed), closed); err != nil {
		t.Errorf("without nsinit-apiserver: %v", err)
	}
	c.Dev(t, "start", "nsinit-apiserver")
	framework.Eventually(t, "it is asked again", func(ctx context.Context) error {
		if err := framework.WriteOnce(ctx, tenant, closed); !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("answered: %w", err)
		}
		return nil
	})

	// No retry is asked for in a namespace that will not open.
	if _, err := c.Kubectl("delete", "namespace", closed, "--wait=false"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "a namespace that is being deleted", func(ctx context.Context) error {
		err := framework.WriteOnce(ctx, tenant, closed)
		if _, retry := apierrors.SuggestsClientDelay(err); err == nil || retry || (apierrors.IsTooManyRequests(err) && !strings.Contains(err.Error(), "being deleted")) {
			return fmt.Errorf("answered: %w", err)
		}
		return nil
	})
}

// TestTenantWithoutRights: a tenant whose permissions come only from an initializer is refused by RBAC, before the
// webhook could ask for a retry. The plugin waits, and so does kubectl wait.
func TestTenantWithoutRights(t *testing.T) {
	c := framework.Connect(t)
	c.Configure(t, framework.Initializers("waits.example.com")...)
	early := c.User(t, "e2e-early", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}})
	c.AskTenantToRetry(t, early)
	c.User(t, "e2e-self-service", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "list", "watch"}})
	// The initializer gives the creator their rights.
	grant := func(namespace string) {
		t.Helper()
		c.WaitCurrent(t, namespace, "waits.example.com")
		if out, err := c.Kubectl("create", "rolebinding", "creator", "--clusterrole=admin", "--user=e2e-self-service", "--namespace", namespace); err != nil {
			t.Fatal(err, out)
		}
		c.RemoveFirst(t, namespace)
	}
	_, content, _ := strings.Cut(kepManifest, "---\n")
	remove := func(namespace string) {
		_ = c.Core.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
	}

	namespace := framework.UniqueName("self")
	t.Cleanup(func() { remove(namespace) })
	out, err := c.KubectlInput(fmt.Sprintf(kepManifest, namespace), "apply", "--as=e2e-self-service")
	if err == nil || !strings.Contains(err.Error(), `User "e2e-self-service" cannot get resource "rolebindings"`) || strings.Contains(err.Error(), "nsinit.dev") {
		t.Errorf("immediately: %v\n%s", err, out)
	}
	t.Logf("in one go: %v", err)
	grant(namespace)
	if out, err := c.Kubectl("wait", "--for=condition=Ready", "namespace/"+namespace, "--as=e2e-self-service", "--timeout="+framework.Patience.String()); err != nil {
		t.Fatal(err, out)
	}
	if out, err := c.KubectlInput(fmt.Sprintf(content, namespace), "apply", "--as=e2e-self-service"); err != nil {
		t.Errorf("after kubectl wait: %v\n%s", err, out)
	}

	another := framework.UniqueName("self")
	t.Cleanup(func() { remove(another) })
	created := make(chan string, 1)
	go func() {
		stdout, stderr, code := c.Plugin(t, "create", another, "--as=e2e-self-service")
		created <- fmt.Sprintf("exit code %d: %s%s", code, stdout, stderr)
	}()
	grant(another)
	if out := <-created; !strings.HasPrefix(out, "exit code 0:") {
		t.Fatal(out)
	}
	if out, err := c.KubectlInput(fmt.Sprintf(content, another), "apply", "--as=e2e-self-service"); err != nil {
		t.Errorf("after kubectl nsinit create: %v\n%s", err, out)
	}
}

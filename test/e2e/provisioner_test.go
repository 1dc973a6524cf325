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
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/initializer/conformance"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const (
	logIndex = "log-index.example.com"
)

// TestLogIndex is the second user story of the KEP: each namespace has an index in a log store before it opens, and none
// after its deletion.
func TestLogIndex(t *testing.T) {
	c := framework.Connect(t)
	s := c.StartLogStore(t, 0)
	s.Provision(t, nil)()
	c.WaitRegistered(t)
	namespace := c.CreateNamespace(t, c.Admin)
	c.WaitReady(t, namespace.Name)
	index := "logs-" + string(namespace.UID)
	if indices, err := s.Indices(t.Context()); err != nil || len(indices) != 1 || indices[index] != namespace.Name {
		t.Errorf("the log store has %v, %v", indices, err)
	}
	if published, err := c.Core.CoreV1().ConfigMaps(namespace.Name).Get(t.Context(), "log-index", metav1.GetOptions{}); err != nil || published.Data["index"] != index {
		t.Errorf("published %+v, %v", published, err)
	}
	if out, err := c.Kubectl("delete", "namespace", namespace.Name, "--timeout="+framework.Patience.String()); err != nil {
		t.Fatal(err, out)
	}
	if indices, err := s.Indices(t.Context()); err != nil || len(indices) != 0 {
		t.Errorf("the namespace is gone, and the log store has %v, %v", indices, err)
	}
	// A new namespace of the same name has a new index.
	again, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.WaitReady(t, again.Name)
	if indices, err := s.Indices(t.Context()); err != nil || len(indices) != 1 || indices["logs-"+string(again.UID)] != again.Name {
		t.Errorf("the log store has %v, %v", indices, err)
	}
}

// TestProvisionerErrors: errors of the backend are reported in the cluster, and the namespaces stay closed.
func TestProvisionerErrors(t *testing.T) {
	c := framework.Connect(t)
	s := c.StartLogStore(t, 0)
	s.Provision(t, func(config string) string {
		return strings.Replace(config, "provision:\n  method: PUT\n", "provision:\n  method: PUT\n  failWhen: namespaceObject.metadata.labels[?\"e2e\"].orValue(\"\") == \"hopeless\"\n", 1)
	})()
	c.WaitRegistered(t)
	secrets := c.Core.CoreV1().Secrets("nsinit-system")
	set := func(password string) {
		t.Helper()
		if out, err := c.Kubectl("--namespace=nsinit-system", "patch", "secret", "log-store", "--patch", fmt.Sprintf(`{"stringData":{"password":%q}}`, password)); err != nil {
			t.Fatal(err, out)
		}
	}
	set("wrong")
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "unexpected response 401 Unauthorized: {\"error\":{\"reason\":\"missing or wrong credentials\"")
	hopeless, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("ns"), Labels: map[string]string{"e2e": "hopeless"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the hopeless one is deleted", func(ctx context.Context) error {
		n, err := c.Core.CoreV1().Namespaces().Get(ctx, hopeless.Name, metav1.GetOptions{})
		if err == nil && n.DeletionTimestamp == nil {
			err = fmt.Errorf("its conditions are %+v", n.Status.Conditions)
		}
		return err
	})
	s.Kill()
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "connection refused")
	if err := secrets.Delete(t.Context(), "log-store", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "cannot read the Secret with the credentials")
	if !c.IsClosed(t, namespace) {
		t.Error("the namespace is open")
	}
	s.Start("")
	s.WriteCredentials(t)
	c.WaitReady(t, namespace)
	c.WaitNoNamespace(t, hopeless.Name)
}

// streamConfig changes the documented configuration to operations that take some time and are not idempotent.
func streamConfig(url string) string {
	return `apiVersion: http-provisioner.nsinit.dev/v1alpha1
kind: HTTPProvisioner
initializer: log-index.example.com
configuration: 20-log-index
server:
  url: ` + url + `
  secret: {namespace: nsinit-system, name: log-store}
provision:
  method: POST
  path: /_streams
  body: {owner: "${namespaceObject.metadata.uid}"}
  expect: response.status == 202
  poll:
    method: GET
    location: ${operation.headers.location}
    until: response.body.completed
    interval: 100ms
deprovision:
  method: DELETE
  path: /_streams?owner=${namespaceObject.metadata.uid}
publish:
  - kind: Secret
    name: stream
    data:
      name: ${response.body.stream.name}
      token: ${response.body.stream.token}
`
}

// TestProvisionerCrash: http-provisioner and the log store are killed at random while namespaces are created and
// deleted. No resource is created twice, and none is left.
func TestProvisionerCrash(t *testing.T) {
	c := framework.Connect(t)
	s := c.StartLogStore(t, 500*time.Millisecond)
	c.Grant(t, "system:serviceaccount:nsinit-system:http-provisioner", kubernetes.NewForConfigOrDie(c.As("system:serviceaccount:nsinit-system:http-provisioner")),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "patch"}})
	start := s.Provision(t, func(string) string { return streamConfig(s.URL) })
	hook := start()
	c.WaitRegistered(t)

	// The kills end before the waits do: on a slow machine, nothing may succeed between two of them.
	var killer sync.WaitGroup
	random := rand.New(rand.NewPCG(framework.Seed(t), 0)) //nolint:gosec // not a secret
	kill := func(times int) {
		for range times {
			time.Sleep(time.Duration(200+random.IntN(800)) * time.Millisecond)
			if random.IntN(3) == 0 {
				s.Kill()
				s.Start("")
				continue
			}
			_ = hook.Kill()
			hook = start()
		}
	}
	t.Cleanup(killer.Wait)
	killer.Go(func() { kill(15) })
	var names, ids []string
	for range 30 {
		namespace := c.CreateNamespace(t, c.Admin)
		names, ids = append(names, namespace.Name), append(ids, string(namespace.UID))
		time.Sleep(50 * time.Millisecond) // so that they are at different steps
	}
	killer.Wait()
	for i, name := range names {
		c.WaitReady(t, name)
		secret, err := c.Core.CoreV1().Secrets(name).Get(t.Context(), "stream", metav1.GetOptions{})
		if err != nil || !strings.HasPrefix(string(secret.Data["token"]), "token-of-") {
			t.Errorf("namespace %s has no token: %v", ids[i], err)
		}
	}
	streams, err := s.List(t.Context(), "/_streams", "id")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, owner := range streams {
		count[owner]++
	}
	for _, id := range ids {
		if count[id] != 1 {
			t.Errorf("namespace %s has %d streams", id, count[id])
		}
	}
	killer.Go(func() { kill(10) })
	for _, name := range names {
		if err := c.Core.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	killer.Wait()
	for _, name := range names {
		c.WaitNoNamespace(t, name)
	}
	framework.Eventually(t, "nothing is left behind", func(ctx context.Context) error {
		streams, err := s.List(ctx, "/_streams", "id")
		if err == nil && len(streams) > 0 {
			err = fmt.Errorf("the log store has %v", streams)
		}
		return err
	})
}

// TestProvisionerConformance runs the suite for authors of initializers on http-provisioner.
func TestProvisionerConformance(t *testing.T) {
	c := framework.Connect(t)
	s := c.StartLogStore(t, 0)
	start := s.Provision(t, nil)
	first := start()
	c.WaitRegistered(t)
	_ = first.Kill()
	conformance.Run(t, conformance.Suite{
		Config: c.Admin,
		Name:   logIndex,
		Start: func(*testing.T) func() {
			process := start()
			return func() { _ = process.Kill() }
		},
		Check: func(ctx context.Context, namespace *corev1.Namespace) error {
			indices, err := s.Indices(ctx)
			if err == nil && indices["logs-"+string(namespace.UID)] != namespace.Name {
				err = fmt.Errorf("the log store has %v", indices)
			}
			return err
		},
		Left: func(ctx context.Context, namespace *corev1.Namespace) error {
			indices, err := s.Indices(ctx)
			if _, left := indices["logs-"+string(namespace.UID)]; err == nil && left {
				err = errors.New("the index is still there")
			}
			return err
		},
	})
}

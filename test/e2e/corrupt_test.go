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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestCorruptLifecycle: one NamespaceLifecycle cannot be decoded. Its own namespace, another one that
// waits, and a new one report the cause with the name of the object. check prints how to delete it. After the
// deletion, all continue without a restart. The controller is restarted before.
func TestCorruptLifecycle(t *testing.T) {
	c := framework.Connect(t)
	c.Configure(t, framework.Initializers("one.example.com")...)
	broken, waiting := c.CreateNamespace(t, c.Admin), c.CreateNamespace(t, c.Admin)
	for _, namespace := range []*corev1.Namespace{broken, waiting} {
		c.WaitCurrent(t, namespace.Name, "one.example.com")
	}
	key := corrupt(t, c, "namespacelifecycles", broken.Name)
	// A list waits three seconds for the cache.
	late := c.CreateNamespace(t, c.Admin)
	reported(t, c, "cannot read NamespaceLifecycle", key, broken.Name)
	reported(t, c, "waiting for initializer", key, waiting.Name, late.Name)

	c.Dev(t, "stop", "nsinit-controller-manager")
	c.Dev(t, "start", "nsinit-controller-manager")
	later := c.CreateNamespace(t, c.Admin)
	framework.Eventually(t, "the new namespace reports it", func(ctx context.Context) error { return reports(ctx, c, later.Name, key) })

	command := checkDeletes(t, c, "namespacelifecycles", broken.Name)
	// An initializer that gets single objects has its turn, and the gate opens.
	c.RemoveFirst(t, waiting.Name)
	c.WaitReady(t, waiting.Name)
	if !c.IsClosed(t, broken.Name) {
		t.Error("the namespace of the NamespaceLifecycle that cannot be decoded is open")
	}
	if out, err := c.Kubectl(strings.Fields(command)[1:]...); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, namespace := range []string{broken.Name, late.Name, later.Name} {
		c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "True/InitializersPending", "waiting for initializer \"one.example.com\"")
	}
	framework.Eventually(t, "nothing is left of the reports", func(ctx context.Context) error {
		return errors.Join(notReports(ctx, c, broken.Name, key), notReports(ctx, c, late.Name, key), notReports(ctx, c, later.Name, key))
	})
	// The caches of the controller are up to date, so it receives the next changes by its watches.
	for _, namespace := range []string{broken.Name, late.Name, later.Name} {
		c.RemoveFirst(t, namespace)
		c.WaitReady(t, namespace)
	}
	waitWatched(t, c, "one.example.com")
}

// waitWatched waits until nsinit-controller-manager follows NamespaceLifecycles by its watch again, and so
// publishes events of their changes. An initializer is registered that does not act.
func waitWatched(t *testing.T, c *framework.Cluster, initializer string) {
	t.Helper()
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, initializer)
	// Until the controller watches again, the turn may stall.
	framework.Eventually(t, "an event reports the turn", func(ctx context.Context) error {
		events, err := c.Core.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + namespace + ",reason=InitializerRunning"})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// TestCorruptConfiguration: a configuration cannot be decoded. New namespaces stay closed and report its name.
// They continue after its deletion.
func TestCorruptConfiguration(t *testing.T) {
	c := framework.Connect(t)
	broken := c.Configure(t, framework.Initializers("one.example.com")...)
	waiting := c.CreateNamespace(t, c.Admin)
	c.WaitCurrent(t, waiting.Name, "one.example.com")
	key := corrupt(t, c, "namespaceinitializerconfigurations", broken.Name)
	var late *corev1.Namespace
	framework.Eventually(t, "the configurations are stale", func(ctx context.Context) error {
		_, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Create(ctx, &v1alpha1.NamespaceLifecycle{
			ObjectMeta: metav1.ObjectMeta{Name: waiting.Name}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: waiting.UID},
		}, metav1.CreateOptions{})
		if !apierrors.IsServiceUnavailable(err) {
			return fmt.Errorf("creating a NamespaceLifecycle: %w", err)
		}
		return nil
	})
	late = c.CreateNamespace(t, c.Admin)
	reported(t, c, "which initializers", key, late.Name)
	command := checkDeletes(t, c, "namespaceinitializerconfigurations", broken.Name)
	// A namespace with a plan continues.
	c.RemoveFirst(t, waiting.Name)
	c.WaitReady(t, waiting.Name)
	if out, err := c.Kubectl(strings.Fields(command)[1:]...); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	c.WaitReady(t, late.Name)
}

// TestStorageChangesIdentity: the identity in the storage changes while nsinit-apiserver runs. No new namespace
// gets a plan, and every closed namespace reports the cause. After the identity is restored and nsinit-apiserver is
// restarted, they continue.
func TestStorageChangesIdentity(t *testing.T) {
	c := framework.Connect(t)
	c.Configure(t, framework.Initializers("one.example.com")...)
	waiting := c.CreateNamespace(t, c.Admin)
	c.WaitCurrent(t, waiting.Name, "one.example.com")
	etcd := nsinitEtcd(t, c)
	const key = "/registry/nsinit.dev/storage-identity"
	stored, err := etcd.Get(t.Context(), key)
	if err != nil || len(stored.Kvs) != 1 {
		t.Fatalf("%v %v", stored, err)
	}
	original := string(stored.Kvs[0].Value)
	put := func(value string) {
		if _, err := etcd.Put(context.Background(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		put(original)
		c.Dev(t, "kill", "nsinit-apiserver")
		c.Dev(t, "start", "nsinit-apiserver")
		c.WaitServing(t)
		waitWatched(t, c, "one.example.com")
	})
	const id = "00000000-0000-4000-8000-000000000000"
	published, err := c.Core.CoreV1().ConfigMaps("nsinit-system").Get(t.Context(), "nsinit-storage", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	put(strings.ReplaceAll(original, published.Data["id"], id))
	late := c.CreateNamespace(t, c.Admin)
	reported(t, c, "storage is another one", id, waiting.Name, late.Name)
	config := rest.CopyConfig(c.Admin)
	client := versioned.NewForConfigOrDie(config).NsinitV1alpha1().RESTClient()
	for _, resource := range []string{"namespacelifecycles", "namespaceinitializerconfigurations"} {
		for _, watch := range []string{"false", "true"} {
			err := client.Get().Resource(resource).Param("watch", watch).Param("timeoutSeconds", "1").MaxRetries(0).Do(t.Context()).Error()
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "storage is another one") {
				t.Errorf("%s, watch=%s: %v", resource, watch, err)
			}
		}
	}
	lifecycles, err := etcd.Get(t.Context(), storedKey("namespacelifecycles", late.Name))
	if err != nil || len(lifecycles.Kvs) != 0 {
		t.Errorf("the new namespace got a NamespaceLifecycle: %v %v", lifecycles, err)
	}
	put(original)
	direct := versioned.NewForConfigOrDie(c.Direct(t)).Discovery().RESTClient()
	framework.Eventually(t, "nsinit-apiserver ends, and serves after a restart", func(ctx context.Context) error {
		c.Dev(t, "start", "nsinit-apiserver") // as a kubelet does; one that runs stays
		said, err := direct.Get().AbsPath("/readyz").MaxRetries(0).DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		log, err := os.ReadFile(filepath.Join(c.Dir, "nsinit-apiserver.log"))
		if err == nil && !strings.Contains(string(log), "was replaced") {
			err = errors.New("it went on with its caches")
		}
		return err
	})
	c.WaitServing(t)
	for _, namespace := range []string{waiting.Name, late.Name} {
		c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "True/InitializersPending", "waiting for initializer \"one.example.com\"")
		c.RemoveFirst(t, namespace)
		c.WaitReady(t, namespace)
	}
}

// nsinitEtcd returns a client of the etcd of nsinit-apiserver.
func nsinitEtcd(t *testing.T, c *framework.Cluster) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(c.Dir, "nsinit-etcd", "client.sock")}, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func storedKey(resource, name string) string {
	return "/registry/nsinit.dev/nsinit.dev/" + resource + "/" + name
}

// corrupt replaces the stored bytes of an object by bytes that cannot be decoded, and returns its key. The object is
// deleted when the test ends.
func corrupt(t *testing.T, c *framework.Cluster, resource, name string) string {
	t.Helper()
	etcd, key := nsinitEtcd(t, c), storedKey(resource, name)
	if _, err := etcd.Put(t.Context(), key, "garbage"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			_, _ = etcd.Delete(context.Background(), key)
		}
	})
	return strings.TrimPrefix(key, "/registry/nsinit.dev") // as a GET names it
}

// reports returns an error unless a closed namespace reports a reason.
func reports(ctx context.Context, c *framework.Cluster, name string, reasons ...string) error {
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range namespace.Status.Conditions {
		if condition.Type != v1alpha1.ConditionInitializing || condition.Status != corev1.ConditionTrue {
			continue
		}
		for _, reason := range reasons {
			if !strings.Contains(condition.Message, reason) {
				return fmt.Errorf("namespace %q says %q, want %q", name, condition.Message, reason)
			}
		}
		return nil
	}
	return fmt.Errorf("namespace %q says nothing: %v", name, namespace.Status.Conditions)
}

func notReports(ctx context.Context, c *framework.Cluster, name, reason string) error {
	if reports(ctx, c, name, reason) == nil {
		return fmt.Errorf("namespace %q still says %q", name, reason)
	}
	return nil
}

// reported waits until each namespace reports two things.
func reported(t *testing.T, c *framework.Cluster, what, which string, names ...string) {
	t.Helper()
	for _, name := range names {
		framework.Eventually(t, "the reason is reported", func(ctx context.Context) error { return reports(ctx, c, name, what, which) })
	}
}

// checkDeletes returns the command that kubectl nsinit check prints to delete a broken object.
func checkDeletes(t *testing.T, c *framework.Cluster, resource, name string) string {
	t.Helper()
	stdout, stderr, code := c.Plugin(t, "check")
	want := "kubectl delete --raw '/apis/nsinit.dev/v1alpha1/" + resource + "/" + name + "?ignoreStoreReadErrorWithClusterBreakingPotential=true'"
	if code != 3 || !strings.Contains(stdout, want) || !strings.Contains(stdout, storedKey(resource, name)) {
		t.Fatalf("check says (%d): %s %s", code, stdout, stderr)
	}
	return strings.ReplaceAll(want, "'", "")
}

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
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestEtcdOutage: nsinit-apiserver works on a separate etcd, which is stopped for ten seconds. NamespaceLifecycles
// are refused meanwhile, because the configurations cannot be read. No gate opens early, and every namespace
// becomes Ready afterwards.
func TestEtcdOutage(t *testing.T) {
	const outage = 10 * time.Second
	c := framework.Connect(t)
	tenant := c.Tenant(t)
	etcd := startOnExternalEtcd(t, c)
	c.Configure(t, framework.Initializers("one.example.com", "two.example.com")...)
	c.ActAs(t, "one.example.com", "two.example.com")

	var namespaces []*corev1.Namespace
	var observers []*framework.Observer
	create := func() string {
		namespace := c.CreateNamespace(t, c.Admin)
		namespaces, observers = append(namespaces, namespace), append(observers, c.Observe(t, tenant, namespace))
		return namespace.Name
	}
	for range 3 {
		create()
	}
	if err := etcd.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Signal(syscall.SIGCONT) })
	stopped := time.Now()
	direct := versioned.NewForConfigOrDie(c.Direct(t)).Discovery().RESTClient()
	get := func(path string) error {
		uri, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		request := direct.Get().AbsPath(uri.Path).MaxRetries(0)
		for name, values := range uri.Query() {
			for _, value := range values {
				request = request.Param(name, value)
			}
		}
		return request.Do(t.Context()).Error()
	}
	leaving := c.CreateNamespace(t, c.Admin).Name
	c.DeleteNamespace(t, leaving)
	var refusedAfter time.Duration
	var last string
	for time.Since(stopped) < outage {
		last = create()
		said, err := direct.Get().AbsPath("/readyz/configurations").MaxRetries(0).DoRaw(t.Context())
		if err != nil && refusedAfter == 0 {
			refusedAfter = time.Since(stopped)
			t.Logf("%.1f s after the stop: %s", refusedAfter.Seconds(), strings.TrimSpace(string(said)))
			err := c.Nsinit.NsinitV1alpha1().RESTClient().Post().Resource("namespacelifecycles").MaxRetries(0).SetHeader("Content-Type", "application/json").
				Body([]byte(framework.JSON(t, v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: last}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: namespaces[len(namespaces)-1].UID}}))).
				Do(t.Context()).Error()
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "which initializers") || !strings.Contains(err.Error(), "etcd did not answer within 2s") {
				t.Errorf("a NamespaceLifecycle: %v", err)
			}
		}
		// The server lives, and stays in service for discovery.
		for _, path := range []string{"/livez", readiness(t, c), "/apis/nsinit.dev/v1alpha1"} {
			if err := get(path); err != nil {
				t.Errorf("%.1f s after the stop, %s: %v", time.Since(stopped).Seconds(), path, err)
			}
		}
		if lists, err := c.Core.Discovery().ServerPreferredResources(); err != nil || !strings.Contains(framework.JSON(t, lists), "namespacelifecycles") {
			t.Errorf("discovery: %v", err)
		}
		time.Sleep(time.Second)
	}
	for _, path := range []string{"/readyz", "/readyz/etcd"} {
		if err := get(path); err == nil {
			t.Errorf("%s says that it is ready", path)
		}
	}
	// A namespace without participants is removed without nsinit-apiserver.
	c.WaitNoNamespace(t, leaving)
	if refusedAfter == 0 {
		t.Error("NamespaceLifecycles were not refused")
	}
	c.WaitCondition(t, last, v1alpha1.ConditionInitializing, "True/LifecycleNotCreated", "cannot read the configurations", "retries")
	if err := etcd.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	went := time.Now()
	for i, namespace := range namespaces {
		c.WaitReady(t, namespace.Name)
		observers[i].Check(t)
	}
	t.Logf("etcd was stopped for %.1f s; NamespaceLifecycles were refused after %.1f s; %d namespaces were Ready %.1f s after it went on",
		went.Sub(stopped).Seconds(), refusedAfter.Seconds(), len(namespaces), time.Since(went).Seconds())
}

// readiness returns the path of a replica's readiness probe.
func readiness(t *testing.T, c *framework.Cluster) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Root, "artifacts", "deploy", "components", "apiserver", "pod.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var workload appsv1.Deployment
	if err := yaml.Unmarshal(data, &workload); err != nil {
		t.Fatal(err)
	}
	return workload.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path
}

// startOnExternalEtcd runs nsinit-apiserver as the control plane does, but on a separate etcd process, until the
// test ends.
func startOnExternalEtcd(t *testing.T, c *framework.Cluster) *os.Process {
	t.Helper()
	url, etcd := c.StartEtcd(t)
	args := c.OnEtcd(t, url)
	c.ReplaceServer(t)
	c.Run(t, "nsinit-apiserver", args...)
	c.WaitServing(t)
	return etcd
}

// TestLostStorage: nsinit-apiserver restarts with an empty storage. No namespace opens or is removed
// before the loss is acknowledged. Then closed namespaces start again.
func TestLostStorage(t *testing.T) {
	c := framework.Connect(t)
	tenant := c.Tenant(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true})
	open := c.CreateNamespace(t, c.Admin)
	c.WaitCurrent(t, open.Name, "one.example.com")
	c.RemoveFirst(t, open.Name)
	c.WaitReady(t, open.Name)
	leaving := c.CreateNamespace(t, c.Admin)
	c.WaitCurrent(t, leaving.Name, "one.example.com")
	c.RemoveFirst(t, leaving.Name)
	c.WaitReady(t, leaving.Name)
	waiting := c.CreateNamespace(t, c.Admin)
	c.WaitCurrent(t, waiting.Name, "one.example.com")
	observer := c.Observe(t, tenant, waiting)

	c.Dev(t, "stop", "nsinit-apiserver")
	c.Dev(t, "stop", "nsinit-etcd")
	storage := filepath.Join(c.Dir, "nsinit-etcd")
	if err := os.Rename(storage, storage+"-lost"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(storage + "-lost") })
	c.Dev(t, "start", "nsinit-etcd")
	c.Dev(t, "start", "nsinit-apiserver")
	direct := versioned.NewForConfigOrDie(c.Direct(t)).Discovery().RESTClient()
	framework.Eventually(t, "readyz says what is wrong", func(ctx context.Context) error {
		said, err := direct.Get().AbsPath("/readyz/storage-identity").MaxRetries(0).DoRaw(ctx)
		if !strings.Contains(string(said), "storage was lost") {
			return errors.Join(err, fmt.Errorf("it says %q", said))
		}
		t.Logf("readyz: %s", said)
		return nil
	})
	late := c.CreateNamespace(t, c.Admin)
	for _, namespace := range []string{waiting.Name, late.Name} {
		c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "True/LifecycleNotCreated", "storage was lost", "delete configmap nsinit-storage")
	}
	// It is unknown whether the participant has cleaned up, so the namespace waits for it.
	c.DeleteNamespace(t, leaving.Name)
	framework.Eventually(t, "the content of the namespace is gone", func(ctx context.Context) error {
		namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, leaving.Name, metav1.GetOptions{})
		if err == nil && len(namespace.Spec.Finalizers) > 0 {
			err = fmt.Errorf("its finalizers are %v", namespace.Spec.Finalizers)
		}
		return err
	})
	for _, namespace := range []string{waiting.Name, leaving.Name} {
		if refusal := c.WaitWhy(t, namespace, diagnosis.NsinitRefuses, diagnosis.Stuck); !strings.Contains(refusal.Message, "delete configmap nsinit-storage") {
			t.Errorf("why says %q", refusal.Message)
		}
	}
	// After its restart, the controller finds no NamespaceLifecycles.
	c.Dev(t, "stop", "nsinit-controller-manager")
	c.Dev(t, "start", "nsinit-controller-manager")
	later := c.CreateNamespace(t, c.Admin)
	c.WaitCondition(t, later.Name, v1alpha1.ConditionInitializing, "True/LifecycleNotCreated", "storage was lost")
	if namespace, err := c.Core.CoreV1().Namespaces().Get(t.Context(), leaving.Name, metav1.GetOptions{}); err != nil || len(namespace.Finalizers) != 1 {
		t.Errorf("it is unknown whether the participant has cleaned up, but the finalizer was removed: %v %v", namespace.Finalizers, err)
	}
	if !c.IsClosed(t, waiting.Name) || c.IsClosed(t, open.Name) {
		t.Error("a gate has opened or closed")
	}

	c.Configure(t, framework.Initializers("again.example.com")...)
	c.RunDocumented(t, framework.StorageGuide, "When the storage was lost", nil)
	c.WaitServing(t)
	for _, namespace := range []string{waiting.Name, late.Name, later.Name} {
		c.WaitCurrent(t, namespace, "again.example.com")
		c.RemoveFirst(t, namespace)
		c.WaitReady(t, namespace)
	}
	observer.Check(t)
	lifecycle := c.WaitCurrent(t, open.Name, "")
	if len(lifecycle.Spec.Plan) != 0 || c.IsClosed(t, open.Name) {
		t.Errorf("the open namespace was planned %v", lifecycle.Spec.Plan)
	}
	c.WaitNoNamespace(t, leaving.Name)
}

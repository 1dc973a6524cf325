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
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

// TestEtcdOutage: nsinit-apiserver works on an etcd of its own, which is stopped for ten
// seconds. Records are refused once the last list of the configurations is five seconds old,
// no gate opens early, and everything becomes Ready afterwards by itself.
func TestEtcdOutage(t *testing.T) {
	const outage = 10 * time.Second
	c := connect(t)
	tenant := c.tenant(t)
	etcd := c.startOnExternalEtcd(t)
	c.configure(t, named("one.example.com", "two.example.com")...)
	c.actAs(t, "one.example.com", "two.example.com")

	var namespaces []*corev1.Namespace
	var observers []*observer
	create := func() string {
		namespace := c.createNamespace(t, c.admin)
		namespaces, observers = append(namespaces, namespace), append(observers, c.observe(t, tenant, namespace))
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
	direct := versioned.NewForConfigOrDie(c.direct(t)).Discovery().RESTClient()
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
	leaving := c.createNamespace(t, c.admin).Name
	if err := c.core.CoreV1().Namespaces().Delete(t.Context(), leaving, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var refusedAfter time.Duration
	var last string
	for time.Since(stopped) < outage {
		last = create()
		said, err := direct.Get().AbsPath("/readyz/configurations").MaxRetries(0).DoRaw(t.Context())
		if err != nil && refusedAfter == 0 {
			refusedAfter = time.Since(stopped)
			t.Logf("%.1f s after the stop: %s", refusedAfter.Seconds(), strings.TrimSpace(string(said)))
			err := c.nsinit.NsinitV1alpha1().RESTClient().Post().Resource("namespacelifecycles").MaxRetries(0).SetHeader("Content-Type", "application/json").
				Body([]byte(jsonOf(t, v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: last}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: namespaces[len(namespaces)-1].UID}}))).
				Do(t.Context()).Error()
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "cannot tell which initializers") || !strings.Contains(err.Error(), "a list may be 5s old") {
				t.Errorf("a record: %v", err)
			}
		}
		// The server lives, and stays in service for discovery.
		for _, path := range []string{"/livez", c.readiness(t), "/apis/nsinit.dev/v1alpha1"} {
			if err := get(path); err != nil {
				t.Errorf("%.1f s after the stop, %s: %v", time.Since(stopped).Seconds(), path, err)
			}
		}
		if lists, err := c.core.Discovery().ServerPreferredResources(); err != nil || !strings.Contains(jsonOf(t, lists), "namespacelifecycles") {
			t.Errorf("discovery: %v", err)
		}
		time.Sleep(time.Second)
	}
	for _, path := range []string{"/readyz", "/readyz/etcd"} {
		if err := get(path); err == nil {
			t.Errorf("%s says that it is ready", path)
		}
	}
	// A namespace that nobody takes part in goes away without it.
	c.waitNoNamespace(t, leaving)
	if refusedAfter == 0 {
		t.Error("records were not refused")
	}
	c.waitCondition(t, last, v1alpha1.ConditionInitializing, "True/RecordNotCreated", "a list may be 5s old")
	if err := etcd.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	went := time.Now()
	for i, namespace := range namespaces {
		c.waitReady(t, namespace.Name)
		observers[i].check(t)
	}
	t.Logf("etcd was stopped for %.1f s; records were refused after %.1f s; %d namespaces were Ready %.1f s after it went on",
		went.Sub(stopped).Seconds(), refusedAfter.Seconds(), len(namespaces), time.Since(went).Seconds())
}

// readiness returns the path of the probe by which a replica is in service.
func (c *cluster) readiness(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.root, "artifacts", "deploy", "components", "apiserver", "pod.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var workload appsv1.Deployment
	if err := yaml.Unmarshal(data, &workload); err != nil {
		t.Fatal(err)
	}
	return workload.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path
}

// startOnExternalEtcd runs nsinit-apiserver as the control plane does, but on an etcd process
// of its own, until the test ends.
func (c *cluster) startOnExternalEtcd(t *testing.T) *os.Process {
	t.Helper()
	url, etcd := c.externalEtcd(t)
	args := c.onEtcd(t, url)
	c.replaceServer(t)
	c.run(t, "nsinit-apiserver", args...)
	c.waitServing(t)
	return etcd
}

// externalEtcd runs an etcd process for the test, with more arguments if need be, and returns where it
// listens.
func (c *cluster) externalEtcd(t *testing.T, more ...string) (string, *os.Process) {
	t.Helper()
	client, peer := "http://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t)
	return client, c.run(t, "etcd", append(more, "--name=e2e", "--data-dir="+t.TempDir(), "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=e2e="+peer, "--log-level=warn")...)
}

// onEtcd returns the arguments with which nsinit-apiserver runs on an etcd of the test's, with
// an identity of its own.
func (c *cluster) onEtcd(t *testing.T, etcd string) []string {
	t.Helper()
	args := c.arguments(t, "nsinit-apiserver")
	for i, arg := range args {
		if strings.HasPrefix(arg, "--embedded-etcd-dir=") {
			args[i] = "--etcd-servers=" + etcd
		}
	}
	return append(args, "--storage-identity-configmap=nsinit-system/nsinit-storage-e2e")
}

// replaceServer stops the control plane's own nsinit-apiserver until the test ends.
func (c *cluster) replaceServer(t *testing.T) {
	t.Helper()
	c.grantStorageIdentity(t, "nsinit-storage-e2e")
	c.dev(t, "stop", "nsinit-apiserver")
	t.Cleanup(func() {
		c.dev(t, "start", "nsinit-apiserver")
		c.waitServing(t)
		c.dev(t, "kill", "nsinit-controller-manager") // what it knows is of the other storage
		c.dev(t, "start", "nsinit-controller-manager")
	})
}

// arguments returns the arguments with which a program of the control plane runs.
func (c *cluster) arguments(t *testing.T, program string) []string {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(c.dir, program+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]
}

// build builds a program of a module of this repository, where run finds it.
func (c *cluster) build(t *testing.T, module, program, pkg string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(c.root, "_output", "bin", program), pkg)
	command.Dir = filepath.Join(c.root, module)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// run runs a program until the test ends.
func (c *cluster) run(t *testing.T, program string, args ...string) *os.Process {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), program+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(filepath.Join(c.root, "_output", "bin", program), args...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s (%s):\n%s", program, strconv.Itoa(command.Process.Pid), said[max(0, len(said)-8000):])
		}
		_ = log.Close()
	})
	return command.Process
}

// waitServing waits until nsinit-apiserver is ready and reached through the aggregator.
func (c *cluster) waitServing(t *testing.T) {
	t.Helper()
	eventually(t, "nsinit-apiserver serves", func(ctx context.Context) error {
		direct := versioned.NewForConfigOrDie(c.direct(t)).Discovery().RESTClient()
		said, err := direct.Get().AbsPath("/readyz").Param("verbose", "true").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		_, err = c.nsinit.NsinitV1alpha1().NamespaceLifecycles().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// actAs removes initializers whenever it is their turn, until the test ends.
func (c *cluster) actAs(t *testing.T, names ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	config := rest.CopyConfig(c.admin)
	config.Timeout = 5 * time.Second
	client := versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceLifecycles()
	for _, name := range names {
		go func() {
			for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
				list, err := client.List(ctx, metav1.ListOptions{FieldSelector: "status.currentInitializer=" + name})
				if err != nil {
					continue
				}
				for _, record := range list.Items {
					record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
					_, _ = client.Initialize(ctx, record.Name, &record, metav1.UpdateOptions{})
				}
			}
		}()
	}
}

// TestLostStorage: nsinit-apiserver comes back with an empty storage. Nothing opens and nothing
// leaves before the loss is acknowledged; then what was closed starts again.
func TestLostStorage(t *testing.T) {
	c := connect(t)
	tenant := c.tenant(t)
	c.configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true})
	open := c.createNamespace(t, c.admin)
	c.waitCurrent(t, open.Name, "one.example.com")
	c.removeFirst(t, open.Name)
	c.waitReady(t, open.Name)
	leaving := c.createNamespace(t, c.admin)
	c.waitCurrent(t, leaving.Name, "one.example.com")
	c.removeFirst(t, leaving.Name)
	c.waitReady(t, leaving.Name)
	waiting := c.createNamespace(t, c.admin)
	c.waitCurrent(t, waiting.Name, "one.example.com")
	observer := c.observe(t, tenant, waiting)

	c.dev(t, "stop", "nsinit-apiserver")
	storage := filepath.Join(c.dir, "nsinit-etcd")
	if err := os.Rename(storage, storage+"-lost"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(storage + "-lost") })
	c.dev(t, "start", "nsinit-apiserver")
	direct := versioned.NewForConfigOrDie(c.direct(t)).Discovery().RESTClient()
	eventually(t, "readyz says what is wrong", func(ctx context.Context) error {
		said, err := direct.Get().AbsPath("/readyz/storage-identity").MaxRetries(0).DoRaw(ctx)
		if !strings.Contains(string(said), "storage was lost") {
			return errors.Join(err, fmt.Errorf("it says %q", said))
		}
		t.Logf("readyz: %s", said)
		return nil
	})
	late := c.createNamespace(t, c.admin)
	for _, namespace := range []string{waiting.Name, late.Name} {
		c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, "True/RecordNotCreated", "storage was lost", "delete configmap nsinit-storage")
	}
	// The participant cannot be asked, so it is waited for.
	if err := c.core.CoreV1().Namespaces().Delete(t.Context(), leaving.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the content of the namespace is gone", func(ctx context.Context) error {
		namespace, err := c.core.CoreV1().Namespaces().Get(ctx, leaving.Name, metav1.GetOptions{})
		if err == nil && len(namespace.Spec.Finalizers) > 0 {
			err = fmt.Errorf("its finalizers are %v", namespace.Spec.Finalizers)
		}
		return err
	})
	for _, namespace := range []string{waiting.Name, leaving.Name} {
		if refusal := c.waitWhy(t, namespace, diagnosis.NsinitRefuses, diagnosis.Stuck); !strings.Contains(refusal.Message, "delete configmap nsinit-storage") {
			t.Errorf("why says %q", refusal.Message)
		}
	}
	// A restart of the controller finds an empty list of records.
	c.dev(t, "kill", "nsinit-controller-manager")
	c.dev(t, "start", "nsinit-controller-manager")
	later := c.createNamespace(t, c.admin)
	c.waitCondition(t, later.Name, v1alpha1.ConditionInitializing, "True/RecordNotCreated", "storage was lost")
	if namespace, err := c.core.CoreV1().Namespaces().Get(t.Context(), leaving.Name, metav1.GetOptions{}); err != nil || len(namespace.Finalizers) != 1 {
		t.Errorf("nobody knows whether the participant has cleaned up, but: %v %v", namespace.Finalizers, err)
	}
	if !c.isClosed(t, waiting.Name) || c.isClosed(t, open.Name) {
		t.Error("a gate has opened or closed")
	}

	c.register(t, named("again.example.com")...)
	c.runDocumented(t, "When the storage was lost", nil)
	c.waitServing(t)
	for _, namespace := range []string{waiting.Name, late.Name, later.Name} {
		c.waitCurrent(t, namespace, "again.example.com")
		c.removeFirst(t, namespace)
		c.waitReady(t, namespace)
	}
	observer.check(t)
	record := c.waitCurrent(t, open.Name, "")
	if len(record.Spec.Plan) != 0 || c.isClosed(t, open.Name) {
		t.Errorf("the open namespace was planned %v", record.Spec.Plan)
	}
	c.waitNoNamespace(t, leaving.Name)
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

// patience is how long a condition may take to hold: much longer than it takes.
const patience = 90 * time.Second

var serial atomic.Int64 //nolint:gochecknoglobals // makes names unique

// The tests that use the common control plane run one after the other. So do those that only use one of
// their own, beside the former.
var common, separate, lanes = sync.Mutex{}, sync.Mutex{}, sync.Map{} //nolint:gochecknoglobals // locks

// enter makes a test wait for its turn in a lane, unless it has entered one.
func enter(t *testing.T, lane *sync.Mutex) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	if _, entered := lanes.LoadOrStore(test, true); entered {
		return
	}
	if test != t.Name() {
		t.Fatalf("%s has to call connect or another, not its subtest", test)
	}
	t.Parallel()
	lane.Lock()
	began := time.Now()
	t.Cleanup(func() {
		lanes.Delete(test)
		lane.Unlock()
		t.Logf("took %s", time.Since(began).Round(time.Second))
	})
}

// cluster is the control plane that the tests run on.
type cluster struct {
	root, dir string
	admin     *rest.Config
	core      kubernetes.Interface
	nsinit    versioned.Interface
}

// connect returns the running control plane. Without one, the test fails.
func connect(t *testing.T) *cluster {
	t.Helper()
	enter(t, &common)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{root: root, dir: os.Getenv("NSINIT_DEV_DIR")}
	if c.dir == "" {
		c.dir = filepath.Join(root, "_output", "dev")
	}
	c.load(t)
	return c
}

// load makes the clients of the control plane in the cluster's folder.
func (c *cluster) load(t *testing.T) {
	t.Helper()
	var err error
	c.admin, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		t.Fatalf("there is no control plane in %s, run make e2e or make dev-up: %v", c.dir, err)
	}
	c.admin.QPS = -1
	c.core, c.nsinit = kubernetes.NewForConfigOrDie(c.admin), versioned.NewForConfigOrDie(c.admin)
	if _, err := c.core.Discovery().ServerVersion(); err != nil {
		t.Fatalf("the control plane in %s does not answer, run make e2e or make dev-up: %v", c.dir, err)
	}
}

// another starts a control plane of the test's own, for what would spoil the common one. It
// takes the arguments of dev up.
func another(t *testing.T, up ...string) *cluster {
	t.Helper()
	enter(t, &separate)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nsinit-e2e")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{root: root, dir: dir}
	t.Cleanup(func() {
		c.dev(t, "down")
		_ = os.RemoveAll(dir)
	})
	c.dev(t, append([]string{"up"}, up...)...)
	c.load(t)
	return c
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// as returns the configuration of a user, who has what RBAC gives the name and the groups.
func (c *cluster) as(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(c.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return config
}

// kubectl runs the real kubectl, and returns what it prints and what it says of an error.
func (c *cluster) kubectl(args ...string) (string, error) {
	command := exec.Command(filepath.Join(c.root, "_output", "bin", "kubectl"), append([]string{"--kubeconfig", c.kubeconfig()}, args...)...)
	command.Env = append(os.Environ(), "HOME="+c.dir)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// kubectlInput runs kubectl with something on its standard input.
func (c *cluster) kubectlInput(input string, args ...string) (string, error) {
	file, err := os.CreateTemp("", "nsinit-e2e-*.yaml")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if _, err := file.WriteString(input); err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	return c.kubectl(append(args, "-f", file.Name())...)
}

// dev runs a command of the dev program for the control plane, such as start, stop or kill of one
// program, and returns its output.
func (c *cluster) dev(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(c.root, "_output", "bin", "dev"), append([]string{"--dir", c.dir}, command...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// uniqueName returns a name that no other test uses.
func uniqueName(prefix string) string {
	return fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), serial.Add(1))
}

// eventually waits until a check returns nil, and fails with its last error.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || ctx.Err() == nil { // the end of patience says nothing of the condition
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

// configure registers initializers, waits until they are in force, and takes them away when
// the test ends. Tests run one after the other, so that each has the configurations that it
// makes.
func (c *cluster) configure(t *testing.T, initializers ...v1alpha1.RegisteredInitializer) *v1alpha1.NamespaceInitializerConfiguration {
	t.Helper()
	configuration := c.register(t, initializers...)
	c.waitInForce(t)
	return configuration
}

// register registers initializers, and takes them away when the test ends.
func (c *cluster) register(t *testing.T, initializers ...v1alpha1.RegisteredInitializer) *v1alpha1.NamespaceInitializerConfiguration {
	t.Helper()
	client := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	configuration, err := client.Create(context.Background(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: uniqueName("configuration")}, Initializers: initializers,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.Background(), configuration.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		c.waitInForce(t)
	})
	return configuration
}

// waitInForce waits until every change of the configurations that was acknowledged before is
// in force: until the server's last list began later.
func (c *cluster) waitInForce(t *testing.T) {
	t.Helper()
	changed := time.Now()
	eventually(t, "the configurations are in force", func(context.Context) error {
		asked := time.Now()
		metrics, err := c.nsinitMetrics(t)
		if err != nil {
			return err
		}
		age, err := listAge(metrics)
		if err == nil && !asked.Add(-age).After(changed) {
			err = fmt.Errorf("the last list is %s old", age)
		}
		return err
	})
}

// nsinitMetrics returns the metrics of nsinit-apiserver.
func (c *cluster) nsinitMetrics(t *testing.T) ([]byte, error) {
	t.Helper()
	return metricsOf(context.Background(), c.direct(t))
}

// metricsOf returns the metrics of a program.
func metricsOf(ctx context.Context, config *rest.Config) ([]byte, error) {
	return versioned.NewForConfigOrDie(config).Discovery().RESTClient().Get().AbsPath("/metrics").MaxRetries(0).DoRaw(ctx)
}

// listAge returns the age of the last list of the configurations, of which a server's metrics
// tell.
func listAge(metrics []byte) (time.Duration, error) {
	for line := range strings.SplitSeq(string(metrics), "\n") {
		if value, ok := strings.CutPrefix(line, "nsinit_configurations_list_age_seconds "); ok {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			return time.Duration(min(seconds, 3600) * float64(time.Second)), nil
		}
	}
	return 0, errors.New("the metrics do not tell the age of the last list")
}

// direct returns the configuration of an administrator's client that reaches nsinit-apiserver
// itself, not through the aggregator. A server asks for client certificates once it has read
// which authority signs them, and a connection from before stays anonymous, so each request
// makes its own.
func (c *cluster) direct(t *testing.T) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(c.admin)
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", c.ports(t)["nsinit-apiserver"])
	config.CAData, config.CAFile = nil, filepath.Join(c.dir, "pki", "nsinit-ca.crt")
	config.Dial = (&net.Dialer{}).DialContext
	return config
}

// ports returns the ports of the control plane, by program.
func (c *cluster) ports(t *testing.T) map[string]int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, "ports.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ports map[string]int
	if err := json.Unmarshal(data, &ports); err != nil {
		t.Fatal(err)
	}
	return ports
}

func named(names ...string) []v1alpha1.RegisteredInitializer {
	var all []v1alpha1.RegisteredInitializer
	for _, name := range names {
		all = append(all, v1alpha1.RegisteredInitializer{Name: name})
	}
	return all
}

// createNamespace creates a namespace as a user, and deletes it when the test ends.
func (c *cluster) createNamespace(t *testing.T, config *rest.Config) *corev1.Namespace {
	t.Helper()
	namespace, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: uniqueName("ns")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.core.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return namespace
}

// waitCurrent waits until it is an initializer's turn, and returns the record. An empty
// name waits until the record is complete.
func (c *cluster) waitCurrent(t *testing.T, namespace, initializer string) *v1alpha1.NamespaceLifecycle {
	t.Helper()
	var record *v1alpha1.NamespaceLifecycle
	eventually(t, fmt.Sprintf("the turn of %q in %s", initializer, namespace), func(ctx context.Context) (err error) {
		record, err = c.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && record.Status.CurrentInitializer != initializer {
			err = fmt.Errorf("it is the turn of %q", record.Status.CurrentInitializer)
		}
		return err
	})
	return record
}

// removeFirst removes the first pending initializer, as an administrator.
func (c *cluster) removeFirst(t *testing.T, namespace string) {
	t.Helper()
	client := c.nsinit.NsinitV1alpha1().NamespaceLifecycles()
	eventually(t, "removing the first initializer", func(ctx context.Context) error {
		record, err := client.Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
		_, err = client.Initialize(ctx, namespace, record, metav1.UpdateOptions{})
		return err
	})
}

// waitReady waits until a namespace is open.
func (c *cluster) waitReady(t *testing.T, namespace string) {
	t.Helper()
	if out, err := c.kubectl("wait", "--for=condition=Ready", "namespace/"+namespace, "--timeout="+patience.String()); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}

// isClosed says whether a namespace's gate is closed.
func (c *cluster) isClosed(t *testing.T, namespace string) bool {
	t.Helper()
	n, err := c.core.CoreV1().Namespaces().Get(context.Background(), namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, closed := n.Labels[v1alpha1.LabelInitializing]
	return closed
}

// jsonOf returns an object in JSON.
func jsonOf(t *testing.T, object any) string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

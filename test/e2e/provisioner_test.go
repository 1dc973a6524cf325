//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/initializer/conformance"
)

const (
	logIndex         = "log-index.example.com"
	logStorePassword = "e2e-password"
)

// logStore is a log store: a PostgreSQL server behind a small HTTP front.
type logStore struct {
	c       *cluster
	t       *testing.T
	dir, ca string
	args    []string
	mu      sync.Mutex
	command *exec.Cmd
	url     string
	client  *http.Client
}

// startLogStore starts a log store, whose operations take a time.
func (c *cluster) startLogStore(t *testing.T, takes time.Duration) *logStore {
	t.Helper()
	// Another user than the one that runs the tests has to reach it, by a short path.
	dir, err := os.MkdirTemp("", "nsinit-ls")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as said
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(c.dir, "pki", "nsinit-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	s := &logStore{c: c, t: t, dir: dir, ca: string(ca), client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}}
	s.args = []string{"--data-dir=" + filepath.Join(dir, "pg"), "--password=" + logStorePassword, "--takes=" + takes.String(),
		"--tls-cert-file=" + filepath.Join(c.dir, "pki", "logstore.crt"), "--tls-private-key-file=" + filepath.Join(c.dir, "pki", "logstore.key")}
	address := s.start("127.0.0.1:0")
	_, port, _ := strings.Cut(address, ":")
	s.args, s.url = append(s.args, "--listen="+address), "https://localhost:"+port
	t.Cleanup(func() {
		s.kill()
		_ = os.RemoveAll(dir)
	})

	secrets := c.core.CoreV1().Secrets("nsinit-system")
	_ = secrets.Delete(t.Context(), "log-store", metav1.DeleteOptions{})
	s.writeCredentials(t)
	t.Cleanup(func() { _ = secrets.Delete(context.Background(), "log-store", metav1.DeleteOptions{}) })
	return s
}

// writeCredentials writes its credentials where http-provisioner expects them.
func (s *logStore) writeCredentials(t *testing.T) {
	t.Helper()
	if _, err := s.c.core.CoreV1().Secrets("nsinit-system").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "log-store"},
		StringData: map[string]string{"username": "elastic", "password": logStorePassword, "ca.crt": s.ca}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// start starts it, and returns where it listens once it does.
func (s *logStore) start(listen string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := s.args
	if listen != "" {
		args = append(slices.Clone(args), "--listen="+listen)
	}
	s.command = exec.Command(filepath.Join(s.c.root, "_output", "bin", "logstore"), args...)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Error(err)
		return ""
	}
	s.command.Stderr = log
	out, err := s.command.StdoutPipe()
	if err == nil {
		err = s.command.Start()
	}
	_ = log.Close()
	if err != nil {
		s.t.Error(err)
		return ""
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		said, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		s.t.Errorf("the log store does not start: %v\n%s", err, said)
	}
	return strings.TrimSpace(line)
}

// kill ends it at once, and its database with it.
func (s *logStore) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

// list returns a list of the log store: owners by name.
func (s *logStore) list(ctx context.Context, path, key string) (map[string]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	request.SetBasicAuth("elastic", logStorePassword)
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var rows []map[string]string
	if err := json.NewDecoder(response.Body).Decode(&rows); err != nil {
		return nil, fmt.Errorf("%s: %w", response.Status, err)
	}
	owners := map[string]string{}
	for _, row := range rows {
		owners[row[key]] = row["owner"]
	}
	return owners, nil
}

func (s *logStore) indices(ctx context.Context) (map[string]string, error) {
	return s.list(ctx, "/_cat/indices", "index")
}

// provision prepares a configuration of http-provisioner, which is the documented one unless it
// is changed, and the rights that it is delivered with. It returns what starts the program.
func (s *logStore) provision(t *testing.T, change func(string) string) func() *os.Process {
	t.Helper()
	manifests := filepath.Join(s.c.root, "vendor-hooks", "http-provisioner", "manifests")
	if out, err := s.c.kubectl("apply", "-f", filepath.Join(manifests, "rbac.yaml")); err != nil {
		t.Fatal(err, out)
	}
	data, err := os.ReadFile(filepath.Join(manifests, "log-index.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), "https://logs.example.com:9200", s.url, 1)
	if change != nil {
		text = change(text)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	configurations := s.c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	t.Cleanup(func() {
		if err := configurations.Delete(context.Background(), "20-log-index", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		s.c.waitInForce(t)
	})
	return func() *os.Process {
		return s.c.run(t, "http-provisioner", "--kubeconfig="+filepath.Join(s.c.dir, "http-provisioner.kubeconfig"), "--config="+file, "--v=2")
	}
}

// waitRegistered waits until http-provisioner has registered itself, and that is in force.
func (c *cluster) waitRegistered(t *testing.T) {
	t.Helper()
	eventually(t, "http-provisioner has registered itself", func(ctx context.Context) error {
		configuration, err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, "20-log-index", metav1.GetOptions{})
		if err == nil && configuration.DeletionTimestamp != nil {
			err = errors.New("the former configuration has not left yet")
		}
		return err
	})
	c.waitInForce(t)
}

// TestLogIndex is the second user story of the KEP: each namespace has an index in a log store
// before it opens, and none after it is gone.
func TestLogIndex(t *testing.T) {
	c := connect(t)
	s := c.startLogStore(t, 0)
	s.provision(t, nil)()
	c.waitRegistered(t)
	namespace := c.createNamespace(t, c.admin)
	c.waitReady(t, namespace.Name)
	index := "logs-" + string(namespace.UID)
	if indices, err := s.indices(t.Context()); err != nil || len(indices) != 1 || indices[index] != namespace.Name {
		t.Errorf("the log store has %v, %v", indices, err)
	}
	if published, err := c.core.CoreV1().ConfigMaps(namespace.Name).Get(t.Context(), "log-index", metav1.GetOptions{}); err != nil || published.Data["index"] != index {
		t.Errorf("published %+v, %v", published, err)
	}
	if out, err := c.kubectl("delete", "namespace", namespace.Name, "--timeout="+patience.String()); err != nil {
		t.Fatal(err, out)
	}
	if indices, err := s.indices(t.Context()); err != nil || len(indices) != 0 {
		t.Errorf("the namespace is gone, and the log store has %v, %v", indices, err)
	}
	// A new namespace of the same name has an index of its own.
	again, err := c.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.waitReady(t, again.Name)
	if indices, err := s.indices(t.Context()); err != nil || len(indices) != 1 || indices["logs-"+string(again.UID)] != again.Name {
		t.Errorf("the log store has %v, %v", indices, err)
	}
}

// TestProvisionerErrors: what is wrong outside is said inside, and nothing opens meanwhile.
func TestProvisionerErrors(t *testing.T) {
	c := connect(t)
	s := c.startLogStore(t, 0)
	s.provision(t, func(config string) string {
		return strings.Replace(config, "provision:\n  method: PUT\n", "provision:\n  method: PUT\n  failWhen: namespaceObject.metadata.labels[?\"e2e\"].orValue(\"\") == \"hopeless\"\n", 1)
	})()
	c.waitRegistered(t)
	secrets := c.core.CoreV1().Secrets("nsinit-system")
	set := func(password string) {
		t.Helper()
		if out, err := c.kubectl("--namespace=nsinit-system", "patch", "secret", "log-store", "--patch", fmt.Sprintf(`{"stringData":{"password":%q}}`, password)); err != nil {
			t.Fatal(err, out)
		}
	}
	set("wrong")
	namespace := c.createNamespace(t, c.admin).Name
	c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, "was answered with 401 Unauthorized: {\"error\":{\"reason\":\"missing or wrong credentials\"")
	hopeless, err := c.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: uniqueName("ns"), Labels: map[string]string{"e2e": "hopeless"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hopeless one is deleted", func(ctx context.Context) error {
		n, err := c.core.CoreV1().Namespaces().Get(ctx, hopeless.Name, metav1.GetOptions{})
		if err == nil && n.DeletionTimestamp == nil {
			err = fmt.Errorf("its conditions are %+v", n.Status.Conditions)
		}
		return err
	})
	s.kill()
	c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, "connection refused")
	if err := secrets.Delete(t.Context(), "log-store", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, "cannot read the Secret with the credentials")
	if !c.isClosed(t, namespace) {
		t.Error("the namespace is open")
	}
	s.start("")
	s.writeCredentials(t)
	c.waitReady(t, namespace)
	c.waitNoNamespace(t, hopeless.Name)
}

// streamConfig makes of the documented configuration one for operations that take their time and
// are not idempotent by themselves.
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

// TestProvisionerCrash: http-provisioner and the log store are killed at random while namespaces
// come and go. Nothing is provisioned twice, and nothing is left behind.
func TestProvisionerCrash(t *testing.T) {
	c := connect(t)
	s := c.startLogStore(t, 500*time.Millisecond)
	c.grant(t, "system:serviceaccount:nsinit-system:http-provisioner", kubernetes.NewForConfigOrDie(c.as("system:serviceaccount:nsinit-system:http-provisioner")),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "patch"}})
	start := s.provision(t, func(string) string { return streamConfig(s.url) })
	hook := start()
	c.waitRegistered(t)

	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		kills := 0
		for {
			select {
			case <-stop:
				stopped <- kills
				return
			case <-time.After(time.Duration(200+rand.IntN(800)) * time.Millisecond):
			}
			kills++
			if rand.IntN(3) == 0 {
				s.kill()
				s.start("")
				continue
			}
			_ = hook.Kill()
			hook = start()
		}
	}()
	var names, ids []string
	for range 30 {
		namespace := c.createNamespace(t, c.admin)
		names, ids = append(names, namespace.Name), append(ids, string(namespace.UID))
		time.Sleep(50 * time.Millisecond) // so that they are at different steps
	}
	for i, name := range names {
		c.waitReady(t, name)
		secret, err := c.core.CoreV1().Secrets(name).Get(t.Context(), "stream", metav1.GetOptions{})
		if err != nil || !strings.HasPrefix(string(secret.Data["token"]), "token-of-") {
			t.Errorf("namespace %s has no token: %v", ids[i], err)
		}
	}
	for _, name := range names {
		if err := c.core.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if name == names[0] {
			close(stop)
			t.Logf("killed %d times while namespaces were initialized", <-stopped)
			// Every namespace but the first, which may be gone already.
			streams, err := s.list(t.Context(), "/_streams", "id")
			if err != nil {
				t.Fatal(err)
			}
			count := map[string]int{}
			for _, owner := range streams {
				count[owner]++
			}
			for _, id := range ids[1:] {
				if count[id] != 1 {
					t.Errorf("namespace %s has %d streams", id, count[id])
				}
			}
			go func() {
				for kills := range 10 {
					time.Sleep(time.Duration(200+rand.IntN(400)) * time.Millisecond)
					if kills%3 == 0 {
						s.kill()
						s.start("")
						continue
					}
					_ = hook.Kill()
					hook = start()
				}
				stopped <- 10
			}()
		}
	}
	for _, name := range names {
		c.waitNoNamespace(t, name)
	}
	<-stopped
	eventually(t, "nothing is left behind", func(ctx context.Context) error {
		streams, err := s.list(ctx, "/_streams", "id")
		if err == nil && len(streams) > 0 {
			err = fmt.Errorf("the log store has %v", streams)
		}
		return err
	})
}

// TestProvisionerConformance runs the suite for authors of initializers on http-provisioner.
func TestProvisionerConformance(t *testing.T) {
	c := connect(t)
	s := c.startLogStore(t, 0)
	start := s.provision(t, nil)
	first := start()
	c.waitRegistered(t)
	_ = first.Kill()
	conformance.Run(t, conformance.Suite{
		Config: c.admin,
		Name:   logIndex,
		Start: func(*testing.T) func() {
			process := start()
			return func() { _ = process.Kill() }
		},
		Check: func(ctx context.Context, namespace *corev1.Namespace) error {
			indices, err := s.indices(ctx)
			if err == nil && indices["logs-"+string(namespace.UID)] != namespace.Name {
				err = fmt.Errorf("the log store has %v", indices)
			}
			return err
		},
		Left: func(ctx context.Context, namespace *corev1.Namespace) error {
			indices, err := s.indices(ctx)
			if _, left := indices["logs-"+string(namespace.UID)]; err == nil && left {
				err = errors.New("the index is still there")
			}
			return err
		},
	})
}

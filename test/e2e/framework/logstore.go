/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	logStorePassword = "e2e-password"
	// logIndexConfiguration is the configuration with which http-provisioner registers itself.
	logIndexConfiguration = "20-log-index"
)

// LogStore is a log store: a PostgreSQL server behind the HTTP API of test/logstore.
type LogStore struct {
	URL string

	c       *Cluster
	t       *testing.T
	dir, ca string
	args    []string
	client  *http.Client

	mu      sync.Mutex
	command *exec.Cmd
}

// StartLogStore runs a log store until the test ends. Each of its operations takes some time.
func (c *Cluster) StartLogStore(t *testing.T, takes time.Duration) *LogStore {
	t.Helper()
	// PostgreSQL runs as another user than the tests, and needs a short path.
	dir, err := os.MkdirTemp("", "nsinit-ls")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // for another user
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(c.Dir, "pki", "nsinit-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	s := &LogStore{c: c, t: t, dir: dir, ca: string(ca), client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}}
	s.args = []string{"--data-dir=" + filepath.Join(dir, "pg"), "--password=" + logStorePassword, "--takes=" + takes.String(),
		"--tls-cert-file=" + filepath.Join(c.Dir, "pki", "logstore.crt"), "--tls-private-key-file=" + filepath.Join(c.Dir, "pki", "logstore.key")}
	address := s.Start("127.0.0.1:" + FreePort(t))
	_, port, _ := strings.Cut(address, ":")
	s.args, s.URL = append(s.args, "--listen="+address), "https://localhost:"+port
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})

	secrets := c.Core.CoreV1().Secrets("nsinit-system")
	_ = secrets.Delete(t.Context(), "log-store", metav1.DeleteOptions{})
	s.WriteCredentials(t)
	t.Cleanup(func() { _ = secrets.Delete(context.Background(), "log-store", metav1.DeleteOptions{}) })
	return s
}

// WriteCredentials creates the Secret with the credentials of the log store, which http-provisioner reads.
func (s *LogStore) WriteCredentials(t *testing.T) {
	t.Helper()
	if _, err := s.c.Core.CoreV1().Secrets("nsinit-system").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "log-store"},
		StringData: map[string]string{"username": "elastic", "password": logStorePassword, "ca.crt": s.ca}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Start starts the log store, and returns its address. An empty address to listen on is that of before.
func (s *LogStore) Start(listen string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := s.args
	if listen != "" {
		args = append(slices.Clone(args), "--listen="+listen)
	}
	s.command = exec.Command(filepath.Join(BinDir(), "logstore"), args...)
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

// Kill kills the log store and its database.
func (s *LogStore) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

// List requests a list from the log store. It returns the owner of each entry by the value of a key.
func (s *LogStore) List(ctx context.Context, path, key string) (map[string]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
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

// Indices returns the owner of each index.
func (s *LogStore) Indices(ctx context.Context) (map[string]string, error) {
	return s.List(ctx, "/_cat/indices", "index")
}

// Provision prepares http-provisioner for the log store, with the configuration and the rights in its folder manifests. change
// may change the configuration. Provision returns a function that starts the program.
func (s *LogStore) Provision(t *testing.T, change func(string) string) func() *os.Process {
	t.Helper()
	manifests := filepath.Join(s.c.Root, "vendor-hooks", "http-provisioner", "manifests")
	if out, err := s.c.Kubectl("apply", "-f", filepath.Join(manifests, "rbac.yaml")); err != nil {
		t.Fatal(err, out)
	}
	data, err := os.ReadFile(filepath.Join(manifests, "log-index.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), "https://logs.example.com:9200", s.URL, 1)
	if change != nil {
		text = change(text)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	configurations := s.c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	t.Cleanup(func() {
		if err := configurations.Delete(context.Background(), logIndexConfiguration, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return func() *os.Process {
		return s.c.Run(t, "http-provisioner", "--kubeconfig="+filepath.Join(s.c.Dir, "http-provisioner.kubeconfig"), "--config="+file, "--v=2")
	}
}

// WaitRegistered waits until http-provisioner has registered itself, and new namespaces get its initializer.
func (c *Cluster) WaitRegistered(t *testing.T) {
	t.Helper()
	Eventually(t, "http-provisioner has registered itself", func(ctx context.Context) error {
		configuration, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, logIndexConfiguration, metav1.GetOptions{})
		if err == nil && configuration.DeletionTimestamp != nil {
			err = errors.New("the former configuration is being deleted")
		}
		return err
	})
}

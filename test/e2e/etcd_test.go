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
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

// TestEtcdCluster runs a second nsinit-apiserver on an etcd of its own kind: over TLS, with
// client certificates. It is reached directly, not through the aggregator, and has nothing
// in common with the first but the cluster that it asks about users.
func TestEtcdCluster(t *testing.T) {
	c := connect(t)
	pki := func(name string) string { return filepath.Join(c.dir, "pki", name) }
	var ports map[string]int
	data, err := os.ReadFile(filepath.Join(c.dir, "ports.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &ports); err != nil {
		t.Fatal(err)
	}
	etcd := fmt.Sprintf("https://127.0.0.1:%d", ports["etcd"])
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}

	var log bytes.Buffer
	server := exec.CommandContext(t.Context(), filepath.Join(c.root, "_output", "bin", "nsinit-apiserver"),
		"--bind-address=127.0.0.1", "--secure-port="+port, "--kubeconfig="+filepath.Join(c.dir, "nsinit-apiserver.kubeconfig"),
		"--tls-cert-file="+pki("nsinit-apiserver.crt"), "--tls-private-key-file="+pki("nsinit-apiserver.key"),
		"--etcd-servers="+etcd, "--etcd-cafile="+pki("etcd-ca.crt"), "--etcd-certfile="+pki("etcd.crt"), "--etcd-keyfile="+pki("etcd.key"),
		"--etcd-prefix=/second")
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	}()

	config := rest.CopyConfig(c.admin)
	config.Host, config.CAData, config.CAFile = "https://"+address, nil, pki("nsinit-ca.crt")
	name := uniqueName("second")
	eventually(t, "the second server takes a configuration", func(ctx context.Context) error {
		// A server asks for client certificates once it has read which authority signs
		// them. A connection from before stays anonymous, so each try makes its own.
		config.Dial = (&net.Dialer{}).DialContext
		client := versioned.NewForConfigOrDie(config)
		if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		_, err := client.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: named("a.example.com"),
		}, metav1.CreateOptions{})
		return err
	})

	tls, err := transport.TLSInfo{TrustedCAFile: pki("etcd-ca.crt"), CertFile: pki("etcd.crt"), KeyFile: pki("etcd.key")}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd}, TLS: tls})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	stored, err := store.Get(context.Background(), "/second/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Kvs) != 1 || !bytes.HasPrefix(stored.Kvs[0].Value, []byte("k8s\x00")) || !bytes.HasSuffix(stored.Kvs[0].Key, []byte(name)) {
		t.Errorf("etcd holds %v", stored.Kvs)
	}
	if list, err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(context.Background(), metav1.ListOptions{FieldSelector: "metadata.name=" + name}); err != nil || len(list.Items) != 0 {
		t.Errorf("the first server knows of it: %v %v", list, err)
	}
}

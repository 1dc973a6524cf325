//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

// TestEtcdCluster runs a second nsinit-apiserver on an etcd of its own kind: over TLS, with
// client certificates. It is reached directly, not through the aggregator, and has nothing
// in common with the first but the cluster that it asks about users.
func TestEtcdCluster(t *testing.T) {
	c := connect(t)
	pki := func(name string) string { return filepath.Join(c.dir, "pki", name) }
	etcd := fmt.Sprintf("https://127.0.0.1:%d", c.ports(t)["etcd"])
	port := freePort(t)
	c.grantStorageIdentity(t, "nsinit-storage-second")

	var log bytes.Buffer
	server := exec.CommandContext(t.Context(), filepath.Join(c.root, "_output", "bin", "nsinit-apiserver"),
		"--bind-address=127.0.0.1", "--secure-port="+port, "--kubeconfig="+filepath.Join(c.dir, "nsinit-apiserver.kubeconfig"),
		"--tls-cert-file="+pki("nsinit-apiserver.crt"), "--tls-private-key-file="+pki("nsinit-apiserver.key"),
		"--etcd-servers="+etcd, "--etcd-cafile="+pki("etcd-ca.crt"), "--etcd-certfile="+pki("etcd.crt"), "--etcd-keyfile="+pki("etcd.key"),
		"--etcd-prefix=/second", "--storage-identity-configmap=nsinit-system/nsinit-storage-second")
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

	config := c.direct(t)
	config.Host = "https://127.0.0.1:" + port
	name := uniqueName("second")
	eventually(t, "the second server takes a configuration", func(ctx context.Context) error {
		client := versioned.NewForConfigOrDie(config)
		if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		_, err := client.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: named("a.example.com"),
		}, metav1.CreateOptions{})
		return err
	})

	store := c.etcdClient(t, etcd)
	defer func() { _ = store.Close() }()
	stored, err := store.Get(context.Background(), "/second/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range stored.Kvs {
		if !bytes.HasPrefix(kv.Value, []byte("k8s\x00")) {
			t.Errorf("%s is not stored as protobuf", kv.Key)
		}
		keys = append(keys, string(kv.Key))
	}
	want := []string{"/second/nsinit.dev/namespaceinitializerconfigurations/" + name, "/second/storage-identity"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("etcd holds (-want +got):\n%s", diff)
	}
	if list, err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(context.Background(), metav1.ListOptions{FieldSelector: "metadata.name=" + name}); err != nil || len(list.Items) != 0 {
		t.Errorf("the first server knows of it: %v %v", list, err)
	}
}

// grantStorageIdentity lets nsinit-apiserver name its storage in another ConfigMap than that
// of the installation, until the test ends.
func (c *cluster) grantStorageIdentity(t *testing.T, configMap string) {
	t.Helper()
	ctx := context.Background()
	meta := metav1.ObjectMeta{Namespace: "nsinit-system", Name: uniqueName("e2e")}
	if _, err := c.core.RbacV1().Roles(meta.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{configMap}, Verbs: []string{"get"},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.core.RbacV1().RoleBindings(meta.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "nsinit-system", Name: "nsinit-apiserver"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.core.RbacV1().RoleBindings(meta.Namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = c.core.RbacV1().Roles(meta.Namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = c.core.CoreV1().ConfigMaps(meta.Namespace).Delete(ctx, configMap, metav1.DeleteOptions{})
	})
}

// etcdClient returns a client of an etcd that trusts the certificates of the control plane.
func (c *cluster) etcdClient(t *testing.T, url string) *clientv3.Client {
	t.Helper()
	pki := func(name string) string { return filepath.Join(c.dir, "pki", name) }
	tls, err := transport.TLSInfo{TrustedCAFile: pki("etcd-ca.crt"), CertFile: pki("etcd.crt"), KeyFile: pki("etcd.key")}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: tls, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// freePort returns a port of the loopback interface that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

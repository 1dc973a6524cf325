/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GrantStorageIdentity lets nsinit-apiserver store the identity of its storage in another ConfigMap until the test ends.
func (c *Cluster) GrantStorageIdentity(t *testing.T, configMap string) {
	t.Helper()
	ctx := context.Background()
	meta := metav1.ObjectMeta{Namespace: "nsinit-system", Name: UniqueName("e2e")}
	if _, err := c.Core.RbacV1().Roles(meta.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{configMap}, Verbs: []string{"get"},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Core.RbacV1().RoleBindings(meta.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "nsinit-system", Name: "nsinit-apiserver"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Core.RbacV1().RoleBindings(meta.Namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = c.Core.RbacV1().Roles(meta.Namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = c.Core.CoreV1().ConfigMaps(meta.Namespace).Delete(ctx, configMap, metav1.DeleteOptions{})
	})
}

// EtcdClient returns a client of an etcd that trusts the certificates of the control plane. The test closes it.
func (c *Cluster) EtcdClient(t *testing.T, url string) *clientv3.Client {
	t.Helper()
	pki := func(name string) string { return filepath.Join(c.Dir, "pki", name) }
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

// StartEtcd runs an etcd until the test ends. It returns the URL for clients, and the process.
func (c *Cluster) StartEtcd(t *testing.T, more ...string) (string, *os.Process) {
	t.Helper()
	client, peer := "http://127.0.0.1:"+FreePort(t), "http://127.0.0.1:"+FreePort(t)
	return client, c.Run(t, "etcd", append(more, "--name=e2e", "--data-dir="+t.TempDir(), "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=e2e="+peer, "--log-level=warn")...)
}

// OnEtcd returns the arguments for nsinit-apiserver on another etcd, with another storage identity. See ReplaceServer.
func (c *Cluster) OnEtcd(t *testing.T, etcd string) []string {
	t.Helper()
	args := c.Arguments(t, "nsinit-apiserver")
	for i, arg := range args {
		if strings.HasPrefix(arg, "--embedded-etcd-dir=") {
			args[i] = "--etcd-servers=" + etcd
		}
	}
	return append(args, "--storage-identity-configmap=nsinit-system/nsinit-storage-e2e")
}

// ReplaceServer stops nsinit-apiserver of the control plane until the test ends. The test runs another one in its place.
func (c *Cluster) ReplaceServer(t *testing.T) {
	t.Helper()
	c.GrantStorageIdentity(t, "nsinit-storage-e2e")
	c.Dev(t, "stop", "nsinit-apiserver")
	t.Cleanup(func() {
		c.Dev(t, "start", "nsinit-apiserver")
		c.WaitServing(t)
		c.Dev(t, "stop", "nsinit-controller-manager") // its caches are of the other storage
		c.Dev(t, "start", "nsinit-controller-manager")
	})
}

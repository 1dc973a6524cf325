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
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestEtcdCluster runs a second nsinit-apiserver on a different kind of etcd: over TLS, with client
// certificates. The test connects to it directly, not through the aggregator. Both servers share only the cluster
// that authenticates users.
func TestEtcdCluster(t *testing.T) {
	c := framework.Connect(t)
	pki := func(name string) string { return filepath.Join(c.Dir, "pki", name) }
	etcd := fmt.Sprintf("https://127.0.0.1:%d", c.Ports(t)["etcd"])
	port := framework.FreePort(t)
	c.GrantStorageIdentity(t, "nsinit-storage-second")

	var log bytes.Buffer
	server := exec.CommandContext(t.Context(), filepath.Join(framework.BinDir(), "nsinit-apiserver"),
		"--bind-address=127.0.0.1", "--secure-port="+port, "--kubeconfig="+filepath.Join(c.Dir, "nsinit-apiserver.kubeconfig"),
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

	config := c.Direct(t)
	config.Host = "https://127.0.0.1:" + port
	name := framework.UniqueName("second")
	framework.Eventually(t, "the second server takes a configuration", func(ctx context.Context) error {
		client := versioned.NewForConfigOrDie(config)
		if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		_, err := client.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: framework.Initializers("a.example.com"),
		}, metav1.CreateOptions{})
		return err
	})

	store := c.EtcdClient(t, etcd)
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
	if list, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(context.Background(), metav1.ListOptions{FieldSelector: "metadata.name=" + name}); err != nil || len(list.Items) != 0 {
		t.Errorf("the first server knows of it: %v %v", list, err)
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"context"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/pkg/embeddedetcd"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const identityKey = "/registry/nsinit.dev/storage-identity"

// TestChangedIdentity: the first request for a record after the identity has changed, in the storage
// or in the ConfigMap, is refused. Within seconds no kind can be listed or watched, and watches that
// ran have ended. When the change is undone, records are served again.
func TestChangedIdentity(t *testing.T) {
	t.Parallel()
	put := func(t *testing.T, server *testserver.Server, value string) {
		t.Helper()
		if _, err := etcdClient(t, server.EtcdEndpoint).Put(t.Context(), identityKey, value); err != nil {
			t.Fatal(err)
		}
	}
	setConfigMap := func(core *testserver.CoreAPI, id string) {
		configMap := core.ConfigMap("nsinit-storage")
		configMap.Data["id"] = id
		core.SetConfigMap(configMap)
	}
	for name, test := range map[string]struct {
		change func(t *testing.T, server *testserver.Server, stored, id string)
		ends   bool // when the change is undone
		says   string
	}{
		"in the storage": {func(t *testing.T, server *testserver.Server, stored, id string) {
			put(t, server, strings.ReplaceAll(stored, id, strings.Repeat("x", len(id))))
		}, true, "storage is another one"},
		"in the storage, to garbage": {func(t *testing.T, server *testserver.Server, _, _ string) {
			put(t, server, "garbage")
		}, true, "storage is damaged"},
		"in the ConfigMap": {func(_ *testing.T, server *testserver.Server, _, _ string) {
			setConfigMap(server.Core, "another")
		}, false, `but "another" is in use`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, dir := testserver.NewCoreAPI(t), testserver.Dir(t)
			server := testserver.StartWith(t, dir, core, func(*options.Options) {})
			server.WaitReady(t)
			server.MustLifecycle(t, "former")
			read, err := etcdClient(t, server.EtcdEndpoint).Get(t.Context(), identityKey)
			if err != nil {
				t.Fatal(err)
			}
			stored, id := string(read.Kvs[0].Value), core.ConfigMap("nsinit-storage").Data["id"]
			client := server.Client(t, "admin").NsinitV1alpha1()
			watch, err := client.NamespaceLifecycles().Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			core.SetNamespace(testserver.Namespace("ns", "u", true))

			test.change(t, server, stored, id)
			err = client.RESTClient().Post().Resource("namespacelifecycles").MaxRetries(0).SetHeader("Content-Type", "application/json").
				Body(testserver.MustJSON(testserver.Lifecycle("ns", "u"))).Do(t.Context()).Error()
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the first record after the change: %v", err)
			}
			for range watch.ResultChan() { // ends
			}
			for verb, err := range refusals(client.RESTClient(), "former") {
				if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%s of a record: %v", verb, err)
				}
			}
			for _, resource := range []string{"namespaceinitializerconfigurations", "namespacepopulations", "populatednamespaces"} {
				for _, watch := range []string{"false", "true"} {
					err := client.RESTClient().Get().Resource(resource).Param("watch", watch).Param("timeoutSeconds", "1").MaxRetries(0).Do(t.Context()).Error()
					if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), test.says) {
						t.Errorf("%s, watch=%s: %v", resource, watch, err)
					}
				}
			}
			if _, err := client.NamespaceInitializerConfigurations().Create(t.Context(), testserver.Configuration("c", "a.example.com"), metav1.CreateOptions{}); err != nil {
				t.Errorf("a configuration: %v", err)
			}

			setConfigMap(core, id)
			if test.ends {
				put(t, server, stored)
				if err := server.WaitExit(t); err == nil || !strings.Contains(err.Error(), "was replaced") {
					t.Errorf("the server stopped: %v", err)
				}
				server = testserver.StartWith(t, dir, core, func(*options.Options) {})
			}
			server.WaitReady(t)
			list, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("afterwards: %v %v", list, err)
			}
		})
	}
}

// TestReplacedEtcd: the etcd of a running server is replaced by another one with other data, and
// back. Neither what the other one stores nor a mixture of both is served, and after the return the
// server ends, and its successor serves what was stored at first.
func TestReplacedEtcd(t *testing.T) {
	t.Parallel()
	core, dir := testserver.NewCoreAPI(t), testserver.Dir(t)
	const ours, theirs = "/ours", "/theirs"
	var etcd *embeddedetcd.Server
	begin := func(which string) {
		t.Helper()
		if err := os.Rename(dir+which, dir+"/etcd"); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		var err error
		if etcd, err = embeddedetcd.Start(context.Background(), dir+"/etcd", 0); err != nil {
			t.Fatal(err)
		}
	}
	end := func(which string) {
		t.Helper()
		etcd.Stop()
		if err := os.Rename(dir+"/etcd", dir+which); err != nil {
			t.Fatal(err)
		}
	}
	endpoint, err := embeddedetcd.Endpoint(dir + "/etcd")
	if err != nil {
		t.Fatal(err)
	}
	start := func(core *testserver.CoreAPI) *testserver.Server {
		server := testserver.StartWith(t, testserver.Dir(t), core, func(o *options.Options) {
			o.EmbeddedEtcdDir, o.Recommended.Etcd.StorageConfig.Transport.ServerList = "", []string{endpoint}
		})
		return server
	}
	// The other etcd has another identity, a configuration, and a higher revision.
	begin(theirs)
	other := start(testserver.NewCoreAPI(t))
	other.WaitReady(t)
	foreign := other.MustConfigure(t, testserver.Configuration("foreign", "foreign.example.com"))
	for range 20 {
		foreign.Labels = map[string]string{"n": uniqueName()}
		if foreign, err = other.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().Update(t.Context(), foreign, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	other.Stop(t)
	end(theirs)

	begin(ours)
	server := start(core)
	server.WaitReady(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	server.MustLifecycle(t, "former")
	core.SetNamespace(testserver.Namespace("ns", "u", true))
	end(ours)
	begin(theirs)
	client := server.Client(t, "admin").NsinitV1alpha1().RESTClient()
	eventually(t, "records are refused, and cannot be listed", func(context.Context) bool {
		all := true
		for verb, err := range refusals(client, "ns") {
			if err == nil && (verb == "create" || verb == "list") {
				t.Fatalf("%s succeeds", verb)
			}
			all = all && apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "storage is another one")
		}
		return all
	})
	end(theirs)
	begin(ours)
	t.Cleanup(func() { etcd.Stop() })
	if err := server.WaitExit(t); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("the server stopped: %v", err)
	}
	server = start(core)
	server.WaitReady(t)
	if got := currentOf(server.MustLifecycle(t, "ns")); got != "a.example.com" {
		t.Errorf("it is the turn of %q", got)
	}
	var records *v1alpha1.NamespaceLifecycleList
	if records, err = server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().List(t.Context(), metav1.ListOptions{}); err != nil || len(records.Items) != 2 {
		t.Errorf("records: %v %v", records, err)
	}
	server.Stop(t) // before its etcd
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// refusals makes each kind of request for a record, without the client's retries.
func refusals(client rest.Interface, name string) map[string]error {
	request := func(r *rest.Request) error {
		return r.Resource("namespacelifecycles").MaxRetries(0).Do(context.Background()).Error()
	}
	body := testserver.MustJSON(testserver.Lifecycle(name, "u"))
	return map[string]error{
		"get":        request(client.Get().Name(name)),
		"create":     request(client.Post().SetHeader("Content-Type", "application/json").Body(body)),
		"update":     request(client.Put().Name(name).SetHeader("Content-Type", "application/json").Body(body)),
		"patch":      request(client.Patch("application/merge-patch+json").Name(name).Body([]byte(`{}`))),
		"delete":     request(client.Delete().Name(name)),
		"initialize": request(client.Patch("application/merge-patch+json").Name(name).SubResource("initialize").Body([]byte(`{}`))),
		"finalize":   request(client.Post().Name(name).SubResource("finalize").SetHeader("Content-Type", "application/json").Body(body)),
		"status":     request(client.Get().Name(name).SubResource("status")),
		"list":       request(client.Get()),
		"watch":      request(client.Get().Param("watch", "true").Param("timeoutSeconds", "1")),
	}
}

// emptyEtcd removes everything that a server stored, while it runs.
func emptyEtcd(t *testing.T, server *testserver.Server) {
	t.Helper()
	if _, err := etcdClient(t, server.EtcdEndpoint).Delete(context.Background(), "/registry/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
}

// TestLostStorage: while the storage is empty that was in use, no request for a record is
// answered by what is in it, whether it was lost while the server was down or while it ran.
// Configurations can be created again. After the acknowledgement records are served.
func TestLostStorage(t *testing.T) {
	t.Parallel()
	const configMap = "nsinit-storage"
	for name, test := range map[string]struct {
		lose func(*testing.T, string, *testserver.CoreAPI) *testserver.Server
		// ends says that the server ends after the acknowledgement.
		ends bool
	}{
		"while the server was down": {lose: func(t *testing.T, _ string, core *testserver.CoreAPI) *testserver.Server {
			server := testserver.StartWith(t, testserver.Dir(t), core, func(*options.Options) {})
			server.WaitReady(t)
			server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
			server.MustLifecycle(t, "ns")
			server.Stop(t)
			return testserver.StartWith(t, testserver.Dir(t), core, func(*options.Options) {})
		}},
		"while the server ran": {ends: true, lose: func(t *testing.T, dir string, core *testserver.CoreAPI) *testserver.Server {
			server := testserver.StartWith(t, dir, core, func(*options.Options) {})
			server.WaitReady(t)
			server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
			server.MustLifecycle(t, "ns")
			emptyEtcd(t, server)
			// The first answer after the loss must not be that the record does not exist.
			err := server.Client(t, "admin").NsinitV1alpha1().RESTClient().Get().Resource("namespacelifecycles").Name("ns").MaxRetries(0).Do(t.Context()).Error()
			if !apierrors.IsServiceUnavailable(err) {
				t.Errorf("a record that was lost: %v", err)
			}
			return server
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, dir := testserver.NewCoreAPI(t), testserver.Dir(t)
			server := test.lose(t, dir, core)
			client := server.Client(t, "admin").NsinitV1alpha1()
			rest := client.RESTClient()
			eventually(t, "readyz says why", func(ctx context.Context) bool {
				said, err := rest.Get().AbsPath("/readyz/storage-identity").DoRaw(ctx)
				return err != nil && strings.Contains(string(said), "storage was lost") && strings.Contains(string(said), "delete configmap "+configMap)
			})
			core.SetNamespace(testserver.Namespace("ns", "u", true))
			for verb, err := range refusals(rest, "ns") {
				status, _ := err.(apierrors.APIStatus)
				if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "storage was lost") || status.Status().Details.RetryAfterSeconds == 0 {
					t.Errorf("%s of a record: %v", verb, err)
				}
			}
			server.MustConfigure(t, testserver.Configuration("again", "b.example.com"))
			core.DeleteConfigMap(configMap)
			if test.ends {
				if err := server.WaitExit(t); err == nil || !strings.Contains(err.Error(), "was replaced") {
					t.Errorf("the server stopped: %v", err)
				}
				server = testserver.StartWith(t, dir, core, func(*options.Options) {})
				server.WaitReady(t)
				server.MustConfigure(t, testserver.Configuration("third", "c.example.com")) // waits for what is in force
			}
			server.WaitReady(t)
			record := server.MustLifecycle(t, "ns")
			if currentOf(record) != "b.example.com" {
				t.Errorf("after the acknowledgement: it is the turn of %q", currentOf(record))
			}
			if core.ConfigMap(configMap) == nil {
				t.Error("the new storage is not named anywhere")
			}
		})
	}
}

// TestOtherStorage: a storage that is not the one in use is refused, too, and a deleted ConfigMap is
// created again.
func TestOtherStorage(t *testing.T) {
	t.Parallel()
	core, dir := testserver.NewCoreAPI(t), testserver.Dir(t)
	server := testserver.StartWith(t, dir, core, func(*options.Options) {})
	server.WaitReady(t)
	published := core.ConfigMap("nsinit-storage")
	server.Stop(t)

	core.DeleteConfigMap("nsinit-storage")
	server = testserver.StartWith(t, dir, core, func(*options.Options) {})
	server.WaitReady(t)
	if again := core.ConfigMap("nsinit-storage"); again.Data["id"] != published.Data["id"] {
		t.Errorf("the ConfigMap was created again with %v, it was %v", again.Data, published.Data)
	}
	server.Stop(t)

	published.Data["id"] = "another"
	core.SetConfigMap(published)
	server = testserver.StartWith(t, dir, core, func(*options.Options) {})
	client := server.Client(t, "admin").NsinitV1alpha1().RESTClient()
	eventually(t, "readyz says why", func(ctx context.Context) bool {
		said, err := client.Get().AbsPath("/readyz/storage-identity").DoRaw(ctx)
		return err != nil && strings.Contains(string(said), `"another" is in use`)
	})
	for verb, err := range refusals(client, "ns") {
		if !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s of a record: %v", verb, err)
		}
	}
}

// TestConfigurationsInForce: a record takes the configurations as they are when its creation begins. A
// deletion applies as soon as a creation or a change.
func TestConfigurationsInForce(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	stored := server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	if got := currentOf(server.MustLifecycle(t, uniqueName())); got != "a.example.com" {
		t.Errorf("it is the turn of %q", got)
	}
	stored.Initializers = []v1alpha1.RegisteredInitializer{{Name: "b.example.com"}}
	if _, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := currentOf(server.MustLifecycle(t, uniqueName())); got != "b.example.com" {
		t.Errorf("after a change, it is the turn of %q", got)
	}
	if err := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().Delete(t.Context(), stored.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if plan := server.MustLifecycle(t, uniqueName()).Spec.Plan; len(plan) > 0 {
		t.Errorf("after the deletion, the plan is %+v", plan)
	}
}

// TestTwoReplicas: a change that one replica took is in force in the other, and both serve the
// same storage, which is named once.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	core := testserver.NewCoreAPI(t)
	first := testserver.StartWith(t, testserver.Dir(t), core, func(*options.Options) {})
	second := testserver.StartWith(t, testserver.Dir(t), core, func(o *options.Options) {
		o.EmbeddedEtcdDir, o.Recommended.Etcd.StorageConfig.Transport.ServerList = "", []string{first.EtcdEndpoint}
	})
	first.WaitReady(t)
	second.WaitReady(t)
	first.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	for i, server := range []*testserver.Server{second, first} {
		name := uniqueName()
		if got := currentOf(server.MustLifecycle(t, name)); got != "a.example.com" {
			t.Errorf("it is the turn of %q", got)
		}
		other := []*testserver.Server{first, second}[i]
		if _, err := other.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("the other replica: %v", err)
		}
	}
	second.Stop(t) // before the etcd in the first
}

func eventually(t *testing.T, what string, holds func(ctx context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) { return holds(ctx), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

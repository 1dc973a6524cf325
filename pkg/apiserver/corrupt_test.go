/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
)

// unsafely is the option that deletes an object that cannot be decoded.
const unsafely = "ignoreStoreReadErrorWithClusterBreakingPotential"

func storedKey(resource, name string) string {
	return "/registry/nsinit.dev/nsinit.dev/" + resource + "/" + name
}

func list(client rest.Interface, resource string) error {
	return client.Get().Resource(resource).MaxRetries(0).Do(context.Background()).Error()
}

// causes returns the keys that the causes of an error name.
func causes(err error) (keys []string) {
	if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			keys = append(keys, cause.Field)
		}
	}
	return keys
}

// TestCorruptObject: an object of any kind that cannot be decoded is named by a LIST, can be deleted
// with the verb unsafe-delete-ignore-read-errors, and everything that watches goes on afterwards.
func TestCorruptObject(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	etcd := etcdClient(t, server.EtcdEndpoint)
	server.Core.Allow("deleter", testserver.Rule{Verb: "delete", Group: "*", Resource: "*", Name: "*"})
	admin := server.Client(t, "admin").NsinitV1alpha1()
	factory := externalversions.NewSharedInformerFactory(server.Client(t, "admin"), 0)
	informers := factory.Nsinit().V1alpha1()
	var together sync.WaitGroup // a watch cache waits half a minute until it gives up its watch of etcd and lists
	for resource, kind := range map[string]struct {
		informer cache.SharedIndexInformer
		create   func(name string) error
	}{
		"namespacelifecycles": {informers.NamespaceLifecycles().Informer(), func(name string) error {
			server.MustLifecycle(t, name)
			return nil
		}},
		"namespaceinitializerconfigurations": {informers.NamespaceInitializerConfigurations().Informer(), func(name string) error {
			_, err := admin.NamespaceInitializerConfigurations().Create(t.Context(), testserver.Configuration(name, name+".example.com"), metav1.CreateOptions{})
			return err
		}},
		"namespacepopulations": {informers.NamespacePopulations().Informer(), func(name string) error {
			_, err := admin.NamespacePopulations().Create(t.Context(), populationOf(name, manifestOf("a", configMapTemplate)), metav1.CreateOptions{})
			return err
		}},
		"populatednamespaces": {informers.PopulatedNamespaces().Informer(), func(name string) error {
			_, err := admin.PopulatedNamespaces().Create(t.Context(), &v1alpha1.PopulatedNamespace{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"},
			}, metav1.CreateOptions{})
			return err
		}},
	} {
		together.Go(func() {
			t.Run(resource, func(t *testing.T) {
				client := admin.RESTClient()
				remove := func(user, name, unsafe, dryRun string) error {
					request := server.Client(t, user).NsinitV1alpha1().RESTClient().Delete().Resource(resource).Name(name).Param(unsafely, unsafe)
					if dryRun != "" {
						request = request.Param("dryRun", dryRun)
					}
					return request.Do(t.Context()).Error()
				}
				broken, sound, later := uniqueName(), uniqueName(), uniqueName()
				for _, name := range []string{broken, sound} {
					if err := kind.create(name); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go kind.informer.RunWithContext(ctx)
				eventually(t, "the informer knows both", func(context.Context) bool { return len(kind.informer.GetStore().ListKeys()) >= 2 })

				if _, err := etcd.Put(t.Context(), storedKey(resource, broken), "garbage"); err != nil {
					t.Fatal(err)
				}
				eventually(t, "LIST names the object", func(context.Context) bool { // the watch cache may still answer with the former one
					err := list(client, resource)
					return apierrors.IsStoreReadError(err) && strings.Contains(err.Error(), storedKey(resource, broken)) &&
						slices.Equal(causes(err), []string{storedKey(resource, broken)})
				})
				if err := remove("admin", broken, "false", ""); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), broken) {
					t.Errorf("DELETE: %v", err)
				}
				if err := remove("deleter", broken, "true", ""); !apierrors.IsForbidden(err) {
					t.Errorf("DELETE without the verb: %v", err)
				}
				if err := remove("admin", sound, "true", ""); err == nil {
					t.Error("DELETE of an object that can be decoded succeeds, past its finalizers")
				}
				if err := remove("admin", broken, "true", metav1.DryRunAll); err != nil {
					t.Errorf("DELETE with dryRun: %v", err)
				}
				if stored, err := etcd.Get(t.Context(), storedKey(resource, broken)); err != nil || stored.Count != 1 {
					t.Errorf("a dry run deleted the object: %v", err)
				}
				if err := remove("admin", broken, "true", ""); err != nil {
					t.Fatalf("DELETE: %v", err)
				}
				eventually(t, "LIST", func(context.Context) bool { return list(client, resource) == nil })
				if err := kind.create(later); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the informer is up to date", func(context.Context) bool {
					store := kind.informer.GetStore()
					_, gone, _ := store.GetByKey(broken)
					_, kept, _ := store.GetByKey(sound)
					_, added, _ := store.GetByKey(later)
					return !gone && kept && added
				})
			})
		})
	}
	together.Wait()
}

// TestCorruptConfiguration: while a configuration cannot be decoded, no record is created, and the
// refusal names the configuration.
func TestCorruptConfiguration(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	server.MustLifecycle(t, uniqueName())
	key := storedKey("namespaceinitializerconfigurations", "c")
	if _, err := etcdClient(t, server.EtcdEndpoint).Put(t.Context(), key, "garbage"); err != nil {
		t.Fatal(err)
	}
	client := server.Client(t, "admin").NsinitV1alpha1().RESTClient()
	server.Core.SetNamespace(testserver.Namespace("ns", "u", true))
	create := func() error {
		return client.Post().Resource("namespacelifecycles").Param("dryRun", metav1.DryRunAll).MaxRetries(0).SetHeader("Content-Type", "application/json").
			Body(testserver.MustJSON(testserver.Lifecycle("ns", "u"))).Do(t.Context()).Error()
	}
	eventually(t, "a record is refused, with the key", func(context.Context) bool {
		err := create()
		return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), key)
	})
	if err := client.Delete().Resource("namespaceinitializerconfigurations").Name("c").Param(unsafely, "true").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "records are created", func(context.Context) bool { return create() == nil })
}

// TestLostEncryptionKey: with --encryption-provider-config, objects are readable as long as the key
// exists that encrypted them. Without it, LIST names them, nothing is treated as absent, and they
// are back with the key.
func TestLostEncryptionKey(t *testing.T) {
	t.Parallel()
	core, dir := testserver.NewCoreAPI(t), testserver.Dir(t)
	start := func(keys ...string) *testserver.Server {
		file := filepath.Join(dir, "encryption.yaml")
		if err := os.WriteFile(file, encryptionConfig(keys...), 0o600); err != nil {
			t.Fatal(err)
		}
		return testserver.StartWith(t, dir, core, func(o *options.Options) { o.Recommended.Etcd.EncryptionProviderConfigFilepath = file })
	}
	server := start("first")
	server.WaitReady(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	server.MustLifecycle(t, "former")
	server.Stop(t)

	server = start("second", "first")
	server.WaitReady(t)
	server.MustLifecycle(t, "latter")
	if stored, err := etcdClient(t, server.EtcdEndpoint).Get(t.Context(), storedKey("namespacelifecycles", "latter")); err != nil ||
		!strings.HasPrefix(string(stored.Kvs[0].Value), "k8s:enc:secretbox:v1:second:") {
		t.Errorf("it is stored as %q: %v", stored.Kvs, err)
	}
	server.Stop(t)

	server = start("second")
	client := server.Client(t, "admin").NsinitV1alpha1().RESTClient()
	eventually(t, "LIST names what was encrypted with the other key", func(context.Context) bool {
		err := list(client, "namespacelifecycles")
		return err != nil && strings.Contains(err.Error(), storedKey("namespacelifecycles", "former")) && !strings.Contains(err.Error(), "latter")
	})
	if err := client.Get().Resource("namespacelifecycles").Name("former").Do(t.Context()).Error(); !apierrors.IsInternalError(err) {
		t.Errorf("GET: %v", err)
	}
	if err := client.Get().Resource("namespacelifecycles").Name("latter").Do(t.Context()).Error(); err != nil {
		t.Errorf("GET of an object whose key exists: %v", err)
	}
	server.Core.SetNamespace(testserver.Namespace("new", "u", true))
	eventually(t, "no record is created, because the configuration cannot be read", func(ctx context.Context) bool {
		err := client.Post().Resource("namespacelifecycles").MaxRetries(0).SetHeader("Content-Type", "application/json").Body(testserver.MustJSON(testserver.Lifecycle("new", "u"))).Do(ctx).Error()
		if err == nil {
			t.Fatal("a record was created without its configuration")
		}
		return strings.Contains(err.Error(), storedKey("namespaceinitializerconfigurations", "c"))
	})
	server.Stop(t)

	server = start("second", "first")
	server.WaitReady(t)
	if got := currentOf(server.MustLifecycle(t, "new")); got != "a.example.com" {
		t.Errorf("it is the turn of %q", got)
	}
}

// encryptionConfig returns an EncryptionConfiguration that encrypts with the first of some keys.
func encryptionConfig(names ...string) []byte {
	var keys []map[string]string
	for _, name := range names {
		keys = append(keys, map[string]string{"name": name, "secret": base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%-32s", name))})
	}
	data, _ := json.Marshal(map[string]any{
		"kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1",
		"resources": []any{map[string]any{
			"resources": []string{"*.nsinit.dev"},
			"providers": []any{map[string]any{"secretbox": map[string]any{"keys": keys}}},
		}},
	})
	return data
}

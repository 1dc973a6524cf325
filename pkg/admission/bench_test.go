/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apiserver/scheme"
	"github.com/nsinit/nsinit/pkg/embeddedetcd"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// BenchmarkRead compares consistent reads of ten configurations on an embedded etcd: a list from the watch cache, and
// a shared read of etcd. Other objects are written meanwhile, about 100 a second. An operation is one call of each caller.
func BenchmarkRead(b *testing.B) {
	ctx := b.Context()
	getter, client := startEtcd(b)
	resource := nsinit.Resource("namespaceinitializerconfigurations")
	options, err := getter.GetRESTOptions(resource, nil)
	if err != nil {
		b.Fatal(err)
	}
	prefix := "/" + options.ResourcePrefix
	key := func(object runtime.Object) (string, error) {
		return prefix + "/" + object.(*nsinit.NamespaceInitializerConfiguration).Name, nil
	}
	cached, destroy, err := options.Decorator(options.StorageConfig, prefix, key,
		func() runtime.Object { return &nsinit.NamespaceInitializerConfiguration{} },
		func() runtime.Object { return &nsinit.NamespaceInitializerConfigurationList{} }, storage.DefaultClusterScopedAttr, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(destroy)
	for i := range 10 {
		c := &nsinit.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)},
			Initializers: []v1alpha1.RegisteredInitializer{{Name: "a.example.com"}, {Name: "b.example.com"}}}
		path, _ := key(c)
		if err := cached.Create(ctx, path, c, nil, 0); err != nil {
			b.Fatal(err)
		}
	}
	list, destroy, err := NewList(getter)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(destroy)
	reader, err := NewReader(list, func(context.Context) error { return nil }, clock.RealClock{}, metrics.NewKubeRegistry().Register)
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = client.Put(ctx, "/registry/nsinit.dev/others/"+fmt.Sprint(i%100), "")
			time.Sleep(10 * time.Millisecond)
		}
	}()

	for _, callers := range []int{1, 100} {
		for name, read := range map[string]func() error{
			"watch-cache": func() error {
				var items nsinit.NamespaceInitializerConfigurationList
				return cached.GetList(ctx, prefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, &items)
			},
			"shared": func() error { return reader.Ready(ctx) },
		} {
			b.Run(fmt.Sprintf("source=%s/callers=%d", name, callers), func(b *testing.B) {
				errs := make(chan error, callers)
				for b.Loop() {
					for range callers {
						go func() { errs <- read() }()
					}
					for range callers {
						if err := <-errs; err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// startEtcd starts an embedded etcd until the benchmark ends.
func startEtcd(b *testing.B) (*genericoptions.StorageFactoryRestOptionsFactory, *clientv3.Client) {
	b.Helper()
	dir, err := os.MkdirTemp("", "nsinit") // the path of a unix socket is short
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	etcd, err := embeddedetcd.Start(context.Background(), dir, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(etcd.Stop)
	endpoint, err := embeddedetcd.Endpoint(dir)
	if err != nil {
		b.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	s := scheme.New()
	config := storagebackend.NewDefaultConfig("/registry/nsinit.dev", scheme.StorageCodec(s, serializer.NewCodecFactory(s)))
	config.EncodeVersioner = scheme.StorageVersion()
	config.Transport.ServerList = []string{endpoint}
	return &genericoptions.StorageFactoryRestOptionsFactory{
		Options: *genericoptions.NewEtcdOptions(config), StorageFactory: &genericoptions.SimpleStorageFactory{StorageConfig: *config},
	}, client
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"context"
	"reflect"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// memory is a storage.Interface that stores objects in memory, where a write takes microseconds. It
// implements reads and writes of single objects, from one goroutine.
type memory struct {
	storage.Interface
	objects  map[string]runtime.Object
	revision uint64
}

// newMemory returns an empty memory.
func newMemory() *memory { return &memory{objects: map[string]runtime.Object{}} }

// RESTOptions returns the options with which a store keeps its objects in m.
func (m *memory) RESTOptions() generic.RESTOptionsGetter {
	return generic.RESTOptions{
		StorageConfig:  &storagebackend.ConfigForResource{},
		ResourcePrefix: "objects",
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
			storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
			return m, func() {}, nil
		},
	}
}

// Versioner implements storage.Interface.
func (*memory) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// ReadinessCheck implements storage.Interface.
func (*memory) ReadinessCheck() error { return nil }

// Get implements storage.Interface.
func (m *memory) Get(_ context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	stored, found := m.objects[key]
	if !found && options.IgnoreNotFound {
		return runtime.SetZeroValue(out)
	}
	if !found {
		return storage.NewKeyNotFoundError(key, int64(m.revision))
	}
	return write(stored, out)
}

// Create implements storage.Interface.
func (m *memory) Create(_ context.Context, key string, object, out runtime.Object, _ uint64) error {
	if _, found := m.objects[key]; found {
		return storage.NewKeyExistsError(key, 0)
	}
	return m.store(key, object, out)
}

// Delete implements storage.Interface.
func (m *memory) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	stored, found := m.objects[key]
	if !found {
		return storage.NewKeyNotFoundError(key, 0)
	}
	if err := preconditions.Check(key, stored); err != nil {
		return err
	}
	if err := validate(ctx, stored.DeepCopyObject()); err != nil {
		return err
	}
	delete(m.objects, key)
	return write(stored, out)
}

// GuaranteedUpdate implements storage.Interface. As in etcd, an update that changes nothing
// is not written.
func (m *memory) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	existing := reflect.New(reflect.TypeOf(out).Elem()).Interface().(runtime.Object)
	if err := m.Get(ctx, key, storage.GetOptions{IgnoreNotFound: ignoreNotFound}, existing); err != nil {
		return err
	}
	if err := preconditions.Check(key, existing); err != nil {
		return err
	}
	before := existing.DeepCopyObject()
	accessor, err := meta.Accessor(before)
	if err != nil {
		return err
	}
	revision, _ := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64) // none is zero
	updated, _, err := tryUpdate(existing, storage.ResponseMeta{ResourceVersion: revision})
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before, updated) {
		return write(before, out)
	}
	return m.store(key, updated, out)
}

func (m *memory) store(key string, object, out runtime.Object) error {
	m.revision++
	stored := object.DeepCopyObject()
	if err := m.Versioner().UpdateObject(stored, m.revision); err != nil {
		return err
	}
	m.objects[key] = stored
	return write(stored, out)
}

// write copies an object into another one of its type.
func write(object, out runtime.Object) error {
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
	return nil
}

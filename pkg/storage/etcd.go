/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/kubernetes/scheme"
)

// storageKey is the key of the identity, below the prefix of the storage. Its value is a ConfigMap, too,
// so that it is encoded like other objects.
const storageKey = "/storage-identity"

type etcdStore struct {
	storage storage.Interface
}

// NewEtcdStore returns the Store in the etcd that a configuration names, and a function that
// closes its connections.
func NewEtcdStore(config storagebackend.Config) (Store, func(), error) {
	config.Codec = scheme.Codecs.CodecForVersions(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
		scheme.Codecs.UniversalDeserializer(), corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
	config.EncodeVersioner = corev1.SchemeGroupVersion
	backend, destroy, err := factory.Create(*config.ForResource(schema.GroupResource{Resource: "storage-identity"}),
		func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} }, storageKey)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot create a client of the storage: %w", err)
	}
	return &etcdStore{backend}, destroy, nil
}

// Read implements Store. Reads of etcd are linearizable by default.
func (s *etcdStore) Read(ctx context.Context) (string, error) {
	var configMap corev1.ConfigMap
	err := s.storage.Get(ctx, storageKey, storage.GetOptions{IgnoreNotFound: true}, &configMap)
	if storage.IsCorruptObject(err) {
		err = fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	return configMap.Data[Key], err
}

// Create implements Store.
func (s *etcdStore) Create(ctx context.Context, id string) (string, error) {
	if _, err := s.Read(ctx); errors.Is(err, ErrUndecodable) {
		// ExpectTransformOrDecodeError deletes nothing that can be decoded.
		err := s.storage.Delete(ctx, storageKey, &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{ExpectTransformOrDecodeError: true})
		if err != nil && !storage.IsNotFound(err) {
			return "", err
		}
	}
	configMap := &corev1.ConfigMap{Data: map[string]string{Key: id}}
	configMap.Name = "storage-identity"
	if err := s.storage.Create(ctx, storageKey, configMap, nil, 0); err != nil && !storage.IsExist(err) {
		return "", err
	}
	return s.Read(ctx)
}

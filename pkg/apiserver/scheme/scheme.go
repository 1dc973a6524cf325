/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package scheme builds the scheme and the codecs of nsinit-apiserver.
package scheme

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// New returns a scheme that knows every type that the server reads or writes.
func New() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install(scheme)
	// The options of requests, and the answers that belong to no group, are of version v1 of the
	// core group.
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1,
		&metav1.Status{},
		&metav1.APIVersions{},
		&metav1.APIGroupList{},
		&metav1.APIGroup{},
		&metav1.APIResourceList{},
	)
	return scheme
}

// install registers the internal and the wire types of the group, and the order in which its versions are preferred.
func install(scheme *runtime.Scheme) {
	utilruntime.Must(nsinit.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
}

// StorageCodec returns the codec for objects in etcd. It writes protobuf, and reads every encoding of
// the codecs.
func StorageCodec(scheme *runtime.Scheme, codecs serializer.CodecFactory) runtime.Codec {
	return codecs.CodecForVersions(
		protobuf.NewSerializer(scheme, scheme),
		codecs.UniversalDeserializer(),
		StorageVersion(),
		runtime.InternalGroupVersioner,
	)
}

// StorageVersion is the version in which objects are stored.
func StorageVersion() runtime.GroupVersioner {
	return runtime.NewMultiGroupVersioner(v1alpha1.SchemeGroupVersion, schema.GroupKind{Group: v1alpha1.GroupName})
}

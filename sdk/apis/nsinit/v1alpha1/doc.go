/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package v1alpha1 holds the wire types of the nsinit.dev API group: what
// clients send, what etcd stores (as protobuf) and what kubectl explain prints.
//
// A NamespaceInitializerConfiguration registers initializers. A
// NamespaceLifecycle, one for each core Namespace and of the same name, carries
// what the core type cannot: which initializers a namespace still waits for and
// which participants must clean up before it can be removed.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=com.github.nsinit.nsinit.sdk.apis.nsinit.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:protobuf-gen=package
// +k8s:defaulter-gen=TypeMeta
// +k8s:validation-gen=TypesWithField=TypeMeta
// +groupName=nsinit.dev
// +groupGoName=Nsinit
package v1alpha1

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// newBeta returns a client of MutatingAdmissionPolicies and their bindings in v1beta1. Its objects are of the types in v1, which
// have the same fields.
func newBeta(config *rest.Config) (rest.Interface, error) {
	scheme, version := runtime.NewScheme(), admissionregistrationv1beta1.SchemeGroupVersion
	scheme.AddKnownTypes(version, &admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyList{},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{})
	metav1.AddToGroupVersion(scheme, version)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// orBeta lists and watches a resource in version v1, or in v1beta1 if the cluster does not serve v1. Kubernetes 1.34 and 1.35
// serve MutatingAdmissionPolicies in v1beta1, if the administrator turns them on.
func orBeta(v1, beta cache.Getter, resource string) cache.ListerWatcher {
	stable := cache.NewListWatchFromClient(v1, resource, metav1.NamespaceAll, fields.Everything())
	older := cache.NewListWatchFromClient(beta, resource, metav1.NamespaceAll, fields.Everything())
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := stable.ListWithContext(ctx, options)
			if apierrors.IsNotFound(err) {
				return older.ListWithContext(ctx, options)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := stable.WatchWithContext(ctx, options)
			if apierrors.IsNotFound(err) {
				return older.WatchWithContext(ctx, options)
			}
			return events, err
		},
	}
}

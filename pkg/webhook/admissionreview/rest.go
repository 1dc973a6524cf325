/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package admissionreview is a resource without objects, whose names are admission webhooks.
// kube-apiserver reaches them through the aggregation layer, like everything else, so there is no
// second service and no other certificate. Who may ask is up to RBAC.
package admissionreview

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// maxBytes is more than an object that kube-apiserver takes, before and after a change.
const maxBytes = 8 << 20

// Answer decides. It returns a response for the request's UID.
type Answer func(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// REST is the resource.
type REST struct{ webhooks map[string]Answer }

var _ interface {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.KindProvider
	rest.Connecter
} = (*REST)(nil)

// New returns the resource with webhooks by name: what kube-apiserver posts to is
// /apis/nsinit.dev/v1alpha1/admissionreviews/NAME.
func New(webhooks map[string]Answer) *REST { return &REST{webhooks: webhooks} }

// New returns an object of a registered type, as every resource has one.
func (*REST) New() runtime.Object { return &nsinit.NamespaceLifecycle{} }

// Destroy releases nothing.
func (*REST) Destroy() {}

// NamespaceScoped says that the resource is cluster-scoped.
func (*REST) NamespaceScoped() bool { return false }

// GetSingularName returns the name of one.
func (*REST) GetSingularName() string { return "admissionreview" }

// Kind is what discovery tells of it.
func (*REST) Kind() string { return "AdmissionReview" }

// ConnectMethods implements rest.Connecter.
func (*REST) ConnectMethods() []string { return []string{http.MethodPost} }

// NewConnectOptions implements rest.Connecter: there are none.
func (*REST) NewConnectOptions() (options runtime.Object, subpath bool, parameter string) {
	return nil, false, ""
}

// Connect returns what answers an AdmissionReview of admission.k8s.io/v1 in JSON.
func (r *REST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	answer, found := r.webhooks[name]
	if !found {
		return nil, apierrors.NewNotFound(v1alpha1.Resource(v1alpha1.ResourceAdmissionReviews), name)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		review, err := read(http.MaxBytesReader(w, request.Body, maxBytes))
		if err != nil {
			responder.Error(apierrors.NewBadRequest(err.Error()))
			return
		}
		review.Response = answer(ctx, review.Request)
		review.Request = nil
		data, err := json.Marshal(review)
		if err != nil {
			responder.Error(apierrors.NewInternalError(err))
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_, _ = w.Write(data) // whoever asked and is gone does without
	}), nil
}

// read returns the question.
func read(body io.Reader) (*admissionv1.AdmissionReview, error) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(body).Decode(review); err != nil {
		return nil, fmt.Errorf("the body is no AdmissionReview in JSON: %w", err)
	}
	if want := admissionv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != "AdmissionReview" {
		return nil, fmt.Errorf("the body is a %s of %q: send an AdmissionReview of %s", review.Kind, review.APIVersion, want)
	}
	if review.Request == nil {
		return nil, fmt.Errorf("request: the AdmissionReview has none")
	}
	return review, nil
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// maxBytes is more than the size of the old and the new object that kube-apiserver accepts.
const maxBytes = 8 << 20

// Answer is a webhook. It returns a response with the UID of the request.
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

// New returns the resource with webhooks by name. kube-apiserver sends requests to
// /apis/nsinit.dev/v1alpha1/admissionreviews/NAME.
func New(webhooks map[string]Answer) *REST { return &REST{webhooks: webhooks} }

// New returns an object of a registered type, which every resource must have.
func (*REST) New() runtime.Object { return &nsinit.NamespaceLifecycle{} }

// Destroy implements rest.Storage.
func (*REST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*REST) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (*REST) GetSingularName() string { return "admissionreview" }

// Kind implements rest.KindProvider.
func (*REST) Kind() string { return "AdmissionReview" }

// ConnectMethods implements rest.Connecter.
func (*REST) ConnectMethods() []string { return []string{http.MethodPost} }

// NewConnectOptions implements rest.Connecter.
func (*REST) NewConnectOptions() (options runtime.Object, subpath bool, parameter string) {
	return nil, false, ""
}

// Connect returns a handler of AdmissionReviews of admission.k8s.io/v1 in JSON.
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
		_, _ = w.Write(data) // an error means that the client has disconnected
	}), nil
}

// read decodes an AdmissionReview.
func read(body io.Reader) (*admissionv1.AdmissionReview, error) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(body).Decode(review); err != nil {
		return nil, fmt.Errorf("cannot decode the body as an AdmissionReview in JSON: %w", err)
	}
	if want := admissionv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != "AdmissionReview" {
		return nil, fmt.Errorf("the body is a %s of %q: send an AdmissionReview of %s", review.Kind, review.APIVersion, want)
	}
	if review.Request == nil {
		return nil, errors.New("the AdmissionReview has no request")
	}
	return review, nil
}

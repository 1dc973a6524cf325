/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package earlywrite

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
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

const (
	// Endpoint is the one name that the resource has: what kube-apiserver posts to is
	// /apis/nsinit.dev/v1alpha1/earlywritereviews/admission.
	Endpoint = "admission"
	// maxBytes is more than an object that kube-apiserver takes, before and after a change.
	maxBytes = 8 << 20
)

// Options are what an endpoint needs.
type Options struct {
	// Namespaces tells of namespaces. What it does not know yet is answered, too.
	Namespaces corelisters.NamespaceLister
	Clock      clock.PassiveClock
	Metrics    *Metrics
}

// Metrics are the metrics of the endpoint.
type Metrics struct{ answers *metrics.CounterVec }

// Registry takes metrics.
type Registry interface {
	Register(metrics.Registerable) error
}

// NewMetrics returns metrics that are not registered yet.
func NewMetrics() *Metrics {
	return &Metrics{answers: metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "nsinit", Name: "early_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of writes into namespaces that are being initialized, by what was answered: later, to those that should try again, or never. " +
			"Nobody asks about namespaces that are open.",
	}, []string{"answer"})}
}

// Register registers the metrics.
func (m *Metrics) Register(registry Registry) error { return registry.Register(m.answers) }

// REST is the endpoint, a resource without objects.
type REST struct{ options Options }

var _ interface {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.KindProvider
	rest.Connecter
} = (*REST)(nil)

// New returns the endpoint.
func New(options Options) *REST { return &REST{options: options} }

// New returns an object of a registered type, as every resource has one.
func (*REST) New() runtime.Object { return &nsinit.NamespaceLifecycle{} }

// Destroy releases nothing.
func (*REST) Destroy() {}

// NamespaceScoped says that the resource is cluster-scoped.
func (*REST) NamespaceScoped() bool { return false }

// GetSingularName returns the name of one.
func (*REST) GetSingularName() string { return "earlywritereview" }

// Kind is what discovery tells of it.
func (*REST) Kind() string { return "EarlyWriteReview" }

// ConnectMethods implements rest.Connecter.
func (*REST) ConnectMethods() []string { return []string{http.MethodPost} }

// NewConnectOptions implements rest.Connecter: there are none.
func (*REST) NewConnectOptions() (options runtime.Object, subpath bool, parameter string) {
	return nil, false, ""
}

// Connect returns what answers an AdmissionReview of admission.k8s.io/v1 in JSON.
func (r *REST) Connect(_ context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	if name != Endpoint {
		return nil, apierrors.NewNotFound(v1alpha1.Resource(v1alpha1.ResourceEarlyWriteReviews), name)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		review, err := read(http.MaxBytesReader(w, request.Body, maxBytes))
		if err != nil {
			responder.Error(apierrors.NewBadRequest(err.Error()))
			return
		}
		namespace, err := r.options.Namespaces.Get(review.Request.Namespace)
		if err != nil {
			namespace = nil // it is younger than what is known of it
		}
		review.Response = answer(review.Request, namespace, r.options.Clock.Now())
		review.Request = nil
		r.count(review.Response)
		data, err := json.Marshal(review)
		if err != nil {
			responder.Error(apierrors.NewInternalError(err))
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_, _ = w.Write(data) // whoever asked and is gone does without
	}), nil
}

func (r *REST) count(response *admissionv1.AdmissionResponse) {
	label := "later"
	if response.Result.Details.RetryAfterSeconds == 0 {
		label = "never"
	}
	r.options.Metrics.answers.WithLabelValues(label).Inc()
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

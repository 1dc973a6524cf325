/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// StorageSpaceName is the name of the plugin StorageSpace.
const StorageSpaceName = "StorageSpace"

const (
	// ReasonInsufficientStorage: the storage is full, so nsinit-apiserver refuses new objects. The HTTP code is 507.
	ReasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"
)

// StorageSpace refuses new objects while the storage is full, to keep space for updates and deletions.
type StorageSpace struct{ dependent }

var _ admission.ValidationInterface = (*StorageSpace)(nil)

// NewStorageSpace returns the plugin without its dependencies.
func NewStorageSpace() *StorageSpace {
	return &StorageSpace{dependent{Handler: admission.NewHandler(admission.Create)}}
}

// Validate refuses a new object while the storage is full. A POST to a subresource, or to a resource
// without objects, creates none.
func (p *StorageSpace) Validate(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := attributes.GetResource().GroupResource()
	if attributes.GetSubresource() != "" || resource == nsinit.Resource(v1alpha1.ResourceAdmissionReviews) || resource == nsinit.Resource(v1alpha1.ResourceInitializers) {
		return nil
	}
	problem := p.Space()
	if problem == nil {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: ReasonInsufficientStorage, Message: problem.Error(),
	}}
}

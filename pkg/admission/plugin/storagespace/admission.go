/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storagespace holds the admission plugin StorageSpace. It refuses new objects while the
// storage is full, to keep space for updates and deletions.
package storagespace

import (
	"context"
	"errors"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/nsinit/nsinit/pkg/admission/wants"
	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// PluginName is the name of the plugin.
const PluginName = "StorageSpace"

// ReasonInsufficientStorage is the reason of a refusal. The HTTP code is 507.
const ReasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return NewPlugin(), nil })
}

// Plugin refuses new objects while the storage is full.
type Plugin struct {
	*admission.Handler
	space wants.StorageSpace
}

var _ interface {
	admission.ValidationInterface
	wants.WantsStorageSpace
} = (*Plugin)(nil)

// NewPlugin returns a plugin without its dependencies.
func NewPlugin() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create)}
}

// SetStorageSpace implements WantsStorageSpace.
func (p *Plugin) SetStorageSpace(space wants.StorageSpace) { p.space = space }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.space == nil {
		return errors.New("missing the storage space")
	}
	return nil
}

// Validate refuses a new object while the storage is full. A POST to a subresource, or to a resource
// without objects, creates none.
func (p *Plugin) Validate(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := attributes.GetResource().GroupResource()
	if attributes.GetSubresource() != "" || resource == nsinit.Resource(v1alpha1.ResourceAdmissionReviews) || resource == nsinit.Resource(v1alpha1.ResourceInitializers) {
		return nil
	}
	problem := p.space()
	if problem == nil {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: ReasonInsufficientStorage, Message: problem.Error(),
	}}
}

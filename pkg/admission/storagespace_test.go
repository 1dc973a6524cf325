/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// TestStorageSpace: objects are refused while the storage is full, and what creates none is not.
func TestStorageSpace(t *testing.T) {
	full := errors.New("full")
	for name, test := range map[string]struct {
		resource, subresource string
		problem               error
		refused               bool
	}{
		"there is space":             {"namespacelifecycles", "", nil, false},
		"the storage is full":        {"namespacelifecycles", "", full, true},
		"a configuration":            {"namespaceinitializerconfigurations", "", full, true},
		"a POST on a subresource":    {"namespacelifecycles", "finalize", full, false},
		"the review of an admission": {"admissionreviews", "", full, false},
		"a resource without objects": {"initializers", "", full, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewStorageSpace()
			if p.ValidateInitialization() == nil {
				t.Error("it works without its dependencies")
			}
			p.setDependencies(Dependencies{Space: func() error { return test.problem }})
			attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "x",
				nsinit.Resource(test.resource).WithVersion("v1alpha1"), test.subresource, admission.Create, nil, false, nil)
			err := p.Validate(t.Context(), attributes, nil)
			if (err != nil) != test.refused || err != nil && apierrors.ReasonForError(err) != ReasonInsufficientStorage {
				t.Errorf("got %v", err)
			}
		})
	}
	if p := NewStorageSpace(); p.Handles(admission.Update) || p.Handles(admission.Delete) || !p.Handles(admission.Create) {
		t.Error("it handles more or less than creations")
	}
}

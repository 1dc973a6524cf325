/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package recordprotection holds the admission plugin NamespaceRecordProtection. The
// record of a live namespace must not be deleted: it is the namespace that is deleted,
// and the record follows. The record of an immortal namespace cannot be deleted at all
// while it has a plan or participants.
package recordprotection

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/nsinit/nsinit/pkg/admission/wants"
	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/helper"
	"github.com/nsinit/nsinit/pkg/authorization"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// PluginName is the name of the plugin.
const PluginName = "NamespaceRecordProtection"

// immortal says whether a namespace is one that kube-apiserver does not delete.
func immortal(name string) bool {
	return name == metav1.NamespaceDefault || name == metav1.NamespaceSystem || name == metav1.NamespacePublic
}

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Plugin refuses the deletion of records of live namespaces.
type Plugin struct {
	*admission.Handler
	checker    *authorization.Checker
	namespaces wants.NamespaceReader
}

var _ interface {
	admission.ValidationInterface
	wants.WantsAuthorizationChecker
	wants.WantsNamespaceReader
} = (*Plugin)(nil)

// New returns a plugin that waits for its dependencies.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Delete)}
}

// SetAuthorizationChecker implements WantsAuthorizationChecker.
func (p *Plugin) SetAuthorizationChecker(checker *authorization.Checker) { p.checker = checker }

// SetNamespaceReader implements WantsNamespaceReader.
func (p *Plugin) SetNamespaceReader(namespaces wants.NamespaceReader) {
	p.namespaces = namespaces
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	switch {
	case p.checker == nil:
		return errors.New("missing the authorization checker")
	case p.namespaces == nil:
		return errors.New("missing the reader of namespaces")
	}
	return nil
}

// Validate refuses to delete the record of a namespace that lives, unless the caller
// has the privilege to do so. The record is then built anew from the namespace.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != nsinit.Resource("namespacelifecycles") || attributes.GetSubresource() != "" {
		return nil
	}
	if name := attributes.GetName(); immortal(name) && hasSomethingToLose(attributes) {
		return admission.NewForbidden(attributes, fmt.Errorf("namespace %q is immortal, and its record has a plan or participants, so it cannot be deleted", name))
	}
	lifecycle, ok := attributes.GetOldObject().(*nsinit.NamespaceLifecycle)
	if !ok || lifecycle.DeletionTimestamp != nil {
		return nil
	}
	namespace, err := p.namespaces(ctx, lifecycle.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil && (namespace.UID != lifecycle.Spec.NamespaceUID || namespace.DeletionTimestamp != nil):
		return nil
	}
	denied := p.checker.MayOpen(ctx, lifecycle.Name)
	switch {
	case denied == nil:
		return nil
	case err != nil:
		return utilapierrors.NewUnavailable(fmt.Errorf("cannot tell whether namespace %q lives: %w", lifecycle.Name, err))
	}
	return authorization.Refusal(attributes.GetResource().GroupResource(), lifecycle.Name, fmt.Errorf("namespace %q lives, and its record with it: delete the namespace instead (%w)", lifecycle.Name, denied))
}

// hasSomethingToLose says whether something would be lost with a record: initializers that have acted or
// have to act, or participants, which would clean up after a namespace that stays. Of a record that is not
// known, this is assumed.
func hasSomethingToLose(attributes admission.Attributes) bool {
	lifecycle, ok := attributes.GetOldObject().(*nsinit.NamespaceLifecycle)
	return !ok || len(lifecycle.Spec.Plan) > 0 || len(helper.Participants(lifecycle)) > 0
}

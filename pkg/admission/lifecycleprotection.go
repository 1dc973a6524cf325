/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

// LifecycleProtectionName is the name of the plugin LifecycleProtection.
const LifecycleProtectionName = "NamespaceLifecycleProtection"

// LifecycleProtection refuses to delete the NamespaceLifecycle of a live namespace: a client deletes the namespace, and
// the controller then deletes the lifecycle. The lifecycle of an immortal namespace cannot be deleted while it has a plan
// or participants.
type LifecycleProtection struct{ dependent }

var _ admission.ValidationInterface = (*LifecycleProtection)(nil)

// NewLifecycleProtection returns the plugin without its dependencies.
func NewLifecycleProtection() *LifecycleProtection {
	return &LifecycleProtection{dependent{Handler: admission.NewHandler(admission.Delete)}}
}

// immortal says whether kube-apiserver refuses to delete a namespace.
func immortal(name string) bool {
	return name == metav1.NamespaceDefault || name == metav1.NamespaceSystem || name == metav1.NamespacePublic
}

// Validate refuses to delete the lifecycle of a live namespace, unless the user has the verb open.
func (p *LifecycleProtection) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != nsinit.Resource("namespacelifecycles") || attributes.GetSubresource() != "" {
		return nil
	}
	if name := attributes.GetName(); immortal(name) && hasSomethingToLose(attributes) {
		return admission.NewForbidden(attributes, fmt.Errorf("the NamespaceLifecycle of namespace %q cannot be deleted: Kubernetes does not delete the namespace, and the plan or participants would be lost", name))
	}
	lifecycle, ok := attributes.GetOldObject().(*nsinit.NamespaceLifecycle)
	if !ok || lifecycle.DeletionTimestamp != nil {
		return nil
	}
	namespace, err := p.Namespace(ctx, lifecycle.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil && (namespace.UID != lifecycle.Spec.NamespaceUID || namespace.DeletionTimestamp != nil):
		return nil
	}
	denied := p.Checker.MayOpen(ctx, lifecycle.Name)
	switch {
	case denied == nil:
		return nil
	case err != nil:
		return utilapierrors.NewUnavailable(fmt.Errorf("cannot check whether namespace %q exists: %w", lifecycle.Name, err))
	}
	return authorization.Refusal(attributes.GetResource().GroupResource(), lifecycle.Name, fmt.Errorf("namespace %q exists: delete the namespace, and its NamespaceLifecycle is deleted with it (%w)", lifecycle.Name, denied))
}

// hasSomethingToLose says whether a lifecycle has a plan or participants. Participants would clean up
// a namespace that stays. It returns true if the lifecycle is not known.
func hasSomethingToLose(attributes admission.Attributes) bool {
	lifecycle, ok := attributes.GetOldObject().(*nsinit.NamespaceLifecycle)
	return !ok || len(lifecycle.Spec.Plan) > 0 || len(lifecycle.Participants()) > 0
}

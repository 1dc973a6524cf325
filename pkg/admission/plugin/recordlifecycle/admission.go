/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package recordlifecycle holds the admission plugin NamespaceRecordLifecycle, which does for
// what nsinit serves what NamespaceLifecycle does in kube-apiserver. It has a name of its own
// because a generic API server knows that one already. Its rules, in their order:
//
//  1. The record of an immortal namespace cannot be deleted while it has a plan or participants.
//     Which namespaces are immortal can be configured.
//  2. What is not in a namespace passes, other deletions pass, and access reviews pass.
//  3. Nothing is created or changed for a namespace that does not exist. The cache is asked,
//     again after a short wait, and then the core API itself.
//  4. Nothing is created for a namespace that is being terminated.
//  5. A namespace that was deleted lately is read live, if the cache does not know of it yet.
package recordlifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/admission/initializer"
	"github.com/nsinit/nsinit/pkg/admission/refusal"
	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/util/systemclock"
	"github.com/nsinit/nsinit/pkg/util/unavailable"
)

// PluginName is the name of the plugin.
const PluginName = "NamespaceRecordLifecycle"

const (
	// missingWait is how long the cache is given to learn of a namespace that was created
	// a moment ago.
	missingWait = 50 * time.Millisecond
	// deletionMemory is how long a deletion forces a live read, and deletionsRemembered
	// how many of them.
	deletionMemory      = 30 * time.Second
	deletionsRemembered = 1000
)

// Register registers the plugin, for which these namespaces are immortal.
func Register(plugins *admission.Plugins, immortal func() sets.Set[string]) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(immortal(), systemclock.New()), nil })
}

// Plugin keeps the rules of the package.
type Plugin struct {
	*admission.Handler
	immortal   sets.Set[string]
	clock      clock.Clock
	deleted    *utilcache.LRUExpireCache
	lister     corelisters.NamespaceLister
	synced     func() bool
	namespaces initializer.NamespaceReader
}

var _ interface {
	admission.ValidationInterface
	initializer.WantsNamespaceReader
	genericinitializer.WantsExternalKubeInformerFactory
} = (*Plugin)(nil)

// New returns a plugin that waits for its dependencies.
func New(immortal sets.Set[string], clock clock.Clock) *Plugin {
	return &Plugin{
		Handler:  admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		immortal: immortal,
		clock:    clock,
		deleted:  utilcache.NewLRUExpireCacheWithClock(deletionsRemembered, clock),
	}
}

// SetNamespaceReader implements WantsNamespaceReader.
func (p *Plugin) SetNamespaceReader(namespaces initializer.NamespaceReader) {
	p.namespaces = namespaces
}

// SetExternalKubeInformerFactory implements WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	namespaces := factory.Core().V1().Namespaces()
	p.lister, p.synced = namespaces.Lister(), namespaces.Informer().HasSynced
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	switch {
	case p.namespaces == nil:
		return errors.New("missing the reader of namespaces")
	case p.lister == nil:
		return errors.New("missing the cache of namespaces")
	}
	return nil
}

// Validate keeps the rules. It changes nothing, so it is no mutator.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	namespace, field := about(attributes)
	if attributes.GetOperation() == admission.Delete {
		if field == recordField {
			if p.immortal.Has(namespace) && protects(attributes) {
				return admission.NewForbidden(attributes, fmt.Errorf("namespace %q is immortal, and its record has a plan or participants, so it cannot be deleted", namespace))
			}
			p.deleted.Add(namespace, true, deletionMemory)
		}
		return nil
	}
	if namespace == "" || isAccessReview(attributes) || field == recordField && attributes.GetOperation() != admission.Create {
		return nil
	}
	found, err := p.find(ctx, namespace, attributes.GetOperation() == admission.Create)
	if err != nil {
		return err
	}
	if attributes.GetOperation() == admission.Create && (found.DeletionTimestamp != nil || found.Status.Phase == corev1.NamespaceTerminating) {
		return refusal.Terminating(attributes, namespace, field)
	}
	return nil
}

const recordField = "metadata.name"

// protects says whether something would be lost with a record: initializers that have acted or
// have to act, or participants, which would clean up after a namespace that stays. Of a record
// that is not known, this is assumed.
func protects(attributes admission.Attributes) bool {
	record, ok := attributes.GetOldObject().(*nsinit.NamespaceLifecycle)
	return !ok || len(record.Spec.Plan) > 0 ||
		slices.ContainsFunc(record.Spec.Finalizers, func(f nsinit.FinalizerName) bool { return f != nsinit.FinalizerKubernetes })
}

// about returns the namespace that a request is about, and the field that names it: for a
// record its own name, for what is in a namespace that, and nothing for the rest.
func about(attributes admission.Attributes) (namespace, field string) {
	switch {
	case attributes.GetResource().GroupResource() == nsinit.Resource("namespacelifecycles"):
		if attributes.GetSubresource() != "" {
			return "", ""
		}
		return attributes.GetName(), recordField
	case attributes.GetNamespace() != "":
		return attributes.GetNamespace(), "metadata.namespace"
	}
	return "", ""
}

// isAccessReview: what becomes of a namespace is nothing that an access review may tell.
func isAccessReview(attributes admission.Attributes) bool {
	resource := attributes.GetResource()
	return resource.Group == "authorization.k8s.io" && resource.Resource == "localsubjectaccessreviews"
}

// find returns a namespace: from the cache, from the cache a little later where something is
// created, or as it is now.
func (p *Plugin) find(ctx context.Context, name string, creating bool) (*corev1.Namespace, error) {
	found := p.cached(name)
	if found == nil && creating {
		timer := p.clock.NewTimer(missingWait)
		defer timer.Stop()
		select {
		case <-timer.C():
			found = p.cached(name)
		case <-ctx.Done(): // the live read says so
		}
	}
	if found != nil && found.DeletionTimestamp == nil && found.Status.Phase != corev1.NamespaceTerminating {
		if _, lately := p.deleted.Get(name); lately {
			found = nil // the cache may be behind
		}
	}
	if found != nil {
		return found, nil
	}
	live, err := p.namespaces(ctx, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, unavailable.New(fmt.Errorf("cannot tell whether namespace %q exists: %w", name, err))
	}
	return live, err
}

// cached returns a namespace from the cache, or nil. A cache that is not filled yet knows of
// none.
func (p *Plugin) cached(name string) *corev1.Namespace {
	if !p.synced() {
		return nil
	}
	namespace, err := p.lister.Get(name)
	if err != nil { // not found: a lister has no other error
		return nil
	}
	return namespace
}

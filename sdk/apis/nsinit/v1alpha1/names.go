/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

const (
	// LabelInitializing marks a core Namespace whose gate is closed. The stamp
	// policy sets it at creation, and the lifecycle controller removes it once.
	LabelInitializing = "nsinit.dev/initializing"

	// LabelFrozen marks a core Namespace in which no tenant can write. A user with
	// VerbFreeze sets it together with AnnotationFrozenBy and
	// AnnotationFrozenReason, and removes it together with setting
	// AnnotationUnfrozenBy.
	LabelFrozen = "nsinit.dev/frozen"

	// LabelPopulation is on every object of a NamespacePopulation. It holds the
	// name of the population.
	LabelPopulation = "nsinit.dev/population"

	// AnnotationCreatedBy is the name of the user who created the namespace.
	AnnotationCreatedBy = "nsinit.dev/created-by"

	// AnnotationCreatedByGroups holds the groups of the user who created the
	// namespace, one on each line.
	AnnotationCreatedByGroups = "nsinit.dev/created-by-groups"

	// AnnotationOnBehalfOf is the name of the user for whom the namespace was
	// created: 1 to 512 characters that do not begin with system:. The stamp keeps
	// it if its creator has VerbImpersonate on the name. AnnotationCreatedBy stays
	// the user that kube-apiserver authenticated.
	AnnotationOnBehalfOf = "nsinit.dev/on-behalf-of"

	// AnnotationOpenedBy is the name of the user who opened the namespace by
	// hand: who removed LabelInitializing instead of the lifecycle controller.
	AnnotationOpenedBy = "nsinit.dev/opened-by"

	// AnnotationFrozenBy is the name of the user who froze the namespace. It stays
	// when the namespace is unfrozen.
	AnnotationFrozenBy = "nsinit.dev/frozen-by"

	// AnnotationFrozenReason is why the namespace is frozen: one line with at most
	// 512 characters. It stays when the namespace is unfrozen.
	AnnotationFrozenReason = "nsinit.dev/frozen-reason"

	// AnnotationUnfrozenBy is the name of the user who unfroze the namespace. It is
	// removed when the namespace is frozen again.
	AnnotationUnfrozenBy = "nsinit.dev/unfrozen-by"

	// AnnotationUnfrozenReason is why the namespace was unfrozen, in the form of
	// AnnotationFrozenReason. It is optional, and is removed when the namespace is
	// frozen again.
	AnnotationUnfrozenReason = "nsinit.dev/unfrozen-reason"

	// NamespaceFinalizer is the finalizer that the lifecycle controller adds to
	// metadata.finalizers of the core Namespace while a participant has to clean
	// up. In spec.finalizers, it would make kube-controller-manager delete the
	// content of the namespace repeatedly. The last deletion could reach the next
	// namespace of the same name.
	NamespaceFinalizer = "nsinit.dev/lifecycle"
	// ContentFinalizer is the finalizer that the lifecycle controller adds to
	// metadata.finalizers of the core Namespace while a participant holds its
	// content. While a namespace that is being deleted has it, the policy
	// nsinit-content refuses the deletions of Kubernetes' namespace controller.
	ContentFinalizer = "nsinit.dev/content"
	// NameReuseFinalizer is the finalizer that the component strict-name-reuse
	// adds to spec.finalizers of a namespace when it is deleted. It keeps the
	// namespace until no request that was admitted before can still be in flight.
	NameReuseFinalizer = "nsinit.dev/strict-name-reuse"

	// InitializerLifecycle is the built-in initializer. It is the first of a plan
	// in which a participant has finalizer: true. The lifecycle controller removes
	// it once NamespaceFinalizer is on the namespace, so that no deletion completes
	// without the participant. Configurations cannot register it.
	InitializerLifecycle = "lifecycle.nsinit.dev"

	// VerbInitialize, on core namespaces and on initializers.nsinit.dev, lets
	// its holder write into initializing namespaces and remove the named
	// initializer from the pending list.
	VerbInitialize = "initialize"

	// VerbFinalize, on initializers.nsinit.dev, lets its holder remove the
	// named participant from spec.finalizers.
	VerbFinalize = "finalize"

	// VerbOpen, on core namespaces, lets its holder open gates and write what
	// other users can only read. The lifecycle controller holds it.
	VerbOpen = "open"

	// VerbFreeze, on core namespaces, lets its holder freeze and unfreeze
	// namespaces, and delete frozen ones.
	VerbFreeze = "freeze"

	// VerbImpersonate, on creators.nsinit.dev, lets its holder create namespaces
	// on behalf of the named user. It grants nothing else.
	VerbImpersonate = "impersonate"

	// ConditionFrozen is True while a namespace is frozen, and False after it was
	// unfrozen. It is on the core Namespace only.
	ConditionFrozen = "Frozen"
	// ReasonFrozen: no tenant can write into the namespace.
	ReasonFrozen = "Frozen"
	// ReasonUnfrozen: tenants can write into the namespace again.
	ReasonUnfrozen = "Unfrozen"

	// ResourceInitializers is the resource of the group nsinit.dev that exists
	// for authorization only: its resource names are the names of initializers.
	ResourceInitializers = "initializers"

	// ResourceCreators is the resource of the group nsinit.dev that exists for
	// authorization only: its resource names are the names of users.
	ResourceCreators = "creators"

	// ResourceAdmissionReviews is the resource that kube-apiserver asks where nsinit is an admission
	// webhook. It has no objects: its names are those of the webhooks.
	ResourceAdmissionReviews = "admissionreviews"

	// AuditRemovedInitializers is which initializers a request removed. Commas separate several names.
	AuditRemovedInitializers = "nsinit.dev/removed-initializers"
	// AuditFailedInitializer is the initializer for which a request failed the initialization.
	AuditFailedInitializer = "nsinit.dev/failed-initializer"
	// AuditRemovedFinalizers is which participants a request removed. Commas separate several names.
	AuditRemovedFinalizers = "nsinit.dev/removed-finalizers"
)

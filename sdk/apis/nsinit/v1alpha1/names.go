/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

const (
	// LabelInitializing marks a core Namespace that is closed. The stamp sets the label when
	// the namespace is created. nsinit-controller-manager removes the label when the namespace is
	// initialized. The label also marks pods and Jobs that wait for initializers.
	LabelInitializing = "nsinit.dev/initializing"

	// LabelFrozen marks a core Namespace in which no tenant can write. A user with the verb
	// VerbFreeze sets the label in one request together with AnnotationFrozenBy and
	// AnnotationFrozenReason. The request that removes the label must set AnnotationUnfrozenBy.
	LabelFrozen = "nsinit.dev/frozen"

	// LabelPopulation holds the name of a NamespacePopulation. Every object of the population
	// has this label.
	LabelPopulation = "nsinit.dev/population"

	// AnnotationCreatedBy holds the name of the user who created the namespace.
	AnnotationCreatedBy = "nsinit.dev/created-by"

	// AnnotationCreatedByGroups holds the groups of the user who created the namespace, one
	// group on each line.
	AnnotationCreatedByGroups = "nsinit.dev/created-by-groups"

	// AnnotationOnBehalfOf holds the name of the user for whom the namespace was created. The
	// name has 1 to 512 characters, and does not begin with system:. The stamp keeps the
	// annotation if the user who sends the request has the verb VerbImpersonate on the name.
	// AnnotationCreatedBy then holds the name of the user who sent the request.
	AnnotationOnBehalfOf = "nsinit.dev/on-behalf-of"

	// AnnotationOpenedBy holds the name of the user who opened the namespace by hand. This user
	// removed the label LabelInitializing before nsinit-controller-manager did.
	AnnotationOpenedBy = "nsinit.dev/opened-by"

	// AnnotationFrozenBy holds the name of the user who froze the namespace. The annotation
	// stays when the namespace is unfrozen.
	AnnotationFrozenBy = "nsinit.dev/frozen-by"

	// AnnotationFrozenReason says why the namespace is frozen, in one line of at most 512
	// characters. The annotation stays when the namespace is unfrozen.
	AnnotationFrozenReason = "nsinit.dev/frozen-reason"

	// AnnotationUnfrozenBy holds the name of the user who unfroze the namespace. The annotation
	// is removed when the namespace is frozen again.
	AnnotationUnfrozenBy = "nsinit.dev/unfrozen-by"

	// AnnotationUnfrozenReason says why the namespace was unfrozen, in one line of at most 512
	// characters. The annotation is optional. It is removed when the namespace is frozen again.
	AnnotationUnfrozenReason = "nsinit.dev/unfrozen-reason"

	// NamespaceFinalizer keeps a deleted namespace until its participants have cleaned up.
	// nsinit-controller-manager adds the finalizer to metadata.finalizers of the core Namespace.
	// The finalizer is not in spec.finalizers, because kube-controller-manager would otherwise
	// delete the content of the namespace repeatedly. The last deletion could reach a new
	// namespace of the same name.
	NamespaceFinalizer = "nsinit.dev/lifecycle"
	// ContentFinalizer keeps the content of a deleted namespace until the participants that
	// hold the content have cleaned up. nsinit-controller-manager adds the finalizer to
	// metadata.finalizers of the core Namespace. While a deleted namespace has the finalizer, the
	// policy nsinit-content refuses the deletions of Kubernetes' namespace controller.
	ContentFinalizer = "nsinit.dev/content"
	// NameReuseFinalizer keeps a deleted namespace until every request that kube-apiserver
	// admitted earlier has ended. The component strict-name-reuse adds the finalizer to
	// spec.finalizers of a namespace when the namespace is deleted.
	NameReuseFinalizer = "nsinit.dev/strict-name-reuse"

	// InitializerLifecycle is the built-in initializer. It is the first of a plan
	// in which a participant has finalizer: true. nsinit-controller-manager removes it once
	// NamespaceFinalizer is on the namespace, so that no deletion completes without the
	// participant. Configurations cannot register it.
	InitializerLifecycle = "lifecycle.nsinit.dev"

	// VerbInitialize: a user with this verb on core namespaces can write into closed
	// namespaces. A user who also has the verb on the name X of initializers.nsinit.dev can act
	// as initializer X.
	VerbInitialize = "initialize"

	// VerbFinalize: a user with this verb on the name X of initializers.nsinit.dev can remove
	// participant X from spec.finalizers.
	VerbFinalize = "finalize"

	// VerbOpen: a user with this verb on core namespaces can open closed namespaces, and can
	// write what nsinit protects from other users. nsinit-controller-manager has this verb.
	VerbOpen = "open"

	// VerbFreeze: a user with this verb on core namespaces can freeze and unfreeze namespaces,
	// and delete frozen namespaces.
	VerbFreeze = "freeze"

	// VerbImpersonate: a user with this verb on the name X of creators.nsinit.dev can create
	// namespaces on behalf of user X. The verb grants nothing else.
	VerbImpersonate = "impersonate"

	// ConditionFrozen is True while a namespace is frozen, and False after it is unfrozen. Only
	// the core Namespace has this condition.
	ConditionFrozen = "Frozen"
	// ReasonFrozen: no tenant can write into the namespace.
	ReasonFrozen = "Frozen"
	// ReasonUnfrozen: tenants can write into the namespace again.
	ReasonUnfrozen = "Unfrozen"

	// ResourceInitializers exists only for authorization. The resource names in RBAC rules are
	// the names of initializers.
	ResourceInitializers = "initializers"

	// ResourceCreators exists only for authorization. The resource names in RBAC rules are the
	// names of users.
	ResourceCreators = "creators"

	// ResourceAdmissionReviews serves the admission webhooks of nsinit. kube-apiserver sends
	// AdmissionReviews to this resource. It has no objects: each resource name is the name of a
	// webhook.
	ResourceAdmissionReviews = "admissionreviews"

	// AuditRemovedInitializers lists the initializers that a request removed, separated by
	// commas.
	AuditRemovedInitializers = "nsinit.dev/removed-initializers"
	// AuditFailedInitializer names the initializer for which a request reported a failure.
	AuditFailedInitializer = "nsinit.dev/failed-initializer"
	// AuditRemovedFinalizers lists the finalizers that a request removed, separated by commas.
	AuditRemovedFinalizers = "nsinit.dev/removed-finalizers"
)

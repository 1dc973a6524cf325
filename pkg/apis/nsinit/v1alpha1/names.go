/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

const (
	// LabelInitializing marks a core Namespace whose gate is closed. The stamp
	// policy sets it at creation, the lifecycle controller removes it once.
	LabelInitializing = "nsinit.dev/initializing"

	// LabelPopulation is on every object of a NamespacePopulation. It holds the
	// name of the population.
	LabelPopulation = "nsinit.dev/population"

	// AnnotationCreatedBy holds the user name of whoever created the namespace.
	AnnotationCreatedBy = "nsinit.dev/created-by"

	// AnnotationCreatedByGroups holds the groups of whoever created the
	// namespace, one on each line.
	AnnotationCreatedByGroups = "nsinit.dev/created-by-groups"

	// AnnotationOpenedBy holds the name of the user who opened the namespace by
	// hand: who removed LabelInitializing in place of the lifecycle controller.
	AnnotationOpenedBy = "nsinit.dev/opened-by"

	// NamespaceFinalizer is the finalizer that the lifecycle controller puts
	// into the core Namespace's metadata.finalizers while a participant has to
	// clean up before the namespace may be removed. In spec.finalizers, it would
	// make kube-controller-manager empty the namespace again and again, and the
	// last time could reach the next namespace of the same name.
	NamespaceFinalizer = "nsinit.dev/lifecycle"
	// NameReuseFinalizer is the finalizer that the component strict-name-reuse
	// puts into spec.finalizers of a namespace when it is deleted. It holds the
	// namespace until no request that was admitted before can still be under way.
	NameReuseFinalizer = "nsinit.dev/strict-name-reuse"

	// InitializerLifecycle is the built-in initializer that comes first where a
	// participant has finalizer: true. The lifecycle controller removes it once
	// NamespaceFinalizer is on the namespace, so that no deletion can outrun a
	// participant. Configurations cannot register it.
	InitializerLifecycle = "lifecycle.nsinit.dev"

	// VerbInitialize, on core namespaces and on initializers.nsinit.dev, lets
	// its holder write into initializing namespaces and remove the named
	// initializer from the pending list.
	VerbInitialize = "initialize"

	// VerbFinalize, on initializers.nsinit.dev, lets its holder remove the
	// named participant from spec.finalizers.
	VerbFinalize = "finalize"

	// VerbOpen, on core namespaces, is the privilege of the lifecycle
	// controller: to open gates and to write what others may only read.
	VerbOpen = "open"

	// ResourceInitializers is the resource of the group nsinit.dev that exists
	// for authorization alone: its resource names are initializers' names.
	ResourceInitializers = "initializers"

	// ResourceAdmissionReviews is the resource that kube-apiserver asks where nsinit is an admission
	// webhook. It has no objects: its names are those of the webhooks.
	ResourceAdmissionReviews = "admissionreviews"

	// AuditRemovedInitializers, AuditFailedInitializer and AuditRemovedFinalizers are annotations of
	// the audit log of nsinit-apiserver: which initializers a request removed from a record, in
	// place of which one it failed the initialization, and which participants it removed. Several
	// are separated by commas. The opening of a gate is in the audit log of kube-apiserver, under
	// nsinit-guard/gate-opened.
	AuditRemovedInitializers = "nsinit.dev/removed-initializers"
	AuditFailedInitializer   = "nsinit.dev/failed-initializer"
	AuditRemovedFinalizers   = "nsinit.dev/removed-finalizers"
)

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const (
	// ReasonApplied: every object was applied.
	ReasonApplied = "Applied"
	// ReasonInvalid: this version of policy-population cannot compile the population. Fix the
	// error that the message describes.
	ReasonInvalid = "InvalidManifest"
	// ReasonFailed: an object could not be applied.
	ReasonFailed = "ManifestFailed"
	// ReasonNotReady: an object of the namespace is not ready.
	ReasonNotReady = "ObjectNotReady"
)

// Other reasons of the condition Ready, and of errors of Check.
const (
	// reasonApplicable: policy-population can apply every manifest to a new namespace.
	reasonApplicable = "ManifestsApplicable"
	// reasonKindNotFound: the cluster does not know the kind of a manifest.
	reasonKindNotFound = "KindNotFound"
	// reasonNotPermitted: policy-population lacks a permission that a manifest needs.
	reasonNotPermitted = "NotPermitted"
	// reasonCheckFailed: policy-population cannot check whether it can apply the manifests.
	reasonCheckFailed = "CheckFailed"
)

// CheckObject returns why a new namespace cannot get a rendered object.
func (a *Applier) CheckObject(ctx context.Context, o *Object) (err error) {
	switch {
	case o.Err != nil:
		return o.Err
	case o.Manifest == metadataManifest:
		_, err = a.mayDecorate(ctx)
	default:
		_, err = a.Check(ctx, o.Content, o.ReadyWhen() != "")
	}
	return err
}

// Check returns why no namespace can get an object, and the reason for the condition Ready: the cluster does not know
// its kind, or the initializer has no permission to apply it. If the cluster does not answer, the reason is CheckFailed.
// Check needs no namespace and stores nothing. Without a name, the initializer needs permission for every name. reads
// says that it also reads the object: to apply it to namespaces that exist already, or to see whether it is ready.
func (a *Applier) Check(ctx context.Context, content *unstructured.Unstructured, reads bool) (_ string, err error) {
	defer explain(&err, "apply", content.GetKind(), content.GetName())
	mapping, err := a.mapping(content.GroupVersionKind())
	switch {
	case meta.IsNoMatchError(err):
		return reasonKindNotFound, err
	case err != nil:
		return reasonCheckFailed, err
	}
	resource, verbs := mapping.Resource.GroupResource(), []string{"create", "patch"}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		if err := a.allowed(resource); err != nil {
			return reasonNotPermitted, err
		}
		reads = true
	}
	if reads {
		verbs = append(verbs, "get")
	}
	return a.permitted(ctx, resource, content.GetName(), verbs)
}

// permitted returns which verbs on a resource the initializer lacks, and the reason for the condition Ready.
func (a *Applier) permitted(ctx context.Context, resource schema.GroupResource, name string, verbs []string) (string, error) {
	var missing []string
	for _, verb := range verbs {
		review, err := a.Reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: resource.Group, Resource: resource.Resource, Name: name},
		}}, metav1.CreateOptions{})
		if err != nil {
			return reasonCheckFailed, fmt.Errorf("cannot check the permission to %s %s: %w", verb, resource, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	if len(missing) > 0 {
		return reasonNotPermitted, fmt.Errorf("grant the initializer the missing permission cluster-wide: %s on %s", strings.Join(missing, " and "), resource)
	}
	return "", nil
}

// Readiness returns the condition Ready of a population: whether each manifest could be applied to a new namespace. It
// does not check a manifest whose kind depends on the namespace.
func (a *Applier) Readiness(ctx context.Context, p *v1alpha1.NamespacePopulation) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: p.Generation,
		Reason: reasonApplicable, Message: "the initializer can apply every manifest"}
	if _, err := a.Compile(p); err != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ReasonInvalid, err.Error()
		return condition
	}
	a.Mapper.Reset() // a kind may have been removed from the cluster
	problems := 0
	for _, m := range Manifests(&p.Spec) {
		reason, err := a.checkManifest(ctx, m, p.Spec.Scope)
		if err == nil {
			continue
		}
		if problems++; problems == 1 || condition.Reason == reasonCheckFailed && reason != reasonCheckFailed {
			condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, printable.Lines(fmt.Sprintf("manifest %s: %v", m.Name, err))
		}
	}
	if condition.Reason == reasonCheckFailed {
		condition.Status = metav1.ConditionUnknown
	}
	if problems > 1 {
		condition.Message += fmt.Sprintf(" (and %d more, see kubectl nsinit preview)", problems-1)
	}
	return condition
}

// checkManifest checks the literal parts of a template.
func (a *Applier) checkManifest(ctx context.Context, m v1alpha1.PopulationManifest, scope v1alpha1.PopulationScopeType) (string, error) {
	if m.Name == metadataManifest {
		return a.mayDecorate(ctx)
	}
	literal, err := object(m.Template)
	if err != nil {
		return ReasonInvalid, err
	}
	content := &unstructured.Unstructured{Object: literal}
	if strings.Contains(content.GetAPIVersion()+content.GetKind(), "${") {
		return "", nil
	}
	if strings.Contains(content.GetName(), "${") {
		content.SetName("")
	}
	kind := content.GroupVersionKind()
	return a.Check(ctx, content, scope == v1alpha1.ScopeAll || m.ReadyWhen != "" || isQuota(kind.Group, kind.Kind))
}

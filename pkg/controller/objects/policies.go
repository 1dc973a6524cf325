/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/pkg/controller/configuration"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

// Reasons of the condition InForce.
const (
	// reasonVerified: kube-apiserver evaluates the policies that follow from the configuration.
	reasonVerified = "Verified"
	// reasonNotEvaluated: kube-apiserver does not evaluate the newest policies yet.
	reasonNotEvaluated = "NotEvaluated"
	// reasonNotSupported: kube-apiserver does not serve MutatingAdmissionPolicies.
	reasonNotSupported = "NotSupported"
	// reasonRejected: kube-apiserver does not compile an expression of this configuration. The others are in force without it.
	reasonRejected = "Rejected"
	// reasonNotInstalled: the component objects is not installed, so no object waits.
	reasonNotInstalled = "NotInstalled"
	// reasonError: the policies cannot be applied or verified.
	reasonError = "Error"
)

var (
	errNotEvaluated = errors.New("kube-apiserver does not evaluate the policies yet")
	errNotInstalled = errors.New("new pods and Jobs do not wait: install the component objects")
	errNotSupported = errors.New("kube-apiserver serves no MutatingAdmissionPolicy in version v1: initializers for pods and Jobs need Kubernetes 1.36")
)

const (
	// recheck is the least time between two verifications of policies that do not change: less than a period, so that each period has one.
	recheck = period / 2
	// rounds is how often kube-apiserver has to evaluate a new probe. It reads the policies one after the other, so the first probe can be
	// newer than what else it evaluates. When it evaluates a probe that was written after that, it evaluates all of them.
	rounds = 2

	policies = "mutatingadmissionpolicies"
	bindings = "mutatingadmissionpolicybindings"
)

// applied is a version of the policies.
type applied struct {
	version string
	// round counts the writes of the probe. It is 0 until all policies are written.
	round int
	// written has the policies and bindings as this session wrote them, see read.
	written map[string]string
	// checked is when kube-apiserver last evaluated the version, or zero.
	checked time.Time
}

// text is what the probe shows.
func (a *applied) text() string { return fmt.Sprintf("%s.%d", a.version, a.round) }

// reconcilePolicies brings the policies in line with all configurations, and writes their status.
func (s *session) reconcilePolicies(ctx context.Context, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) error {
	s.queue.AddAfter(keyPolicies, period)
	reason, message := reasonVerified, "kube-apiserver holds new pods and Jobs as this configuration says"
	err := s.hold(ctx, configurations, exempt)
	switch {
	case errors.Is(err, errNotEvaluated):
		reason, message, err = reasonNotEvaluated, err.Error(), nil
		s.delay = min(max(2*s.delay, verifyPeriod), maxRetryDelay)
		s.queue.AddAfter(keyPolicies, s.delay)
	case errors.Is(err, errNotInstalled):
		reason, message, err = reasonNotInstalled, errNotInstalled.Error(), nil
	case errors.Is(err, errNotSupported):
		reason, message, err = reasonNotSupported, err.Error(), nil
	case err != nil:
		reason, message = reasonError, err.Error()
	default:
		s.delay, s.keepUntil = 0, time.Time{}
	}
	effective, waiting, errs := s.registered(configurations), s.waiting(), []error{err}
	for _, c := range configurations {
		reason, message := reason, message
		if rejected, ok := s.rejectionOf(c); ok {
			reason, message = reasonRejected, rejected.why
		}
		errs = append(errs, s.writeStatus(ctx, c, reason, message, effective, waiting))
	}
	return errors.Join(errs...)
}

// versionOf identifies a version of an object without its status.
func versionOf(object metav1.Object) string {
	return fmt.Sprintf("%s/%s/%d", object.GetName(), object.GetUID(), object.GetGeneration())
}

// hold writes the policies, and verifies that kube-apiserver evaluates them.
func (s *session) hold(ctx context.Context, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) error {
	if exempt == nil {
		_, err := s.read(ctx) // the component may have been removed
		return errors.Join(err, fmt.Errorf("the ConfigMap %s/%s does not exist: apply the manifests or the chart of nsinit again", s.Namespace, installation.Exemptions))
	}
	s.retry(ctx, configurations, exempt)
	accepted, _ := s.divide(configurations)
	all, version, err := compile(accepted, exempt, s.Namespace)
	if err != nil {
		return err
	}
	current := &s.applied
	switch {
	case current.version != version:
		*current, s.delay = applied{version: version}, 0
	case !current.checked.IsZero() && s.Clock.Since(current.checked) < recheck:
		return nil
	}
	live, err := s.read(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(one compiled) bool { return one.Policy != nil && !isWritten(live, one.Name) }) {
		s.keepUntil = time.Time{} // what was in force was deleted, as with a former guard
	}
	next := applied{version: version, round: 1, written: live}
	if maps.Equal(live, current.written) { // otherwise, another client may have changed them
		shown, err := s.shown(ctx)
		if err != nil {
			return err
		}
		// kube-apiserver can evaluate a policy for a moment after it was deleted.
		after, err := s.read(ctx)
		switch {
		case err != nil:
			return err
		case shown != current.text() || !maps.Equal(live, after):
			return errNotEvaluated
		case current.round == rounds:
			current.checked = s.Clock.Now()
			return nil
		}
		next.round, s.delay = current.round+1, 0
		all = all[len(all)-1:] // only the probe
	}
	*current = applied{version: version} // until all of them are written
	shows := all[len(all)-1].Policy.Spec.Mutations[0].JSONPatch
	shows.Expression = strings.Replace(shows.Expression, "VERSION", next.text(), 1)
	for _, one := range all {
		if err := s.write(ctx, one, next.written); err != nil {
			if c := culprit(err, one.Policy, accepted); c != nil {
				s.rejected.Store(versionOf(c), rejection{err.Error(), s.Clock.Now()})
				return s.hold(ctx, configurations, exempt) // without the rejected one
			}
			return err
		}
	}
	*current = next
	return errNotEvaluated
}

// read returns the versions of the policies and their bindings, by resource and name. The error is that an object of the component does not
// exist, or that the guard is not that of the session, which then ends: kube-apiserver deletes its policies.
func (s *session) read(ctx context.Context) (map[string]string, error) {
	switch guard, err := s.installed(ctx); {
	case err != nil:
		return nil, err
	case guard != s.guard:
		s.end()
		return nil, fmt.Errorf("the policy %s was created or deleted", installation.ObjectsGuard)
	case guard == "":
		return nil, errNotInstalled
	}
	versions := map[string]string{}
	for _, resource := range []string{policies, bindings} {
		list, err := s.Metadata.Resource(registrations(resource)).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, errNotSupported
		case err != nil:
			return nil, fmt.Errorf("cannot list %s: %w", resource, err)
		}
		for i := range list.Items {
			if object := &list.Items[i]; strings.HasPrefix(object.Name, prefix) {
				versions[resource+"/"+object.Name] = s.stateOf(object)
			}
		}
		if versions[resource+"/"+installation.ObjectsRelease] == "" {
			return nil, fmt.Errorf("%s has no %s: apply the component objects again", resource, installation.ObjectsRelease)
		}
	}
	guards, err := s.Core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, installation.ObjectsGuard, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: apply the component objects again", err)
	case !slices.Contains(guards.Spec.ValidationActions, admissionregistrationv1.Deny) || guards.Spec.MatchResources != nil:
		return nil, fmt.Errorf("the binding of %s was changed: delete it, and apply the component objects again", installation.ObjectsGuard)
	}
	return versions, nil
}

// stateOf identifies a version of a policy or binding, and says whether it depends on the guard.
func (s *session) stateOf(object *metav1.PartialObjectMetadata) string {
	owned := slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.guard })
	return fmt.Sprintf("%s %t", versionOf(object), owned)
}

// isWritten says whether a policy and its binding exist, and depend on the guard.
func isWritten(versions map[string]string, name string) bool {
	return strings.HasSuffix(versions[policies+"/"+name], " true") && strings.HasSuffix(versions[bindings+"/"+name], " true")
}

func registrations(resource string) schema.GroupVersionResource {
	return admissionregistrationv1.SchemeGroupVersion.WithResource(resource)
}

// write writes a policy and its binding, and their versions. It deletes a policy that must not exist, and keeps its binding, which has no
// effect then: if the policy exists again, the binding is older than the probe.
func (s *session) write(ctx context.Context, one compiled, versions map[string]string) error {
	binding := admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: one.Name}
	if err := s.put(ctx, bindings, "MutatingAdmissionPolicyBinding", one.Name, binding, versions); err != nil {
		return err
	}
	if one.Policy != nil {
		return s.put(ctx, policies, "MutatingAdmissionPolicy", one.Name, one.Policy.Spec, versions)
	}
	delete(versions, policies+"/"+one.Name)
	return utilapierrors.IgnoreAbsent(s.Metadata.Resource(registrations(policies)).Delete(ctx, one.Name, metav1.DeleteOptions{}))
}

// put creates an object as a dependent of the guard, or replaces its spec: server-side apply would keep what another client added. Both
// are patches, for which the controller has rights only on these names.
func (s *session) put(ctx context.Context, resource, kind, name string, spec any, versions map[string]string, dryRun ...string) error {
	group := admissionregistrationv1.SchemeGroupVersion.String()
	owners := []metav1.OwnerReference{{APIVersion: group, Kind: "ValidatingAdmissionPolicy", Name: installation.ObjectsGuard, UID: s.guard}}
	metadata := map[string]any{"name": name, "ownerReferences": owners}
	patchType, patch := types.ApplyPatchType, any(map[string]any{"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec})
	if versions[resource+"/"+name] != "" {
		patchType, patch = types.JSONPatchType, []map[string]any{
			{"op": "add", "path": "/metadata/ownerReferences", "value": owners}, {"op": "replace", "path": "/spec", "value": spec}}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	written, err := s.Metadata.Resource(registrations(resource)).Patch(ctx, name, patchType, data, metav1.PatchOptions{FieldManager: installation.ControllerManager, DryRun: dryRun})
	if err != nil {
		return fmt.Errorf("cannot write %s/%s: %w", resource, name, err)
	}
	versions[resource+"/"+name] = s.stateOf(written)
	return nil
}

// shown creates the probe in a dry run. It returns what the policy for it shows.
func (s *session) shown(ctx context.Context) (string, error) {
	lease, err := s.Core.CoordinationV1().Leases(s.Namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: probe}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsAlreadyExists(err):
		return "", fmt.Errorf("%w in %s: delete this Lease, because nsinit creates it in dry runs", err, s.Namespace)
	case err != nil:
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// writeStatus writes the status of a configuration if it has changed. effective are the initializers that have an effect.
func (s *session) writeStatus(ctx context.Context, c *v1alpha1.InitializerConfiguration, reason, message string,
	effective map[string]*v1alpha1.Initializer, waiting map[string][]string,
) error {
	updated, now := c.DeepCopy(), s.Clock.Now()
	var names, inactive, shadowed []string
	for i := range c.Initializers {
		initializer := registered{&c.Initializers[i], c}
		names = append(names, initializer.Name)
		switch {
		case effective[initializer.Name] != initializer.Initializer:
			shadowed = append(shadowed, initializer.Name)
		case !initializer.isServed():
			inactive = append(inactive, initializer.Name)
		}
	}
	if reason == reasonVerified && len(inactive) > 0 {
		message += "; no object waits for " + strings.Join(inactive, ", ") + " before a program reports that it serves this initializer (activation WhenServed)"
	}
	if reason == reasonVerified && len(shadowed) > 0 && c.DeletionTimestamp == nil {
		message += "; the entries of " + strings.Join(shadowed, ", ") + " have no effect, because another configuration, whose name is less, has entries with these names"
	}
	if reason != reasonNotEvaluated || !now.Before(s.keepUntil) || !wasInForce(c) {
		setInForce(updated, reason, message, now)
	}
	updated.Status.ObservedGeneration = c.Generation
	if waiting != nil {
		updated.Status.PendingObjects = 0
	}
	for _, pending := range waiting {
		if slices.ContainsFunc(pending, func(name string) bool { return slices.Contains(names, name) }) {
			updated.Status.PendingObjects++
		}
	}
	if overdue := configuration.SetServed(names, &updated.Status.Initializers, c.Generation, now); overdue > 0 {
		s.queue.AddAfter(keyPolicies, overdue)
	}
	if equality.Semantic.DeepEqual(c.Status, updated.Status) {
		return nil
	}
	_, err := s.Nsinit.NsinitV1alpha1().InitializerConfigurations().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	return utilapierrors.IgnoreAbsent(err)
}

// wasInForce says whether this version of a configuration was in force, as an earlier session verified.
func wasInForce(c *v1alpha1.InitializerConfiguration) bool {
	condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionInForce)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == c.Generation
}

// setInForce sets the conditions of a configuration.
func setInForce(c *v1alpha1.InitializerConfiguration, reason, message string, now time.Time) {
	status := metav1.ConditionFalse
	if reason == reasonVerified {
		status = metav1.ConditionTrue
	}
	for _, kind := range []string{v1alpha1.ConditionInForce, v1alpha1.ConditionReady} {
		condition := metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: c.Generation, LastTransitionTime: metav1.NewTime(now)}
		meta.SetStatusCondition(&c.Status.Conditions, condition)
	}
}

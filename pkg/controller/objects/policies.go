/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/pkg/controller/configuration"
	"github.com/nsinit/nsinit/pkg/controller/gate"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
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
	// errNotEvaluated means that kube-apiserver does not evaluate a policy yet.
	errNotEvaluated = errors.New("kube-apiserver does not evaluate the policies yet")
	// errRejected means that kube-apiserver refuses a policy because of one configuration.
	errRejected = errors.New("kube-apiserver does not compile an expression of a configuration")
)

// recheck is the time between two verifications of policies that do not change.
const recheck = period

// applied is a version of a policy. The version is empty if no initializer acts on the resource.
type applied struct {
	version string
	// since is when the version became the current one, written when it was last applied, and checked when kube-apiserver last evaluated it.
	since, written, checked time.Time
	verified                bool
}

// reconcilePolicies brings the policies in line with all configurations, and writes their status.
func (s *session) reconcilePolicies(ctx context.Context, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) error {
	reason, message := reasonVerified, "kube-apiserver holds new pods and Jobs as this configuration says"
	err := s.hold(ctx, configurations, exempt)
	switch {
	case errors.Is(err, errNotEvaluated):
		reason, message, err = reasonNotEvaluated, errNotEvaluated.Error(), nil // without the resource, which can vary
		s.delay = min(max(2*s.delay, verifyPeriod), maxRetryDelay)
		s.queue.AddAfter(keyPolicies, s.delay)
	case isUnsupported(err):
		reason, message, err = reasonNotSupported, "kube-apiserver serves no MutatingAdmissionPolicy in version v1: initializers for pods and Jobs need Kubernetes 1.36", nil
	case err != nil:
		reason, message = reasonError, err.Error()
	default:
		s.delay = 0
	}
	effective, waiting, errs := ordered(configurations), s.waiting(), []error{err}
	for _, c := range configurations {
		reason, message := reason, message
		if why := s.rejected[versionOf(c)]; why != "" {
			reason, message = reasonRejected, why
		}
		errs = append(errs, s.writeStatus(ctx, c, reason, message, effective, waiting))
	}
	return errors.Join(errs...)
}

// versionOf identifies a version of a configuration.
func versionOf(c *v1alpha1.InitializerConfiguration) string {
	return fmt.Sprintf("%s/%s/%d", c.Name, c.UID, c.Generation)
}

// hold applies the policies, and verifies that kube-apiserver evaluates them.
func (s *session) hold(ctx context.Context, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) error {
	if exempt == nil {
		return fmt.Errorf("the ConfigMap %s/%s does not exist: apply the manifests or the chart of nsinit again", s.Namespace, installation.Exemptions)
	}
	accepted := slices.DeleteFunc(slices.Clone(configurations), func(c *v1alpha1.InitializerConfiguration) bool { return s.rejected[versionOf(c)] != "" })
	var errs []error
	for _, resource := range []string{"pods", "jobs"} {
		err := s.holdResource(ctx, resource, accepted, exempt)
		if errors.Is(err, errRejected) {
			return s.hold(ctx, configurations, exempt) // without the rejected one
		}
		if err != nil && (len(errs) == 0 || errs[0].Error() != err.Error()) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *session) holdResource(ctx context.Context, resource string, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) error {
	policy, version, err := compile(resource, configurations, exempt, s.Namespace)
	if err != nil {
		return err
	}
	current := s.policies[resource]
	if current.version == version && current.verified && s.Clock.Since(current.checked) < recheck {
		return nil
	}
	if current.version != version || current.since.IsZero() {
		current, s.delay = applied{version: version, since: s.Clock.Now()}, 0
	}
	current.verified, s.policies[resource] = false, current
	if current.written.IsZero() || s.Clock.Since(current.written) >= recheck { // another client may have changed it
		if err := s.apply(ctx, resource, policy); err != nil {
			if c := culprit(err, policy, configurations); c != nil {
				s.rejected[versionOf(c)] = err.Error()
				return errRejected
			}
			return err
		}
		current.written = s.Clock.Now()
		s.policies[resource] = current
	}
	before, err := s.identity(ctx, resource, version)
	if err != nil {
		return err
	}
	evaluated, err := s.evaluated(ctx, resource)
	if err != nil {
		return err
	}
	// kube-apiserver can evaluate a policy for a moment after it was deleted.
	after, err := s.identity(ctx, resource, version)
	if err != nil {
		return err
	}
	if before != after || !slices.Equal(evaluated, slices.DeleteFunc([]string{version}, func(version string) bool { return version == "" })) {
		return fmt.Errorf("%w: MutatingAdmissionPolicy %s", errNotEvaluated, policyName(resource))
	}
	if current.checked.IsZero() {
		klog.FromContext(ctx).Info("kube-apiserver evaluates the policies of the current configurations", "resource", resource, "after", s.Clock.Since(current.since))
	}
	current.verified, current.checked = true, s.Clock.Now()
	s.policies[resource] = current
	return nil
}

// apply applies the policy of a resource and its binding. It deletes them if the policy is nil.
func (s *session) apply(ctx context.Context, resource string, policy *admissionregistrationv1.MutatingAdmissionPolicy) error {
	if err := s.complete(ctx); err != nil {
		return err
	}
	empty := policy == nil
	if empty {
		policy = &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName(resource)}}
	}
	registrations := s.Core.AdmissionregistrationV1()
	guard := gate.OwnerOf("ValidatingAdmissionPolicy", installation.ObjectsGuard, registrations.ValidatingAdmissionPolicies().Get)
	policies, err := objectOf(registrations.MutatingAdmissionPolicies(), policy, guard)
	if err != nil {
		return err
	}
	bindings, err := objectOf(registrations.MutatingAdmissionPolicyBindings(), binding(resource), guard)
	if err != nil {
		return err
	}
	for _, object := range []gate.Object{policies, bindings} {
		if empty {
			_, err = object.Remove(ctx, metav1.DeleteOptions{})
		} else {
			err = object.Apply(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete returns an error if an object of the component does not exist, or if the guard is not that of the session: kube-apiserver then
// deletes the policies of the session.
func (s *session) complete(ctx context.Context) error {
	registrations := s.Core.AdmissionregistrationV1()
	_, releaseErr := registrations.MutatingAdmissionPolicies().Get(ctx, installation.ObjectsRelease, metav1.GetOptions{})
	if isUnsupported(releaseErr) {
		return releaseErr
	}
	releases, releasesErr := registrations.MutatingAdmissionPolicyBindings().Get(ctx, installation.ObjectsRelease, metav1.GetOptions{})
	guard, guardErr := registrations.ValidatingAdmissionPolicies().Get(ctx, installation.ObjectsGuard, metav1.GetOptions{})
	guards, guardsErr := registrations.ValidatingAdmissionPolicyBindings().Get(ctx, installation.ObjectsGuard, metav1.GetOptions{})
	if err := errors.Join(guardErr, guardsErr, releaseErr, releasesErr); err != nil {
		return fmt.Errorf("%w: apply the component objects again", err)
	}
	if !slices.Contains(guards.Spec.ValidationActions, admissionregistrationv1.Deny) || guards.Spec.MatchResources != nil || releases.Spec.MatchResources != nil {
		return fmt.Errorf("the bindings of %s and %s were changed: delete them, and apply the component objects again", installation.ObjectsGuard, installation.ObjectsRelease)
	}
	if guard.UID != s.guard {
		return fmt.Errorf("ValidatingAdmissionPolicy %s was created again", installation.ObjectsGuard)
	}
	return nil
}

// identity returns the UIDs of the policy of a resource and of its binding. Without a version, they need not exist.
func (s *session) identity(ctx context.Context, resource, version string) (uids [2]types.UID, err error) {
	if version == "" {
		return uids, nil
	}
	registrations := s.Core.AdmissionregistrationV1()
	policy, err := registrations.MutatingAdmissionPolicies().Get(ctx, policyName(resource), metav1.GetOptions{})
	if err == nil {
		uids[0] = policy.UID
		var binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
		if binding, err = registrations.MutatingAdmissionPolicyBindings().Get(ctx, policyName(resource), metav1.GetOptions{}); err == nil {
			if uids[1] = binding.UID; binding.Spec.MatchResources != nil {
				return uids, fmt.Errorf("MutatingAdmissionPolicyBinding %s has matchResources: delete it, and it is created again", policyName(resource))
			}
		}
	}
	if apierrors.IsNotFound(err) { // apply it again
		current := s.policies[resource]
		current.written = time.Time{}
		s.policies[resource] = current
		return uids, fmt.Errorf("%w: %w", errNotEvaluated, err)
	}
	return uids, err
}

// isUnsupported says whether kube-apiserver does not have a kind.
func isUnsupported(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "the server could not find the requested resource")
}

func objectOf[T, C any](client gate.Client[T, C], object any, owner gate.Owner) (gate.Object, error) {
	manifest, err := yaml.Marshal(object)
	if err != nil {
		return gate.Object{}, err
	}
	return gate.NewObject(client, installation.DefaultNamespace, string(manifest), owner)
}

// evaluated creates the probe in a dry run. It returns the names of initializers that kube-apiserver gave it.
func (s *session) evaluated(ctx context.Context, resource string) ([]string, error) {
	yes, no := true, false
	spec := corev1.PodSpec{ // as the level restricted of Pod Security demands
		RestartPolicy:   corev1.RestartPolicyNever,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "probe", Image: "none", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
	identity, options := metav1.ObjectMeta{Name: probe, Namespace: s.Namespace}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if resource == "pods" {
		pod, err := s.Core.CoreV1().Pods(s.Namespace).Create(ctx, &corev1.Pod{ObjectMeta: identity, Spec: spec}, options)
		if err != nil {
			return nil, err
		}
		return helper.PendingOfObject(pod), nil
	}
	job, err := s.Core.BatchV1().Jobs(s.Namespace).Create(ctx, &batchv1.Job{ObjectMeta: identity, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}, options)
	if err != nil {
		return nil, err
	}
	return helper.PendingOfObject(job), nil
}

// writeStatus writes the status of a configuration if it has changed.
func (s *session) writeStatus(ctx context.Context, c *v1alpha1.InitializerConfiguration, reason, message string, effective []registered, waiting [][]string) error {
	updated, names, now := c.DeepCopy(), make([]string, 0, len(c.Initializers)), s.Clock.Now()
	for _, initializer := range c.Initializers {
		names = append(names, initializer.Name)
	}
	if reason == reasonVerified {
		inactive, shadowed := sets.New[string](), sets.New(names...)
		for _, initializer := range effective {
			if initializer.configuration == c {
				shadowed.Delete(initializer.Name)
				if !initializer.isServed() {
					inactive.Insert(initializer.Name)
				}
			}
		}
		if len(inactive) > 0 {
			message += "; no object waits for " + strings.Join(sets.List(inactive), ", ") + " before a program reports that it serves this initializer (activation WhenServed)"
		}
		if len(shadowed) > 0 && c.DeletionTimestamp == nil {
			message += "; the entries of " + strings.Join(sets.List(shadowed), ", ") + " have no effect, because another configuration, whose name is less, has entries with these names"
		}
	}
	setInForce(updated, reason, message, now)
	updated.Status.ObservedGeneration, updated.Status.PendingObjects = c.Generation, 0
	for _, pending := range waiting {
		if slices.ContainsFunc(pending, func(name string) bool { return slices.Contains(names, name) }) {
			updated.Status.PendingObjects++
		}
	}
	if overdue := configuration.SetServed(names, &updated.Status.Initializers, c.Generation, now); overdue > 0 {
		s.queue.AddAfter(keyPolicies, overdue)
	}
	return s.updateStatus(ctx, c, updated)
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

func (c *Controller) updateStatus(ctx context.Context, old, updated *v1alpha1.InitializerConfiguration) error {
	if equality.Semantic.DeepEqual(old.Status, updated.Status) {
		return nil
	}
	_, err := c.Nsinit.NsinitV1alpha1().InitializerConfigurations().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	return utilapierrors.IgnoreAbsent(err)
}

// notInstalled writes that no configuration is in force.
func (c *Controller) notInstalled(ctx context.Context) error {
	configurations, err := c.Nsinit.NsinitV1alpha1().InitializerConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range configurations.Items {
		old := &configurations.Items[i]
		updated := old.DeepCopy()
		setInForce(updated, reasonNotInstalled, "no object waits: install the component objects", c.Clock.Now())
		errs = append(errs, c.updateStatus(ctx, old, updated))
	}
	return errors.Join(errs...)
}

// waiting returns the pending initializers of each object that waits.
func (s *session) waiting() (all [][]string) {
	for _, informer := range s.stores {
		for _, object := range informer.GetStore().List() {
			if accessor, ok := object.(metav1.Object); ok {
				if pending := helper.PendingOfObject(accessor); len(pending) > 0 {
					all = append(all, pending)
				}
			}
		}
	}
	return all
}

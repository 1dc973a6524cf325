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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// errNotEvaluated means that kube-apiserver does not evaluate a policy yet.
var errNotEvaluated = errors.New("kube-apiserver does not evaluate the policies yet")

// recheck is the least time between two verifications of policies that do not change: less than a period, so that each period has one.
const recheck = period / 2

// applied is a version of the policies.
type applied struct {
	version string
	// since is when the version became the current one, and checked when kube-apiserver last evaluated it, or zero.
	since, checked time.Time
	// written identifies the objects as this session wrote them.
	written string
	// round counts the writes of the probe. kube-apiserver reads the policies one after the other, so a probe can be newer than what else it
	// evaluates. When it evaluates a probe that was written after that, it evaluates all of them.
	round int
}

// reconcilePolicies brings the policies in line with all configurations, and writes their status.
func (s *session) reconcilePolicies(ctx context.Context, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) error {
	reason, message := reasonVerified, "kube-apiserver holds new pods and Jobs as this configuration says"
	err := s.hold(ctx, configurations, exempt)
	switch {
	case errors.Is(err, errNotEvaluated):
		reason, message, err = reasonNotEvaluated, errNotEvaluated.Error(), nil
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

// hold writes the policies, and verifies that kube-apiserver evaluates them.
func (s *session) hold(ctx context.Context, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) error {
	if exempt == nil {
		return fmt.Errorf("the ConfigMap %s/%s does not exist: apply the manifests or the chart of nsinit again", s.Namespace, installation.Exemptions)
	}
	accepted := slices.DeleteFunc(slices.Clone(configurations), func(c *v1alpha1.InitializerConfiguration) bool { return s.rejected[versionOf(c)] != "" })
	policies, version, err := compile(accepted, exempt, s.Namespace)
	if err != nil {
		return err
	}
	current := &s.applied
	switch {
	case current.version != version:
		*current, s.delay = applied{version: version, since: s.Clock.Now()}, 0
	case !current.checked.IsZero() && s.Clock.Since(current.checked) < recheck:
		return nil
	}
	first := current.checked.IsZero()
	current.checked = time.Time{}
	before, changed, err := s.identity(ctx)
	if err != nil {
		return err
	}
	if before != current.written || before == "" { // another client may have changed them
		if err := s.discard(ctx, changed); err != nil {
			return err
		}
		for _, one := range policies[:len(policies)-1] {
			if err := s.write(ctx, one); err != nil {
				if c := culprit(err, one.Policy, accepted); c != nil {
					s.rejected[versionOf(c)] = err.Error()
					return s.hold(ctx, configurations, exempt) // without the rejected one
				}
				return err
			}
		}
		current.round = 0
		return s.showNext(ctx, policies[len(policies)-1])
	}
	evaluated, err := s.evaluated(ctx)
	if err != nil {
		return err
	}
	// kube-apiserver can evaluate a policy for a moment after it was deleted.
	after, _, err := s.identity(ctx)
	if err != nil {
		return err
	}
	switch {
	case before != after || !slices.Equal(evaluated, []string{current.shown()}):
		return errNotEvaluated
	case current.round == 1:
		s.delay = 0
		return s.showNext(ctx, policies[len(policies)-1])
	case first:
		klog.FromContext(ctx).Info("kube-apiserver evaluates the policies of the current configurations", "after", s.Clock.Since(current.since))
	}
	current.checked = s.Clock.Now()
	return nil
}

// shown is what the probe shows.
func (a *applied) shown() string { return fmt.Sprintf("%s.%d", a.version, a.round) }

// showNext writes the probe again, and remembers what was written.
func (s *session) showNext(ctx context.Context, last compiled) (err error) {
	s.applied.round, s.applied.written = s.applied.round+1, ""
	if err = s.write(ctx, compiled{last.Name, show(last.Policy, s.applied.shown())}); err == nil {
		if s.applied.written, _, err = s.identity(ctx); err == nil {
			err = errNotEvaluated
		}
	}
	return err
}

// discard deletes policies and their bindings. Server-side apply would keep what another client added to them.
func (s *session) discard(ctx context.Context, names sets.Set[string]) error {
	registrations := s.Core.AdmissionregistrationV1()
	var errs []error
	for _, name := range sets.List(names) {
		klog.FromContext(ctx).Info("Another client changed a policy or its binding: it is written again", "name", name)
		errs = append(errs, utilapierrors.IgnoreAbsent(registrations.MutatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})),
			utilapierrors.IgnoreAbsent(registrations.MutatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})))
	}
	return errors.Join(errs...)
}

// write applies a policy and its binding. It deletes a policy that must not exist, and keeps its binding, which has no effect then: if the
// policy exists again, the binding is older than the probe.
func (s *session) write(ctx context.Context, one compiled) error {
	registrations := s.Core.AdmissionregistrationV1()
	guard := gate.OwnerOf("ValidatingAdmissionPolicy", installation.ObjectsGuard, registrations.ValidatingAdmissionPolicies().Get)
	bindings, err := objectOf(registrations.MutatingAdmissionPolicyBindings(), binding(one.Name), guard)
	if err != nil {
		return err
	}
	if err := bindings.Apply(ctx); err != nil {
		return err
	}
	if one.Policy == nil {
		return utilapierrors.IgnoreAbsent(registrations.MutatingAdmissionPolicies().Delete(ctx, one.Name, metav1.DeleteOptions{}))
	}
	policies, err := objectOf(registrations.MutatingAdmissionPolicies(), one.Policy, guard)
	if err != nil {
		return err
	}
	return policies.Apply(ctx)
}

// identity returns what identifies the versions of the policies and their bindings, and the names of those in which another client owns a part
// of the spec. The error is that an object of the component does not exist, or that the guard is not that of the session: kube-apiserver then
// deletes the policies of the session.
func (s *session) identity(ctx context.Context) (identity string, changed sets.Set[string], err error) {
	registrations := s.Core.AdmissionregistrationV1()
	policies, err := registrations.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if isUnsupported(err) {
		return "", nil, err
	}
	bindings, bindingsErr := registrations.MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	guard, guardErr := registrations.ValidatingAdmissionPolicies().Get(ctx, installation.ObjectsGuard, metav1.GetOptions{})
	guards, guardsErr := registrations.ValidatingAdmissionPolicyBindings().Get(ctx, installation.ObjectsGuard, metav1.GetOptions{})
	if err := errors.Join(err, bindingsErr, guardErr, guardsErr); err != nil {
		return "", nil, fmt.Errorf("%w: apply the component objects again", err)
	}
	if guard.UID != s.guard {
		return "", nil, fmt.Errorf("ValidatingAdmissionPolicy %s was created again", installation.ObjectsGuard)
	}
	if !slices.Contains(guards.Spec.ValidationActions, admissionregistrationv1.Deny) || guards.Spec.MatchResources != nil {
		return "", nil, fmt.Errorf("the binding of %s was changed: delete it, and apply the component objects again", installation.ObjectsGuard)
	}
	released := 0
	changed = sets.New[string]()
	versions := func(object *metav1.ObjectMeta) {
		switch {
		case object.Name == installation.ObjectsRelease:
			released++
		case strings.HasPrefix(object.Name, prefix):
			identity += fmt.Sprintf("%s/%s/%d ", object.Name, object.UID, object.Generation)
			if slices.ContainsFunc(object.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
				return entry.Manager != installation.ControllerManager && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:spec"`)
			}) {
				changed.Insert(object.Name)
			}
		}
	}
	for i := range policies.Items {
		versions(&policies.Items[i].ObjectMeta)
	}
	for i := range bindings.Items {
		versions(&bindings.Items[i].ObjectMeta)
	}
	if released < 2 {
		return "", nil, fmt.Errorf("the policy %s or its binding does not exist: apply the component objects again", installation.ObjectsRelease)
	}
	return identity, changed, nil
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

// evaluated creates the probe in a dry run. It returns what the policy for it shows.
func (s *session) evaluated(ctx context.Context) ([]string, error) {
	yes, no := true, false
	pod, err := s.Core.CoreV1().Pods(s.Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: probe, Namespace: s.Namespace},
		Spec: corev1.PodSpec{ // as the level restricted of Pod Security demands
			RestartPolicy:   corev1.RestartPolicyNever,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "probe", Image: "none", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	return helper.PendingOfObject(pod), nil
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
		setInForce(updated, reasonNotInstalled, "new pods and Jobs do not wait: install the component objects", c.Clock.Now())
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

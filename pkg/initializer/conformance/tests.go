/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testOrder: the initializer does nothing before its turn, and everything before the next
// one's.
func (s *suite) testOrder(t *testing.T) {
	s.register(t, "0", before)
	s.register(t, "zz", after)
	s.start(t)
	first, second := s.create(t, uniqueName()), s.create(t, uniqueName())
	s.waitTurn(t, first, before)
	s.waitTurn(t, second, before)
	// The second one goes through, so the initializer has had every occasion to act on the
	// first one.
	s.done(t, second, before)
	s.waitTurn(t, second, after)
	if err := s.Check(t.Context(), second); err != nil {
		t.Errorf("the initializer has removed itself, but: %v", err)
	}
	s.waitTurn(t, first, before)
	if err := s.Check(t.Context(), first); err == nil {
		t.Error("the initializer acted before its turn")
	}
	for _, namespace := range []*corev1.Namespace{first, second} {
		if namespace == first {
			s.done(t, first, before)
		}
		s.done(t, namespace, after)
		s.waitOpen(t, namespace)
	}
}

// testRetry: everything that the initializer writes into the namespace is refused for a while.
func (s *suite) testRetry(t *testing.T) {
	name := uniqueName()
	lift := s.refuse(t, name)
	s.start(t)
	namespace := s.create(t, name)
	s.until(t, "the initializer has its turn", func(ctx context.Context) error {
		record, err := s.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, status := range record.Status.Initializers {
			// Either it says what is wrong, or it writes nothing into namespaces.
			if status.Name == s.Name && (status.Message != "" || status.EndTime != nil) {
				return nil
			}
		}
		return fmt.Errorf("the initializers are %+v", record.Status.Initializers)
	})
	lift()
	s.waitOpen(t, namespace)
}

// refuse has a policy refuse every write into a namespace but those of Kubernetes itself, and
// returns what ends that.
func (s *suite) refuse(t *testing.T, namespace string) (lift func()) {
	t.Helper()
	deny := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	policies, bindings := s.core.AdmissionregistrationV1().ValidatingAdmissionPolicies(), s.core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	meta := metav1.ObjectMeta{Name: namespace}
	if _, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: deny, Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}, Scope: new(admissionregistrationv1.NamespacedScope)},
			}}},
		},
		MatchConditions: []admissionregistrationv1.MatchCondition{{
			Name:       "namespace", // and an object elsewhere, by which one can see that the policy is in force
			Expression: fmt.Sprintf("request.namespace == %[1]q || request.namespace == 'default' && object.metadata.?name.orValue('') == %[1]q", namespace),
		}},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "request.userInfo.username.startsWith('system:serviceaccount:kube-system:') || request.userInfo.username.startsWith('system:kube-')",
			Message:    "refused by the conformance test, for a while",
		}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	lift = func() {
		_ = bindings.Delete(context.Background(), namespace, metav1.DeleteOptions{})
		_ = policies.Delete(context.Background(), namespace, metav1.DeleteOptions{})
	}
	t.Cleanup(lift)
	if _, err := bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the policy is in force", func(ctx context.Context) error {
		_, err := s.core.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it refuses nothing")
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return err
		}
		return nil
	})
	return lift
}

// testCrash: the initializer is killed again and again while namespaces are made. Each is open
// in the end, with everything in it.
func (s *suite) testCrash(t *testing.T) {
	kill := s.start(t)
	var namespaces []*corev1.Namespace
	for i := range s.Namespaces {
		namespaces = append(namespaces, s.create(t, uniqueName()))
		if i%3 == 2 {
			// Later each time, so that it is hit at different steps of its work.
			s.waitBegun(t, namespaces[i])
			select {
			case <-t.Context().Done():
			case <-time.After(time.Duration(i/3) * 50 * time.Millisecond):
			}
			kill()
			kill = s.start(t)
		}
	}
	for _, namespace := range namespaces {
		s.waitOpen(t, namespace)
	}
	for _, namespace := range namespaces {
		s.remove(t, namespace)
	}
	kill()
	s.start(t)
	for _, namespace := range namespaces {
		s.waitGone(t, namespace)
	}
}

// waitBegun waits until the initializer has its turn, or had it.
func (s *suite) waitBegun(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	s.until(t, "the turn of the initializer in "+namespace.Name, func(ctx context.Context) error {
		record, err := s.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, status := range record.Status.Initializers {
			if status.Name == s.Name && status.StartTime != nil {
				return nil
			}
		}
		return fmt.Errorf("the initializers are %+v", record.Status.Initializers)
	})
}

// testDeletionWhileInitializing: a namespace is deleted in the midst of its initialization.
func (s *suite) testDeletionWhileInitializing(t *testing.T) {
	s.register(t, "zz", after)
	s.start(t)
	var namespaces []*corev1.Namespace
	for range s.Namespaces {
		namespace := s.create(t, uniqueName())
		s.remove(t, namespace) // at once, wherever the initializer is
		namespaces = append(namespaces, namespace)
	}
	for _, namespace := range namespaces {
		s.waitGone(t, namespace)
	}
	namespace := s.create(t, uniqueName())
	s.waitTurn(t, namespace, after) // the initializer has acted
	s.remove(t, namespace)
	s.waitGone(t, namespace)
}

// testDeletionBeforeItsTurn: a namespace is deleted before the initializer had its turn.
func (s *suite) testDeletionBeforeItsTurn(t *testing.T) {
	s.register(t, "0", before)
	s.start(t)
	namespace := s.create(t, uniqueName())
	s.waitTurn(t, namespace, before)
	s.remove(t, namespace)
	s.waitGone(t, namespace)
}

// testSameNameAgain: a namespace is deleted and created again while the initializer is away.
// What it finds is another namespace, which needs everything.
func (s *suite) testSameNameAgain(t *testing.T) {
	kill := s.start(t)
	former := s.create(t, uniqueName())
	s.waitOpen(t, former)
	s.remove(t, former)
	kill()
	s.start(t)
	s.waitGone(t, former)
	namespace := s.create(t, former.Name)
	s.waitOpen(t, namespace)
}

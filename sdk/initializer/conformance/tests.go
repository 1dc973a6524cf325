/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// testOrder: the initializer does nothing before its turn, and everything before the next turn.
func (s *suite) testOrder(t *testing.T) {
	s.register(t, "0", before)
	s.register(t, "zz", after)
	s.start(t)
	first, second := s.create(t, uniqueName()), s.create(t, uniqueName())
	s.waitTurn(t, first, before)
	s.waitTurn(t, second, before)
	// The turn in the second one proves that the initializer had time to act on the first one.
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

// testRetry: a policy refuses what the initializer writes to the namespace, and is deleted later.
func (s *suite) testRetry(t *testing.T) {
	name := uniqueName()
	lift := s.refuse(t, name)
	s.start(t)
	namespace := s.create(t, name)
	// An initializer that reports no error writes nothing to namespaces, and is done.
	s.waitEntry(t, name, "an error or the end of the turn", func(entry *v1alpha1.InitializerStatus) bool {
		return entry.Message != "" || entry.EndTime != nil
	})
	lift()
	s.waitOpen(t, namespace)
}

// refuse creates a policy that refuses every write to a namespace except those of Kubernetes, and those for which one of the CEL
// expressions is true. lift deletes it.
func (s *suite) refuse(t *testing.T, namespace string, except ...string) (lift func()) {
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
			Name:       "namespace", // and an object of another namespace, which shows whether the policy is in force
			Expression: fmt.Sprintf("request.namespace == %[1]q || request.namespace == 'default' && object.metadata.?name.orValue('') == %[1]q", namespace),
		}},
		Validations: []admissionregistrationv1.Validation{{
			Expression: strings.Join(append(except, "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')", "request.userInfo.username.startsWith('system:kube-')"), " || "),
			Message:    "refused by the conformance test",
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

// testCrash: the initializer is killed repeatedly while namespaces are created. All of them open, with all contents.
func (s *suite) testCrash(t *testing.T) {
	kill := s.start(t)
	var namespaces []*corev1.Namespace
	for i := range s.Namespaces {
		namespaces = append(namespaces, s.create(t, uniqueName()))
		if i%3 == 2 {
			s.waitEntry(t, namespaces[i].Name, "the turn of the initializer", func(entry *v1alpha1.InitializerStatus) bool { return entry.StartTime != nil })
			kill = s.restart(t, kill, time.Duration(i/3)*50*time.Millisecond) // the delay grows, so that the kill hits different steps
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

// testDeletionWhileInitializing: a namespace is deleted during its initialization.
func (s *suite) testDeletionWhileInitializing(t *testing.T) {
	s.register(t, "zz", after)
	s.start(t)
	var namespaces []*corev1.Namespace
	for range s.Namespaces {
		namespace := s.create(t, uniqueName())
		s.remove(t, namespace)
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

// testSameNameAgain: a namespace is deleted and created again while the initializer does not run. The new namespace
// needs all contents.
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

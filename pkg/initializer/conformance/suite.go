/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

const (
	// before and after are initializers of the suite's, around the one that is tested.
	before = "before.conformance.nsinit.dev"
	after  = "after.conformance.nsinit.dev"
	// interval is how often a condition is looked at.
	interval = 50 * time.Millisecond
)

// Suite says what is tested, and where.
type Suite struct {
	// Config is an administrator's, on a cluster with nsinit. Required.
	Config *rest.Config
	// Name is the name of the initializer. It must be registered, in one configuration,
	// whose name is neither the first nor the last in the order of names: the suite's begin
	// with 0-conformance- and zz-conformance-. Required.
	Name string
	// Start starts the initializer, and returns what kills it at once, in the midst of
	// whatever it does, as kill -9 would. Both are called many times. Required.
	Start func(t *testing.T) (kill func())
	// Check says what is missing of that which the initializer brings to a namespace, or nil.
	// Required.
	Check func(ctx context.Context, namespace *corev1.Namespace) error
	// Left says what the initializer left behind of a namespace that is gone, or nil. For
	// initializers that make something outside of the namespace.
	Left func(ctx context.Context, namespace *corev1.Namespace) error
	// Create makes a namespace as the initializer expects one, if it does not work with any.
	Create func(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Namespace, error)
	// Patience is how long anything may take, a minute if it is zero.
	Patience time.Duration
	// Namespaces is how many are made at once where the initializer is killed, 10 if it is
	// zero.
	Namespaces int
}

// suite is a Suite at work.
type suite struct {
	Suite
	core   kubernetes.Interface
	nsinit versioned.Interface
}

// Run runs every test.
func Run(t *testing.T, s Suite) {
	t.Helper()
	if s.Config == nil || s.Name == "" || s.Start == nil || s.Check == nil {
		t.Fatal("Config, Name, Start and Check are required")
	}
	s.Patience, s.Namespaces = cmp.Or(s.Patience, time.Minute), cmp.Or(s.Namespaces, 10)
	core, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	nsinit, err := versioned.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	at := &suite{Suite: s, core: core, nsinit: nsinit}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Order", at.testOrder},
		{"Retry", at.testRetry},
		{"Crash", at.testCrash},
		{"DeletionWhileInitializing", at.testDeletionWhileInitializing},
		{"DeletionBeforeItsTurn", at.testDeletionBeforeItsTurn},
		{"SameNameAgain", at.testSameNameAgain},
	} {
		t.Run(test.name, test.run)
	}
}

// until waits for a condition, which returns nil when it holds.
func (s *suite) until(t *testing.T, what string, holds func(ctx context.Context) error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), interval, s.Patience, true, func(ctx context.Context) (bool, error) {
		err := holds(ctx)
		if err == nil || ctx.Err() == nil { // the end of patience says nothing of the condition
			last = err
		}
		return err == nil, nil
	}); err != nil {
		t.Fatalf("waited %s until %s: %v", s.Patience, what, last)
	}
}

// start starts the initializer until the test ends, and returns what kills it before.
func (s *suite) start(t *testing.T) (kill func()) {
	t.Helper()
	end, ended := s.Start(t), false
	kill = func() {
		if !ended {
			ended = true
			end()
		}
	}
	t.Cleanup(kill)
	return kill
}

// register registers an initializer of the suite's, until the test ends.
func (s *suite) register(t *testing.T, configuration, name string) {
	t.Helper()
	client := s.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	configuration += "-conformance-" + uuid.NewString()[:8]
	if _, err := client.Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration}, Initializers: []v1alpha1.RegisteredInitializer{{Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.Background(), configuration, metav1.DeleteOptions{}); err != nil {
			t.Errorf("cannot remove configuration %q, which every new namespace waits for: %v", configuration, err)
		}
		s.waitPlanned(t, name, false)
	})
	s.waitPlanned(t, name, true)
}

// waitPlanned waits until new namespaces get an initializer, or do not any more.
func (s *suite) waitPlanned(t *testing.T, name string, planned bool) {
	t.Helper()
	deadline := time.Now().Add(s.Patience)
	for {
		found, err := s.isPlanned(name)
		if err == nil && found == planned {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s until %q is planned: %t, %v", s.Patience, name, found, err)
		}
	}
}

// isPlanned makes a namespace to see which initializers it gets.
func (s *suite) isPlanned(name string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
	defer cancel()
	namespaces := s.core.CoreV1().Namespaces()
	probe, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "conformance-probe-"}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	defer func() { _ = namespaces.Delete(context.WithoutCancel(ctx), probe.Name, metav1.DeleteOptions{}) }()
	var record *v1alpha1.NamespaceLifecycle
	if err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		record, err = s.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, probe.Name, metav1.GetOptions{})
		return err == nil, nil
	}); err != nil {
		return false, err
	}
	for _, entry := range record.Spec.Plan {
		if entry.Name == name {
			return true, nil
		}
	}
	return false, nil
}

// create makes a namespace, and deletes it when the test ends.
func (s *suite) create(t *testing.T, name string) *corev1.Namespace {
	t.Helper()
	var namespace *corev1.Namespace
	var err error
	if s.Create != nil {
		namespace, err = s.Create(t.Context(), s.core, name)
	} else {
		namespace, err = s.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.core.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return namespace
}

func uniqueName() string { return "conformance-" + uuid.NewString()[:8] }

func (s *suite) remove(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	if err := s.core.CoreV1().Namespaces().Delete(t.Context(), namespace.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &namespace.UID}}); err != nil {
		t.Fatal(err)
	}
}

// waitTurn waits until it is an initializer's turn.
func (s *suite) waitTurn(t *testing.T, namespace *corev1.Namespace, name string) {
	t.Helper()
	s.until(t, fmt.Sprintf("it is the turn of %q in %s", name, namespace.Name), func(ctx context.Context) error {
		record, err := s.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace.Name, metav1.GetOptions{})
		if err == nil && record.Status.CurrentInitializer != name {
			err = fmt.Errorf("it is the turn of %q: %+v", record.Status.CurrentInitializer, record.Status.Initializers)
		}
		return err
	})
}

// done removes an initializer of the suite's.
func (s *suite) done(t *testing.T, namespace *corev1.Namespace, name string) {
	t.Helper()
	s.waitTurn(t, namespace, name)
	client := s.nsinit.NsinitV1alpha1().NamespaceLifecycles()
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		record, err := client.Get(t.Context(), namespace.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
		_, err = client.Initialize(t.Context(), namespace.Name, record, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// waitOpen waits until a namespace is open, and looks for what the initializer brings.
func (s *suite) waitOpen(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	s.until(t, namespace.Name+" is open", func(ctx context.Context) error {
		current, err := s.core.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if helper.IsClosed(current) {
			return fmt.Errorf("its conditions are %+v", current.Status.Conditions)
		}
		return nil
	})
	if err := s.Check(t.Context(), namespace); err != nil {
		t.Errorf("%s is open, but: %v", namespace.Name, err)
	}
}

// waitGone waits until a namespace is gone, and looks for what was left behind.
func (s *suite) waitGone(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	s.until(t, namespace.Name+" is gone", func(ctx context.Context) error {
		current, err := s.core.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && current.UID != namespace.UID {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
	if s.Left != nil {
		if err := s.Left(t.Context(), namespace); err != nil {
			t.Errorf("%s is gone, but: %v", namespace.Name, err)
		}
	}
}

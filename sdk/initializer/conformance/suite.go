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
	"sync"
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

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
)

const (
	// before, after and alongside are the suite's initializers. Their turns are before and after the turn of the tested one,
	// and at the same time.
	before    = "before.conformance.nsinit.dev"
	after     = "after.conformance.nsinit.dev"
	alongside = "alongside.conformance.nsinit.dev"
	// interval is the time between two checks of a condition.
	interval = 50 * time.Millisecond
)

// Suite describes the initializer and the cluster.
type Suite struct {
	// Config is that of an administrator of a cluster with nsinit. Required.
	Config *rest.Config
	// Name is the name of the initializer. If Check is set, exactly one NamespaceInitializerConfiguration registers the
	// initializer. The name of this configuration sorts between 0-conformance- and zz-conformance-, the prefixes of the
	// suite's configurations. Required.
	Name string
	// Start starts the initializer, and returns a function that kills it at any step, as kill -9 does. Both are called
	// many times. Required.
	Start func(t *testing.T) (kill func())
	// Check returns an error if contents of the initializer are missing in a namespace. Required, unless CheckObject is set.
	Check func(ctx context.Context, namespace *corev1.Namespace) error
	// CheckObject, if it is not nil, gets a *corev1.Pod or a *batchv1.Job, and returns an error if the initializer has not
	// acted on it. Before the turn of the initializer, it must return an error. It is for initializers of objects. Exactly one
	// InitializerConfiguration registers the initializer. Its name sorts between 0-conformance- and zz-conformance-. It
	// selects the namespaces of the suite, whose objects wait for no other initializer.
	CheckObject func(ctx context.Context, object initializer.Object) error
	// Pod is the specification of pods, and of the pods of Jobs. None of them runs. The suite replaces the scheduling gates of
	// pods. By default, there is one container, and RestartPolicy is Never.
	Pod corev1.PodSpec
	// Left, if it is not nil, returns an error if the initializer has not cleaned up after a namespace that does not
	// exist any more. It is for initializers that create something outside of the namespace.
	Left func(ctx context.Context, namespace *corev1.Namespace) error
	// Create, if it is not nil, creates the namespaces, for an initializer that does not accept every namespace.
	Create func(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Namespace, error)
	// Patience bounds each wait. Zero means five minutes.
	Patience time.Duration
	// Namespaces is the number of namespaces or objects that a crash test creates, and of namespaces that
	// DeletionWhileInitializing creates. Zero means 10.
	Namespaces int
}

// suite is a Suite with its clients.
type suite struct {
	Suite
	core   kubernetes.Interface
	nsinit versioned.Interface
	// created are the names of the namespaces that the suite has created.
	created []string
}

// Run runs every test.
func Run(t *testing.T, s Suite) {
	t.Helper()
	if s.Config == nil || s.Name == "" || s.Start == nil || s.Check == nil && s.CheckObject == nil {
		t.Fatal("Config, Name, Start, and Check or CheckObject are required")
	}
	if len(s.Pod.Containers) == 0 {
		s.Pod.Containers = []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause"}}
	}
	s.Pod.RestartPolicy = cmp.Or(s.Pod.RestartPolicy, corev1.RestartPolicyNever)
	s.Patience, s.Namespaces = cmp.Or(s.Patience, 5*time.Minute), cmp.Or(s.Namespaces, 10)
	if s.Create == nil {
		s.Create = func(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Namespace, error) {
			return client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		}
	}
	core, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	nsinit, err := versioned.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	at := &suite{Suite: s, core: core, nsinit: nsinit}
	if s.Check != nil {
		t.Run("Order", at.testOrder)
		t.Run("Alongside", at.testAlongside)
		t.Run("Retry", at.testRetry)
		t.Run("Crash", at.testCrash)
		t.Run("DeletionWhileInitializing", at.testDeletionWhileInitializing)
		t.Run("DeletionBeforeItsTurn", at.testDeletionBeforeItsTurn)
		t.Run("SameNameAgain", at.testSameNameAgain)
	}
	if s.CheckObject != nil {
		t.Run("Objects", at.testObjects)
	}
	if !t.Failed() {
		t.Run("Cleanup", at.testCleanup)
	}
}

// testCleanup: nothing of the suite is left. The initializer may have to clean up after namespaces that were deleted while it did not run.
func (s *suite) testCleanup(t *testing.T) {
	s.start(t)
	for _, name := range s.created {
		s.until(t, fmt.Sprintf("namespace %q is removed", name), func(ctx context.Context) error {
			_, err := s.core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return cmp.Or(err, errors.New("it exists"))
		})
	}
}

// until waits for a condition, which returns nil when it holds. It also works in a Cleanup.
func (s *suite) until(t *testing.T, what string, holds func(ctx context.Context) error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), interval, s.Patience, true, func(ctx context.Context) (bool, error) {
		err := holds(ctx)
		if err == nil || ctx.Err() == nil { // a timeout is not a result
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
	kill = sync.OnceFunc(s.Start(t))
	t.Cleanup(kill)
	return kill
}

// restart kills the initializer after a delay, and starts it again.
func (s *suite) restart(t *testing.T, kill func(), delay time.Duration) (killAgain func()) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(delay):
	}
	kill()
	return s.start(t)
}

// register registers an initializer of the suite until the test ends.
func (s *suite) register(t *testing.T, configuration, name string) {
	t.Helper()
	s.registerOrdered(t, configuration, name, nil)
}

// registerOrdered registers an initializer of the suite with an ordering until the test ends.
func (s *suite) registerOrdered(t *testing.T, configuration, name string, ordering *v1alpha1.InitializerOrdering) {
	t.Helper()
	client := s.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	configuration += "-conformance-" + uuid.NewString()[:8]
	if _, err := client.Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration}, Initializers: []v1alpha1.RegisteredInitializer{{Name: name, Ordering: ordering}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.Background(), configuration, metav1.DeleteOptions{}); err != nil {
			t.Errorf("cannot delete configuration %q, so every new namespace waits for its initializer: %v", configuration, err)
		}
		s.waitPlanned(t, name, false)
	})
	s.waitPlanned(t, name, true)
}

// waitPlanned waits until an initializer is, or is not, in the plan of new namespaces.
func (s *suite) waitPlanned(t *testing.T, name string, planned bool) {
	t.Helper()
	s.until(t, fmt.Sprintf("%q is planned: %t", name, planned), func(ctx context.Context) error {
		found, err := s.isPlanned(ctx, name)
		if err == nil && found != planned {
			err = fmt.Errorf("planned: %t", found)
		}
		return err
	})
}

// isPlanned creates a namespace and reports whether an initializer is in its plan.
func (s *suite) isPlanned(ctx context.Context, name string) (bool, error) {
	namespaces := s.core.CoreV1().Namespaces()
	probe, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "conformance-probe-"}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	s.created = append(s.created, probe.Name)
	defer func() { _ = namespaces.Delete(context.WithoutCancel(ctx), probe.Name, metav1.DeleteOptions{}) }()
	var lifecycle *v1alpha1.NamespaceLifecycle
	if err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		lifecycle, err = s.lifecycle(ctx, probe.Name)
		return err == nil, nil
	}); err != nil {
		return false, err
	}
	return helper.Planned(lifecycle, name) != nil, nil
}

func (s *suite) lifecycle(ctx context.Context, name string) (*v1alpha1.NamespaceLifecycle, error) {
	return s.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
}

// create creates a namespace, and deletes it when the test ends.
func (s *suite) create(t *testing.T, name string) *corev1.Namespace {
	t.Helper()
	namespace, err := s.Create(t.Context(), s.core, name)
	if err != nil {
		t.Fatal(err)
	}
	s.created = append(s.created, name)
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
		lifecycle, err := s.lifecycle(ctx, namespace.Name)
		if err == nil && !helper.IsActing(lifecycle, name) {
			err = fmt.Errorf("it is the turn of %q: %+v", helper.Acting(lifecycle), lifecycle.Status.Initializers)
		}
		return err
	})
}

// waitEntry waits for a state of the initializer's entry.
func (s *suite) waitEntry(t *testing.T, name, what string, holds func(*v1alpha1.InitializerStatus) bool) {
	t.Helper()
	s.until(t, what+" in "+name, func(ctx context.Context) error {
		lifecycle, err := s.lifecycle(ctx, name)
		if err != nil {
			return err
		}
		if entry := helper.Entry(lifecycle, s.Name); entry == nil || !holds(entry) {
			return fmt.Errorf("the initializers are %+v", lifecycle.Status.Initializers)
		}
		return nil
	})
}

// done removes an initializer of the suite from the pending ones.
func (s *suite) done(t *testing.T, namespace *corev1.Namespace, name string) {
	t.Helper()
	s.waitTurn(t, namespace, name)
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lifecycle, err := s.lifecycle(t.Context(), namespace.Name)
		if err != nil {
			return err
		}
		helper.RemovePending(lifecycle, name)
		_, err = s.nsinit.NsinitV1alpha1().NamespaceLifecycles().Initialize(t.Context(), namespace.Name, lifecycle, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// waitOpen waits until a namespace is open, and checks the contents of the initializer.
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
	if s.Check == nil {
		return
	}
	if err := s.Check(t.Context(), namespace); err != nil {
		t.Errorf("%s is open, but: %v", namespace.Name, err)
	}
}

// waitGone waits until a namespace is removed from storage, and checks whether the initializer cleaned up.
func (s *suite) waitGone(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	s.until(t, namespace.Name+" is removed", func(ctx context.Context) error {
		current, err := s.core.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && current.UID != namespace.UID {
			return nil
		}
		return errors.Join(err, errors.New("it still exists"))
	})
	if s.Left != nil {
		if err := s.Left(t.Context(), namespace); err != nil {
			t.Errorf("%s is removed, but: %v", namespace.Name, err)
		}
	}
}

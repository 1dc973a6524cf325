/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	typednsinitv1alpha1 "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/initializer"
)

// Initializers returns initializers with these names, for Configure.
func Initializers(names ...string) []v1alpha1.RegisteredInitializer {
	var all []v1alpha1.RegisteredInitializer
	for _, name := range names {
		all = append(all, v1alpha1.RegisteredInitializer{Name: name})
	}
	return all
}

// Configure registers initializers until the test ends. On a shared control plane they apply to the test's namespaces,
// otherwise to every namespace, also to those that the test does not create.
func (c *Cluster) Configure(t *testing.T, initializers ...v1alpha1.RegisteredInitializer) *v1alpha1.NamespaceInitializerConfiguration {
	t.Helper()
	if c.prefix != "" {
		initializers = slices.Clone(initializers)
		for i := range initializers {
			initializers[i].MatchConditions = append(slices.Clone(initializers[i].MatchConditions), v1alpha1.MatchCondition{
				Name: "namespaces-of-the-test", Expression: fmt.Sprintf("namespaceObject.metadata.name.startsWith(%q)", c.prefix),
			})
		}
	}
	client := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	configuration, err := client.Create(context.Background(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: UniqueName("configuration")}, Initializers: initializers,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.Background(), configuration.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return configuration
}

// WaitCurrent waits until only one initializer has its turn, and returns the NamespaceLifecycle. An empty name waits until
// none has.
func (c *Cluster) WaitCurrent(t *testing.T, namespace, initializer string) *v1alpha1.NamespaceLifecycle {
	t.Helper()
	var lifecycle *v1alpha1.NamespaceLifecycle
	Eventually(t, fmt.Sprintf("the turn of %q in %s", initializer, namespace), func(ctx context.Context) (err error) {
		lifecycle, err = c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && strings.Join(helper.Acting(lifecycle), " ") != initializer {
			err = fmt.Errorf("it is the turn of %q", helper.Acting(lifecycle))
		}
		return err
	})
	return lifecycle
}

// RemoveFirst removes the first pending initializer as an administrator.
func (c *Cluster) RemoveFirst(t *testing.T, namespace string) {
	t.Helper()
	c.waitInitialized(t, namespace, func(initializers *v1alpha1.NamespaceInitializers) { initializers.Pending = initializers.Pending[1:] })
}

// Fail ends the initialization of a namespace with a failure, as an administrator.
func (c *Cluster) Fail(t *testing.T, namespace, message string) {
	t.Helper()
	c.waitInitialized(t, namespace, func(initializers *v1alpha1.NamespaceInitializers) {
		initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: message}
	})
}

// waitInitialized changes the initializers of a namespace. nsinit may report in the NamespaceLifecycle meanwhile.
func (c *Cluster) waitInitialized(t *testing.T, namespace string, change func(*v1alpha1.NamespaceInitializers)) {
	t.Helper()
	Eventually(t, "writing the initializers of "+namespace, func(ctx context.Context) error {
		return c.initialize(ctx, namespace, func(lifecycle *v1alpha1.NamespaceLifecycle) error {
			change(lifecycle.Spec.Initializers)
			return nil
		})
	})
}

// initialize tries once to change the initializers of a namespace.
func (c *Cluster) initialize(ctx context.Context, namespace string, change func(*v1alpha1.NamespaceLifecycle) error) error {
	client := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	lifecycle, err := client.Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := change(lifecycle); err != nil {
		return err
	}
	_, err = client.Initialize(ctx, namespace, lifecycle, metav1.UpdateOptions{})
	return err
}

// ActAs removes initializers in their turns until the test ends.
func (c *Cluster) ActAs(t *testing.T, names ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	config := rest.CopyConfig(c.Admin)
	config.Timeout = 5 * time.Second
	client := versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceLifecycles()
	for _, name := range names {
		go func() {
			options := metav1.ListOptions{FieldSelector: "status.currentInitializer=" + name}
			for ctx.Err() == nil {
				list, err := client.List(ctx, options)
				if err == nil {
					for _, lifecycle := range list.Items {
						if strings.HasPrefix(lifecycle.Name, c.prefix) {
							helper.RemovePending(&lifecycle, name)
							_, failed := client.Initialize(ctx, lifecycle.Name, &lifecycle, metav1.UpdateOptions{})
							err = errors.Join(err, failed)
						}
					}
				}
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				waitEvent(ctx, client, metav1.ListOptions{FieldSelector: options.FieldSelector, ResourceVersion: list.ResourceVersion})
			}
		}()
	}
}

// WaitTerminating waits until a NamespaceLifecycle is being deleted, and returns it.
func (c *Cluster) WaitTerminating(t *testing.T, namespace string) *v1alpha1.NamespaceLifecycle {
	t.Helper()
	var lifecycle *v1alpha1.NamespaceLifecycle
	Eventually(t, "the NamespaceLifecycle is being deleted", func(ctx context.Context) (err error) {
		lifecycle, err = c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && lifecycle.Status.Phase != v1alpha1.LifecycleTerminating {
			err = fmt.Errorf("its phase is %s", lifecycle.Status.Phase)
		}
		return err
	})
	return lifecycle
}

// waitEvent waits for the first event, or until the client ends the watch. If the watch fails, it waits for a moment.
func waitEvent(ctx context.Context, client typednsinitv1alpha1.NamespaceLifecycleInterface, options metav1.ListOptions) {
	events, err := client.Watch(ctx, options)
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		return
	}
	defer events.Stop()
	<-events.ResultChan()
}

// ReleaseParticipant removes a participant from a NamespaceLifecycle as an administrator.
func (c *Cluster) ReleaseParticipant(t *testing.T, namespace string, participant v1alpha1.FinalizerName) {
	t.Helper()
	client := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	Eventually(t, "releasing the participant", func(ctx context.Context) error {
		lifecycle, err := client.Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lifecycle.DeletionTimestamp == nil {
			return errors.New("the NamespaceLifecycle is not being deleted")
		}
		lifecycle.Spec.Finalizers = slices.DeleteFunc(lifecycle.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == participant })
		_, err = client.Finalize(ctx, namespace, lifecycle, metav1.UpdateOptions{})
		return err
	})
}

// WaitNoLifecycle waits until the NamespaceLifecycle of a namespace is deleted.
func (c *Cluster) WaitNoLifecycle(t *testing.T, namespace string) {
	t.Helper()
	Eventually(t, "the NamespaceLifecycle has left", func(ctx context.Context) error {
		lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %v %w", lifecycle.Spec.Finalizers, errors.Join(err, errors.New("(no error)")))
	})
}

// RunInitializers runs initializers of the SDK until the test ends, and returns when they watch.
func (c *Cluster) RunInitializers(t *testing.T, act func(ctx context.Context, name string, namespace *corev1.Namespace) error, names ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() { cancel(); work.Wait() })
	for _, name := range names {
		runner, err := initializer.New(initializer.Options{Name: name, Core: c.Core, Nsinit: c.Nsinit, Workers: 16, Events: &record.FakeRecorder{},
			Initialize: func(ctx context.Context, namespace *corev1.Namespace) error { return act(ctx, name, namespace) }})
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			if err := runner.Run(ctx); err != nil {
				t.Errorf("%s ended: %v", name, err)
			}
		})
		Eventually(t, name+" watches", func(context.Context) error {
			if !runner.HasSynced() {
				return fmt.Errorf("%s has not listed the NamespaceLifecycles", name)
			}
			return nil
		})
	}
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package packaging

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// The example of the namespaces design: a namespace with the finalizers openshift.com/origin
// and kubernetes. The design prints four states of it, from Active to the one in which it is
// deleted from storage. "origin" stands for OpenShift's controller, which has resources of its
// own to purge.
const origin = "openshift.com/origin"

// printed is one of the four states, as the design prints it.
type printed struct {
	phase      string
	deleted    bool
	finalizers string
}

func fourStates() []printed {
	return []printed{
		{"Active", false, "[openshift.com/origin kubernetes]"},
		{"Terminating", true, "[openshift.com/origin kubernetes]"},
		{"Terminating", true, "[openshift.com/origin]"},
		{"Terminating", true, "[]"},
	}
}

func stateOfLifecycle(r *v1alpha1.NamespaceLifecycle) printed {
	return printed{string(r.Status.Phase), r.DeletionTimestamp != nil, fmt.Sprint(r.Spec.Finalizers)}
}

func stateOfNamespace(n *corev1.Namespace) printed {
	return printed{string(n.Status.Phase), n.DeletionTimestamp != nil, fmt.Sprint(n.Spec.Finalizers)}
}

// example is one of the two ways in which origin takes part.
type example struct {
	// create makes the namespace.
	create func(*testing.T) string
	// read returns the object that carries the finalizers, and its state.
	read func(context.Context, string) (any, printed, error)
	// finalize removes origin, and returns what the server answers.
	finalize func(*testing.T, string) (any, printed)
}

// TestOpenShiftExample checks the four states, once with origin as a participant of nsinit, whose finalizers are those
// of the NamespaceLifecycle, and once with origin as a finalizer of the core namespace, beside nsinit.
func TestOpenShiftExample(t *testing.T) {
	c := framework.Connect(t)
	for name, e := range map[string]example{"participant": originAsParticipant(t, c), "core finalizer": originAsFinalizer(c)} {
		t.Run(name, func(t *testing.T) {
			namespace := e.create(t)
			want := fourStates()
			waitState := func(i int) {
				t.Helper()
				framework.Eventually(t, fmt.Sprintf("state %d of %s", i+1, namespace), func(ctx context.Context) error {
					object, got, err := e.read(ctx, namespace)
					if err == nil && got != want[i] {
						return fmt.Errorf("it is %+v, want %+v", got, want[i])
					}
					if err == nil {
						t.Logf("state %d: %s", i+1, summary(t, object))
					}
					return err
				})
			}
			waitState(0)
			// Content with a finalizer, so that the second state can be observed.
			if _, err := c.Core.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "content", Finalizers: []string{framework.Holder}},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.DeleteNamespace(t, namespace)
			waitState(1)
			if _, err := c.Core.CoreV1().ConfigMaps(namespace).Patch(t.Context(), "content", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			waitState(2)
			object, got := e.finalize(t, namespace)
			if got != want[3] {
				t.Errorf("state 4: it is %+v, want %+v", got, want[3])
			}
			t.Logf("state 4: %s", summary(t, object))
			c.WaitNoNamespace(t, namespace)
			c.WaitNoLifecycle(t, namespace)
		})
	}
}

// summary returns an object in JSON without its managed fields.
func summary(t *testing.T, object any) string {
	t.Helper()
	if accessor, ok := object.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
	}
	return framework.JSON(t, object)
}

// originAsParticipant registers origin with nsinit.
func originAsParticipant(t *testing.T, c *framework.Cluster) example {
	t.Helper()
	lifecycles := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	return example{
		create: func(t *testing.T) string {
			t.Helper()
			c.Configure(t, v1alpha1.RegisteredInitializer{Name: origin, Finalizer: true})
			name := c.CreateNamespace(t, c.Admin).Name
			c.WaitCurrent(t, name, origin)
			c.RemoveFirst(t, name)
			c.WaitReady(t, name)
			return name
		},
		read: func(ctx context.Context, name string) (any, printed, error) {
			lifecycle, err := lifecycles.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, printed{}, err
			}
			return lifecycle, stateOfLifecycle(lifecycle), nil
		},
		finalize: func(t *testing.T, name string) (any, printed) {
			t.Helper()
			lifecycle, err := lifecycles.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if namespace, err := c.Core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil || fmt.Sprint(namespace.Spec.Finalizers, namespace.Finalizers) != "[] [nsinit.dev/lifecycle]" {
				t.Errorf("the namespace has not waited: %v %v", namespace.Spec.Finalizers, err)
			}
			lifecycle.Spec.Finalizers = slices.DeleteFunc(lifecycle.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == origin })
			// FINALIZE is a POST in the design.
			finalized := &v1alpha1.NamespaceLifecycle{}
			if err := c.Nsinit.NsinitV1alpha1().RESTClient().Post().Resource("namespacelifecycles").Name(name).SubResource("finalize").
				Body(lifecycle).Do(t.Context()).Into(finalized); err != nil {
				t.Fatal(err)
			}
			return finalized, stateOfLifecycle(finalized)
		},
	}
}

// originAsFinalizer creates the namespace as the design prints it.
func originAsFinalizer(c *framework.Cluster) example {
	namespaces := c.Core.CoreV1().Namespaces()
	return example{
		create: func(t *testing.T) string {
			t.Helper()
			name := framework.UniqueName("development")
			if _, err := namespaces.Create(t.Context(), &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": "development"}},
				Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{origin, corev1.FinalizerKubernetes}},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.WaitReady(t, name)
			return name
		},
		read: func(ctx context.Context, name string) (any, printed, error) {
			namespace, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, printed{}, err
			}
			return namespace, stateOfNamespace(namespace), nil
		},
		finalize: func(t *testing.T, name string) (any, printed) {
			t.Helper()
			namespace, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			namespace.Spec.Finalizers = nil
			finalized, err := namespaces.Finalize(t.Context(), namespace, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return finalized, stateOfNamespace(finalized)
		},
	}
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// wantStamp returns the label and the annotations of the stamp for a user.
func wantStamp(user string, groups ...string) map[string]string {
	return map[string]string{
		v1alpha1.LabelInitializing:         "true",
		v1alpha1.AnnotationCreatedBy:       user,
		v1alpha1.AnnotationCreatedByGroups: strings.Join(append(groups, "system:authenticated"), "\n"),
	}
}

// TestStamp: a new namespace is closed and has its creator, whatever the request contains.
func TestStamp(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	c.Configure(t, framework.Initializers("hold.example.com")...)
	c.User(t, "e2e-creator", framework.Everything())
	client := kubernetes.NewForConfigOrDie(c.As("e2e-creator", "team-a", "team-b")).CoreV1().Namespaces()
	want := wantStamp("e2e-creator", "team-a", "team-b")
	for name, sent := range map[string]metav1.ObjectMeta{
		"nothing":                           {},
		"label":                             {Labels: map[string]string{v1alpha1.LabelInitializing: "true"}},
		"label, empty":                      {Labels: map[string]string{v1alpha1.LabelInitializing: ""}},
		"label, other":                      {Labels: map[string]string{v1alpha1.LabelInitializing: "false"}},
		"creator":                           {Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "kubernetes-admin"}},
		"creator, empty":                    {Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: ""}},
		"groups":                            {Annotations: map[string]string{v1alpha1.AnnotationCreatedByGroups: "system:masters"}},
		"forged name":                       {Labels: map[string]string{corev1.LabelMetadataName: "kube-system"}},
		"generated name":                    {GenerateName: "e2e-generated-"},
		"generated name, forged name":       {GenerateName: "e2e-generated-", Labels: map[string]string{corev1.LabelMetadataName: "kube-system"}},
		"generated name like an exempt one": {GenerateName: "kube-system"},
	} {
		t.Run(name, func(t *testing.T) {
			if sent.GenerateName == "" {
				sent.Name = c.Name("ns")
			}
			for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
				namespace, err := client.Create(t.Context(), &corev1.Namespace{ObjectMeta: *sent.DeepCopy()}, metav1.CreateOptions{DryRun: dryRun})
				if err != nil {
					t.Fatalf("dry run %v: %v", dryRun, err)
				}
				if dryRun == nil {
					c.LeaveLater(t, namespace.Name)
				}
				if diff := cmp.Diff(want, stampOf(namespace)); diff != "" {
					t.Errorf("dry run %v: the stamp (-want +got):\n%s", dryRun, diff)
				}
			}
		})
	}
	t.Run("server-side apply", func(t *testing.T) {
		name := c.Name("ns")
		c.LeaveLater(t, name)
		namespace, err := client.Patch(t.Context(), name, types.ApplyPatchType,
			fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"annotations":{"nsinit.dev/created-by":"root"}}}`, name),
			metav1.PatchOptions{FieldManager: "e2e"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, stampOf(namespace)); diff != "" {
			t.Errorf("the stamp (-want +got):\n%s", diff)
		}
	})
}

// TestStampIdentity: the creator is the impersonated user.
func TestStampIdentity(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	c.Configure(t, framework.Initializers("hold.example.com")...)
	c.User(t, "e2e-creator", framework.Everything())
	account, config := c.ServiceAccount(t, framework.Everything(),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"users", "groups"}, Verbs: []string{"impersonate"}})
	impersonating := rest.CopyConfig(config)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "e2e-creator", Groups: []string{"team-c"}}
	for name, test := range map[string]struct {
		config *rest.Config
		want   map[string]string
	}{
		"service account": {config, wantStamp(account, "system:serviceaccounts", "system:serviceaccounts:default")},
		"impersonation":   {impersonating, wantStamp("e2e-creator", "team-c")},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := c.CreateNamespace(t, test.config)
			if diff := cmp.Diff(test.want, stampOf(namespace)); diff != "" {
				t.Errorf("the stamp (-want +got):\n%s", diff)
			}
			if err := framework.Refused(framework.WriteConfigMap(t.Context(), kubernetes.NewForConfigOrDie(test.config), namespace.Name)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLifecycleCannotBePreset: a user cannot create the NamespaceLifecycle of a namespace in advance, or delete it.
func TestLifecycleCannotBePreset(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	config := c.User(t, "e2e-creator", framework.Everything())
	client := versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceLifecycles()
	name := c.Name("ns")
	if _, err := client.Create(t.Context(), &v1alpha1.NamespaceLifecycle{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "1"},
	}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("creating the NamespaceLifecycle before the namespace: want NotFound, got %v", err)
	}
	namespace := c.CreateHeld(t, config).Name
	if err := client.Delete(t.Context(), namespace, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting the NamespaceLifecycle: want Forbidden, got %v", err)
	}
	remove := func(write func(*v1alpha1.NamespaceLifecycle) (*v1alpha1.NamespaceLifecycle, error)) (written *v1alpha1.NamespaceLifecycle, err error) {
		return written, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			lifecycle, err := client.Get(t.Context(), namespace, metav1.GetOptions{})
			if err != nil {
				return err
			}
			lifecycle.Spec.Initializers = nil
			written, err = write(lifecycle)
			return err
		})
	}
	if _, err := remove(func(l *v1alpha1.NamespaceLifecycle) (*v1alpha1.NamespaceLifecycle, error) {
		return client.Initialize(t.Context(), namespace, l, metav1.UpdateOptions{})
	}); !apierrors.IsForbidden(err) {
		t.Errorf("removing the initializer of another user: want Forbidden, got %v", err)
	}
	if lifecycle, err := remove(func(l *v1alpha1.NamespaceLifecycle) (*v1alpha1.NamespaceLifecycle, error) {
		return client.Update(t.Context(), l, metav1.UpdateOptions{})
	}); err != nil || lifecycle.Spec.Initializers == nil {
		t.Errorf("an update of the main resource: want it to keep spec.initializers, got %v, %v", lifecycle, err)
	}
	if !c.IsClosed(t, namespace) {
		t.Error("the gate has opened")
	}
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestSizeOfNamespaces: the labels and annotations of a namespace are limited, when it is created and later, for every writer,
// except users with the verb open. nsinit's own do not count: a namespace at its limit can be frozen, and opens. Its labels and
// annotations stay when nsinit writes conditions, although the controllers do not keep them in memory.
func TestSizeOfNamespaces(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	tenant := kubernetes.NewForConfigOrDie(c.User(t, c.Name("sizes"), rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "update", "patch"}})).CoreV1().Namespaces()
	entries := func(count, bytes int) map[string]string {
		all := map[string]string{}
		for i := range count {
			key := fmt.Sprintf("e2e.example.com/%02d", i)
			all[key] = strings.Repeat("x", bytes-len(key))
		}
		return all
	}
	const labels, annotations = 31, 32 // kube-apiserver adds kubernetes.io/metadata.name
	largest := func() *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Name("sized"), Labels: entries(labels, 60), Annotations: entries(annotations, 190)}}
		free := 8192 - labels*60 - annotations*190 - len(corev1.LabelMetadataName) - len(n.Name)
		n.Annotations["e2e.example.com/00"] += strings.Repeat("x", free)
		return n
	}
	refused := func(policy string, err error) error {
		return framework.RefusedBy(policy, err, map[string]string{
			guardCreate: "nsinit allows 32 labels and 32 annotations, with 8192 bytes",
			guard:       "nsinit allows 64 labels and 64 annotations, with 16384 bytes",
		}[policy])
	}
	for name, change := range map[string]func(*corev1.Namespace){
		"a label too many":       func(n *corev1.Namespace) { n.Labels["more"], n.Annotations = "", nil },
		"an annotation too many": func(n *corev1.Namespace) { n.Annotations["more"], n.Labels = "", nil },
		"a byte too many":        func(n *corev1.Namespace) { n.Annotations["e2e.example.com/00"] += "x" },
		"characters of 4 bytes":  func(n *corev1.Namespace) { n.Annotations = map[string]string{"a": strings.Repeat("🙂", 2048)} },
	} {
		n := largest()
		change(n)
		_, err := tenant.Create(t.Context(), n, metav1.CreateOptions{})
		if err := refused(guardCreate, err); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	given, err := tenant.Create(t.Context(), largest(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.LeaveLater(t, given.Name)
	patch := func(patch string) error {
		_, err := tenant.Patch(t.Context(), given.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	// Other programs can add theirs, up to twice as much.
	more := func(field string, count, bytes int) error {
		all := map[string]string{}
		for i := range count {
			all[fmt.Sprintf("more-%02d", i)] = strings.Repeat("x", bytes-len("more-00"))
		}
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{field: all}})
		if err != nil {
			t.Fatal(err)
		}
		return patch(string(text))
	}
	if err := errors.Join(refused(guard, more("labels", 33, 7)), refused(guard, more("annotations", 33, 7)), refused(guard, more("annotations", 1, 8193)),
		more("labels", 32, 7), more("annotations", 32, 249)); err != nil {
		t.Error(err)
	}
	c.WaitReady(t, given.Name)
	c.MustPlugin(t, "freeze", given.Name, "--reason=audit")
	c.WaitCondition(t, given.Name, v1alpha1.ConditionFrozen, "True/Frozen", "audit")
	c.MustPlugin(t, "unfreeze", given.Name)
	live, err := c.Core.CoreV1().Namespaces().Get(t.Context(), given.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range given.Annotations {
		if live.Annotations[key] != value || strings.HasPrefix(key, "e2e.") && live.Labels[key] != given.Labels[key] {
			t.Errorf("%s is not as it was written", key)
		}
	}
	// A user with the verb open may exceed the limits. Others may then change the namespace, but it does not grow.
	if _, err := c.Core.CoreV1().Namespaces().Patch(t.Context(), given.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"by-admin":"x"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(patch(`{"metadata":{"labels":{"by-admin":"y"}}}`), refused(guard, patch(`{"metadata":{"labels":{"by-admin":"xy"}}}`))); err != nil {
		t.Error(err)
	}
}

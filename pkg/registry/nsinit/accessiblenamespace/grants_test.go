/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// TestDeletedTogether: the subject of a binding is reported if the binding and its role are both gone before an event of either is handled.
func TestDeletedTogether(t *testing.T) {
	b := binding("shop", person("jane"))
	b.RoleRef = rbacv1.RoleRef{Kind: "Role", Name: "r"}
	core := fake.NewClientset(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}, Rules: onNamespaces()}, b,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r"}, Rules: onNamespaces()})
	busy, reported := make(chan struct{}), make(chan []string, 9)
	g, err := newGrants(core, func(subjects, namespaces []string, _ bool) {
		if slices.Contains(namespaces, "busy") {
			<-busy
		}
		reported <- append(slices.Clone(subjects), namespaces...)
	})
	if err != nil {
		t.Fatal(err)
	}
	g.informers.StartWithContext(t.Context())
	eventually := func(what string, happens func() bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return happens(), nil }); err != nil {
			t.Fatal(what, err)
		}
	}
	eventually("the handlers have all objects", func() bool {
		return !slices.ContainsFunc(g.synced, func(synced cache.InformerSynced) bool { return !synced() })
	})
	rbac := g.informers.Rbac().V1()
	bindings, roles := rbac.RoleBindings().Informer().GetStore(), rbac.Roles().Informer().GetStore()
	if _, err := core.RbacV1().RoleBindings("busy").Create(t.Context(), binding("busy", person("john")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := core.RbacV1().RoleBindings("shop").Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("the binding is deleted", func() bool { return slices.Equal(bindings.ListKeys(), []string{"busy/b"}) })
	for len(reported) > 0 {
		<-reported
	}
	if err := core.RbacV1().Roles("shop").Delete(t.Context(), "r", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("the role is deleted", func() bool { return len(roles.ListKeys()) == 0 })
	close(busy)
	for want := []string{userKey("jane"), "shop"}; ; {
		select {
		case got := <-reported:
			if slices.Equal(got, want) {
				return
			}
		case <-time.After(10 * time.Second):
			t.Fatal("not reported")
		}
	}
}

// TestManyRoles: a change of a role costs the same however many bindings to other roles exist.
func TestManyRoles(t *testing.T) {
	g, err := newGrants(fake.NewClientset(), func([]string, []string, bool) {})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 1000 {
		b := binding("shop", person("jane"))
		b.Name, b.RoleRef.Name = fmt.Sprint(n), strings.Repeat("other", 10) // so long that a comparison allocates memory
		if err := g.bindings[0].Add(b); err != nil {
			t.Fatal(err)
		}
	}
	if got := testing.AllocsPerRun(1, func() { g.onRole(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "view"}, Rules: onNamespaces()}) }); got > 100 {
		t.Errorf("%v allocations", got)
	}
}

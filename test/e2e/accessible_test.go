//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	typednsinitv1alpha1 "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// tenants is the rule of the ClusterRole nsinit:tenant.
func tenants() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"accessiblenamespaces"}, Verbs: []string{"get", "list", "watch"}}
}

func onNamespaces(verb string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{verb}, ResourceNames: names}
}

func accessible(config *rest.Config) typednsinitv1alpha1.AccessibleNamespaceInterface {
	return versioned.NewForConfigOrDie(config).NsinitV1alpha1().AccessibleNamespaces()
}

// bindView lets a subject get a namespace and what it contains, until the function that it returns is called.
func bindView(t *testing.T, c *framework.Cluster, namespace string, subject rbacv1.Subject) (unbind func()) {
	t.Helper()
	bindings := c.Core.RbacV1().RoleBindings(namespace)
	b, err := bindings.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("view")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{subject}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := bindings.Delete(t.Context(), b.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// TestTenantsView: a tenant who may neither get nor list namespaces follows one that it created with the stock kubectl, and another one sees it when it
// is open.
func TestTenantsView(t *testing.T) {
	c := framework.Share(t)
	c.Configure(t, framework.Initializers("one.example.com")...)
	creator, member, name := c.Name("creator"), c.Name("member"), c.Name("view")
	c.User(t, creator, onNamespaces("create"), tenants())
	c.User(t, member, tenants())
	kubectl := func(user string, args ...string) string {
		t.Helper()
		out, err := c.Kubectl(append(args, "--as="+user)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	kubectl(creator, "create", "namespace", name)
	framework.Eventually(t, "the creator sees the namespace", func(context.Context) error {
		out, err := c.Kubectl("get", "myns", name, "--as="+creator)
		if err == nil && !strings.Contains(out, "Initializing") {
			err = errors.New(out)
		}
		return err
	})
	if out, err := c.Kubectl("get", "namespace", name, "--as="+creator); err == nil {
		t.Errorf("the creator may get the core namespace:\n%s", out)
	}
	bindView(t, c, name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: member})
	framework.Eventually(t, "the member sees the namespace when it asks", func(context.Context) error {
		out, err := c.Kubectl("get", "myns", "--field-selector=status.phase=Initializing", "-o", "name", "--as="+member)
		if err == nil && out != "accessiblenamespace.nsinit.dev/"+name+"\n" {
			err = errors.New(out)
		}
		return err
	})
	if out := kubectl(member, "get", "myns", "-o", "name"); out != "" {
		t.Errorf("the member sees %s", out)
	}
	bindView(t, c, name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: creator})
	c.RemoveFirst(t, name)
	kubectl(creator, "wait", "--for=condition=Ready", "accessiblenamespace/"+name, "--timeout="+framework.Patience.String())
	framework.Eventually(t, "the member sees the open namespace", func(context.Context) error {
		out, err := c.Kubectl("get", "myns", "-o", "name", "--as="+member)
		if err == nil && out != "accessiblenamespace.nsinit.dev/"+name+"\n" {
			err = errors.New(out)
		}
		return err
	})
	if out := kubectl(member, "get", "myns", name, "-o", "jsonpath={.status.creator},{.status.phase}"); out != ",Active" {
		t.Errorf("the member sees %s", out)
	}
	if out := kubectl(creator, "get", "myns", name, "-o", "jsonpath={.status.creator}"); out != creator {
		t.Errorf("the creator is %q", out)
	}
	for _, query := range []string{"watch=1", "watch=1&resourceVersion=0", "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"} {
		if out := kubectl(member, "get", "--raw", "/apis/nsinit.dev/v1alpha1/accessiblenamespaces?timeoutSeconds=1&"+query); !strings.HasPrefix(out, `{"type":"ADDED",`) ||
			strings.Contains(out, "initial-events-end") != strings.Contains(query, "send") {
			t.Errorf("a watch with %s shows %s", query, out)
		}
	}
	if out := c.MustPlugin(t, "list", "--as="+member); !strings.HasPrefix(out, "NAME") || !strings.Contains(out, "\n"+name+" ") {
		t.Errorf("kubectl nsinit list prints %s", out)
	}
}

// TestWhoSees: for each way to grant a permission, lists, gets and selections agree with what kube-apiserver says about the core namespace.
func TestWhoSees(t *testing.T) {
	c := framework.Share(t)
	mine, others := c.CreateNamespace(t, c.Admin).Name, c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, mine)
	c.WaitReady(t, others)
	user := func(rules ...rbacv1.PolicyRule) *rest.Config {
		return c.User(t, c.Name("sees"), append(rules, tenants())...)
	}
	stranger, named, getter, lister, bound, member := user(), user(onNamespaces("get", mine)), user(onNamespaces("get")), user(onNamespaces("list")), user(), user()
	account, robot := c.ServiceAccount(t, tenants())
	bindView(t, c, mine, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: bound.Impersonate.UserName})
	group := c.Name("group")
	member.Impersonate.Groups = []string{group}
	bindView(t, c, mine, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	parts := strings.Split(account, ":")
	bindView(t, c, mine, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: parts[2], Name: parts[3]})
	one, both := []string{mine}, []string{mine, others}
	for name, test := range map[string]struct {
		config *rest.Config
		sees   []string
	}{
		"a user without rights": {stranger, nil}, "a ClusterRole with a name": {named, one}, "get everywhere": {getter, both}, "list": {lister, both},
		"a RoleBinding": {bound, one}, "a group": {member, one}, "a service account": {robot, one}, "an administrator": {c.Admin, both},
	} {
		t.Run(name, func(t *testing.T) {
			client := accessible(test.config)
			framework.Eventually(t, "the list is as expected", func(ctx context.Context) error {
				list, err := client.List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				for _, n := range both {
					want := slices.Contains(test.sees, n)
					if got := slices.ContainsFunc(list.Items, func(a v1alpha1.AccessibleNamespace) bool { return a.Name == n }); got != want {
						return fmt.Errorf("namespace %s is in the list: %v", n, got)
					}
				}
				if len(test.sees) < 2 && len(list.Items) != len(test.sees) {
					return fmt.Errorf("the list has %d namespaces", len(list.Items))
				}
				return nil
			})
			for _, n := range append(both, "none-"+mine) {
				_, err := client.Get(t.Context(), n, metav1.GetOptions{})
				if want := slices.Contains(test.sees, n); (err == nil) != want || err != nil && err.Error() != fmt.Sprintf("accessiblenamespaces.nsinit.dev %q not found", n) {
					t.Errorf("get %s: %v", n, err)
				}
				list, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + n})
				if err != nil || len(list.Items) == 1 != slices.Contains(test.sees, n) || list.Continue != "" || list.RemainingItemCount != nil {
					t.Errorf("select %s: %+v, %v", n, list, err)
				}
			}
		})
	}
}

// TestTenantsInformer: an informer of the generated client follows permissions that are granted and withdrawn, also after nsinit-apiserver
// was restarted.
func TestTenantsInformer(t *testing.T) {
	c := framework.Connect(t)
	name := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, name)
	member := c.Name("member")
	config := c.User(t, member, tenants())
	factory := externalversions.NewSharedInformerFactory(versioned.NewForConfigOrDie(config), 0)
	lister := factory.Nsinit().V1alpha1().AccessibleNamespaces().Lister()
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSyncWithContext(t.Context())
	sees := func(what string, want bool) {
		t.Helper()
		framework.Eventually(t, what, func(context.Context) error {
			found, err := lister.List(labels.Everything())
			if err == nil && (len(found) == 1 && found[0].Name == name) != want {
				err = fmt.Errorf("the informer has %d namespaces", len(found))
			}
			return err
		})
	}
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: member}
	for range 3 {
		unbind := bindView(t, c, name, subject)
		sees("a permission was granted", true)
		unbind()
		sees("it was withdrawn", false)
	}
	c.Dev(t, "kill", "nsinit-apiserver")
	c.Dev(t, "start", "nsinit-apiserver")
	bindView(t, c, name, subject)
	sees("a permission was granted", true)
	c.DeleteNamespace(t, name)
	c.WaitNoNamespace(t, name)
	sees("the namespace was removed", false)
	if _, err := accessible(config).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

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
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// shortCaches makes nsinit-apiserver cache a user's permissions for a second.
const shortCaches = `
- target: {kind: StatefulSet, name: nsinit-apiserver}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --authorization-webhook-cache-authorized-ttl=1s}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --authorization-webhook-cache-unauthorized-ttl=1s}
`

// TestLeastPrivilege removes each permission of nsinit's programs in turn, and waits until a request is refused.
func TestLeastPrivilege(t *testing.T) {
	i := newInstallation(t, "embedded", shortCaches, nil)
	i.documents(t, "Install")
	i.documents(t, "Register an initializer")
	i.waitReadyPods(t)
	defer i.useAll(t)()
	all := i.rights(t)
	t.Logf("%d rights", len(all))
	for _, r := range all {
		t.Run(r.String(), func(t *testing.T) { i.missed(t, r) })
	}
}

// right is one rule of a role, or a binding to a role of Kubernetes, that a program of nsinit needs.
type right struct {
	app, role  string
	namespaced bool
	rule       int // -1: the binding
}

func (r right) String() string {
	if r.rule < 0 {
		return fmt.Sprintf("%s: binding %s", r.app, r.role)
	}
	return fmt.Sprintf("%s: rule %d of %s (namespaced: %v)", r.app, r.rule+1, r.role, r.namespaced)
}

// useAll repeats the requests that need the programs' permissions until the returned function is called: namespaces are
// created and deleted, with an initializer that takes part in their deletion.
func (i *installation) useAll(t *testing.T) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	const name = "rights.example.com"
	lifecycles := i.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	if _, err := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "rights"}, Initializers: []v1alpha1.RegisteredInitializer{{Name: name, Finalizer: true}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			records, err := lifecycles.List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, record := range records.Items {
				if record.Status.CurrentInitializer == name {
					record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
					_, _ = lifecycles.Initialize(ctx, record.Name, &record, metav1.UpdateOptions{})
				} else if record.DeletionTimestamp != nil && slices.Contains(record.Spec.Finalizers, name) {
					record.Spec.Finalizers = slices.DeleteFunc(record.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == name })
					_, _ = lifecycles.Finalize(ctx, record.Name, &record, metav1.UpdateOptions{})
				}
			}
		}
	})
	work.Go(func() {
		var names []string
		for ; ctx.Err() == nil; time.Sleep(400 * time.Millisecond) {
			namespace, err := i.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("rights")}}, metav1.CreateOptions{})
			if err == nil {
				names = append(names, namespace.Name)
			}
			if len(names) > 4 {
				_ = i.Core.CoreV1().Namespaces().Delete(ctx, names[0], metav1.DeleteOptions{})
				names = names[1:]
			}
		}
	})
	return func() {
		stop()
		work.Wait()
	}
}

// programs maps nsinit's service accounts to their programs and the signal that restarts them. A leader releases its
// lease, and a server would continue for a while.
var programs = map[string]os.Signal{ //nolint:gochecknoglobals // a constant
	"nsinit-apiserver": syscall.SIGKILL, "nsinit-controller-manager": syscall.SIGTERM, "policy-population": syscall.SIGTERM,
}

// rights returns every right of nsinit's programs.
func (i *installation) rights(t *testing.T) []right {
	t.Helper()
	var all []right
	add := func(role rbacv1.RoleRef, namespaced bool, binding string, subjects []rbacv1.Subject, rules func(name string) []rbacv1.PolicyRule) {
		for _, subject := range subjects {
			if _, ours := programs[subject.Name]; !ours || subject.Namespace != "nsinit-system" {
				continue
			}
			if !strings.HasPrefix(role.Name, "nsinit:") {
				all = append(all, right{app: subject.Name, role: binding, namespaced: namespaced, rule: -1})
				continue
			}
			for n := range rules(role.Name) {
				all = append(all, right{app: subject.Name, role: role.Name, namespaced: namespaced, rule: n})
			}
		}
	}
	clusterBindings, err := i.Core.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range clusterBindings.Items {
		add(b.RoleRef, false, b.Name, b.Subjects, func(name string) []rbacv1.PolicyRule { return *i.rules(t, right{role: name}).rules })
	}
	bindings, err := i.Core.RbacV1().RoleBindings("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings.Items {
		add(b.RoleRef, true, b.Name, b.Subjects, func(name string) []rbacv1.PolicyRule { return *i.rules(t, right{role: name, namespaced: true}).rules })
	}
	return all
}

// editable holds the rules of a role, and a function that stores them.
type editable struct {
	rules *[]rbacv1.PolicyRule
	store func() error
}

func (i *installation) rules(t *testing.T, r right) editable {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if r.namespaced {
		role, err := i.Core.RbacV1().Roles("nsinit-system").Get(ctx, r.role, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return editable{&role.Rules, func() error {
			role.ResourceVersion = ""
			_, err := i.Core.RbacV1().Roles("nsinit-system").Update(ctx, role, metav1.UpdateOptions{})
			return err
		}}
	}
	role, err := i.Core.RbacV1().ClusterRoles().Get(ctx, r.role, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return editable{&role.Rules, func() error {
		role.ResourceVersion = ""
		_, err := i.Core.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
		return err
	}}
}

// take removes a permission. It returns the rules and a function that restores them.
func (i *installation) take(t *testing.T, r right) (rbacv1.PolicyRule, func()) {
	t.Helper()
	restored := func(err error) {
		if err != nil {
			t.Errorf("%s cannot be given back: %v", r, err)
		}
	}
	if r.rule >= 0 {
		e := i.rules(t, r)
		before := slices.Clone(*e.rules)
		*e.rules = slices.Delete(slices.Clone(before), r.rule, r.rule+1)
		if err := e.store(); err != nil {
			t.Fatal(err)
		}
		return before[r.rule], func() { *e.rules = before; restored(e.store()) }
	}
	subjects, store, allowed := i.subjects(t, r)
	before := *subjects
	*subjects = slices.DeleteFunc(slices.Clone(before), func(s rbacv1.Subject) bool { return s.Name == r.app })
	if err := store(); err != nil {
		t.Fatal(err)
	}
	return allowed, func() { *subjects = before; restored(store()) }
}

// subjects returns the subjects of a role of Kubernetes, a function that stores them, and the rules of the role that
// matter here.
func (i *installation) subjects(t *testing.T, r right) (subjects *[]rbacv1.Subject, store func() error, allowed rbacv1.PolicyRule) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if r.namespaced {
		client := i.Core.RbacV1().RoleBindings(metav1.NamespaceSystem)
		binding, err := client.Get(ctx, r.role, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return &binding.Subjects, func() error {
			binding.ResourceVersion = ""
			_, err := client.Update(ctx, binding, metav1.UpdateOptions{})
			return err
		}, rbacv1.PolicyRule{Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}
	}
	client := i.Core.RbacV1().ClusterRoleBindings()
	binding, err := client.Get(ctx, r.role, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &binding.Subjects, func() error {
		binding.ResourceVersion = ""
		_, err := client.Update(ctx, binding, metav1.UpdateOptions{})
		return err
	}, rbacv1.PolicyRule{Resources: []string{"tokenreviews", "subjectaccessreviews"}, Verbs: []string{"create"}}
}

// provoke sends the requests that show that a permission is missing, in addition to useAll.
func (i *installation) provoke(t *testing.T, r right, rule rbacv1.PolicyRule) {
	t.Helper()
	ctx := t.Context()
	system := func(remove func(ctx context.Context, name string, options metav1.DeleteOptions) error, name string) {
		t.Helper()
		if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	creates := slices.Contains(rule.Verbs, "create") && len(rule.Verbs) == 1 && r.rule >= 0
	switch {
	case creates && slices.Contains(rule.Resources, "leases"):
		system(i.Core.CoordinationV1().Leases("nsinit-system").Delete, r.app)
	case creates && slices.Contains(rule.Resources, "configmaps"):
		system(i.Core.CoreV1().ConfigMaps("nsinit-system").Delete, "nsinit-storage")
	case creates && slices.Contains(rule.Resources, "secrets"):
		system(i.Core.CoreV1().Secrets("nsinit-system").Delete, "nsinit-apiserver-tls")
	}
	if r.app == "nsinit-controller-manager" && r.rule < 0 && !r.namespaced {
		i.askForMetrics(t, r.app) // the permissions of the user are looked up
	} else if begins(rule) {
		i.restart(r.app)
	}
}

// begins reports whether a program uses a rule when it starts: lists, watches and periodic reads begin then.
func begins(rule rbacv1.PolicyRule) bool {
	return slices.ContainsFunc([]string{"get", "list", "create"}, func(verb string) bool { return slices.Contains(rule.Verbs, verb) })
}

func (i *installation) restart(app string) {
	for _, p := range i.node.Running(app) {
		_ = p.Signal(programs[app]) // it may be ending for other reasons
	}
}

// askForMetrics asks the pods of an app for metrics, as a service account.
func (i *installation) askForMetrics(t *testing.T, app string) {
	t.Helper()
	token, err := i.Core.CoreV1().ServiceAccounts("nsinit-system").CreateToken(t.Context(), "policy-population", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range i.node.Addresses(app) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token.Status.Token)
		response, err := i.node.Probes.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
}

// missed removes one permission and waits until a request is refused. Then it restores the permission and waits until
// everything works again.
func (i *installation) missed(t *testing.T, r right) {
	t.Helper()
	if r.rule >= 0 && virtual((*i.rules(t, r).rules)[r.rule]) {
		i.quiet(t, r.app)
	}
	_, from := i.AuditSince(t, 0)
	rule, giveBack := i.take(t, r)
	defer func() {
		giveBack()
		if begins(rule) { // it would wait longer and longer before it tries again, and so would others
			i.restart(r.app)
			if r.app == "nsinit-apiserver" {
				i.restart("nsinit-controller-manager")
				i.restart("policy-population")
			}
		}
		if slices.Contains(rule.Resources, "leases") {
			// The leader could not release its Lease. Without one, its successor leads immediately.
			_ = i.Core.CoordinationV1().Leases("nsinit-system").Delete(context.WithoutCancel(t.Context()), r.app, metav1.DeleteOptions{})
		}
		i.healthy(t)
	}()
	if slices.Contains(rule.Resources, "events") && r.app == "policy-population" {
		// It writes this event only if another request is refused.
		for n, other := range *i.rules(t, r).rules {
			if slices.Contains(other.Resources, "resourcequotas") {
				_, back := i.take(t, right{app: r.app, role: r.role, rule: n})
				defer back()
			}
		}
	}
	began := time.Now()
	i.provoke(t, r, rule)
	var found framework.AuditEvent
	framework.Eventually(t, "it is missed", func(context.Context) error {
		refused, next := i.refusals(t, r.app, from)
		from = next
		for _, event := range refused {
			resource := event.ObjectRef.Resource
			if event.ObjectRef.Subresource != "" {
				resource += "/" + event.ObjectRef.Subresource
			}
			if virtual(rule) || slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, event.Verb) {
				found = event
				return nil
			}
		}
		return errors.New("nothing was refused: it may not be needed")
	})
	t.Logf("%.1f s: without %s: refused %s of %s %s", time.Since(began).Seconds(), rule.Verbs, found.Verb, found.ObjectRef.Resource, found.ObjectRef.Subresource)
}

// virtual reports whether a rule grants a permission that a policy or nsinit-apiserver checks. Without it, they refuse
// the request.
func virtual(rule rbacv1.PolicyRule) bool {
	return !slices.ContainsFunc(rule.Verbs, func(verb string) bool {
		return slices.Contains([]string{"get", "list", "watch", "create", "update", "patch", "delete"}, verb)
	})
}

// refusals returns the refused requests of a program since a position of the audit log.
func (i *installation) refusals(t *testing.T, app string, from int64) (refused []framework.AuditEvent, next int64) {
	t.Helper()
	events, next := i.AuditSince(t, from)
	for _, event := range events {
		if event.ResponseStatus.Code == 403 && event.User.Username == "system:serviceaccount:nsinit-system:"+app {
			refused = append(refused, event)
		}
	}
	return refused, next
}

// quiet waits until no request of a program is refused, because former decisions are cached for some seconds.
func (i *installation) quiet(t *testing.T, app string) {
	t.Helper()
	_, from := i.AuditSince(t, 0)
	framework.Eventually(t, "it is refused nothing", func(context.Context) error {
		time.Sleep(1500 * time.Millisecond)
		refused, next := i.refusals(t, app, from)
		from = next
		if len(refused) > 0 {
			return fmt.Errorf("%s of %s", refused[0].Verb, refused[0].ObjectRef.Resource)
		}
		return nil
	})
}

// healthy waits until a new namespace opens.
func (i *installation) healthy(t *testing.T) {
	t.Helper()
	namespace := i.newNamespace(t)
	i.WaitReady(t, namespace)
	if err := i.Core.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

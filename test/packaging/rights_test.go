//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package packaging

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// shortCaches makes nsinit-apiserver cache a user's permissions for a second.
const shortCaches = `
- target: {kind: StatefulSet, name: nsinit-apiserver}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --authorization-webhook-cache-authorized-ttl=1s}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --authorization-webhook-cache-unauthorized-ttl=1s}
`

// TestLeastPrivilege: nsinit's programs use each permission that they have, and are refused nothing. The audit log shows
// the requests that kube-apiserver authorized. What a policy or nsinit-apiserver checks is taken away to see a refusal.
func TestLeastPrivilege(t *testing.T) {
	i := newInstallation(t, "embedded", shortCaches, nil)
	i.documents(t, "Install")
	i.documents(t, "Register an initializer")
	i.waitReadyPods(t)
	defer i.useAll(t)()
	checked, read := i.rights(t)
	t.Logf("%d rights", len(checked)+len(read))
	i.askForMetrics(t, "nsinit-controller-manager") // it checks the permissions of the user
	i.used(t, read)
	for _, r := range checked {
		t.Run(r.String(), func(t *testing.T) { i.missed(t, r) })
	}
}

// right is one rule of a role, or a binding to a role of Kubernetes, that a program of nsinit has.
type right struct {
	app, role  string
	namespaced bool
	rule       int // -1: the binding
	allows     rbacv1.PolicyRule
}

func (r right) String() string {
	if r.rule < 0 {
		return fmt.Sprintf("%s: binding %s", r.app, r.role)
	}
	return fmt.Sprintf("%s: rule %d of %s (namespaced: %v)", r.app, r.rule+1, r.role, r.namespaced)
}

// isUsedBy reports whether a request needs the right.
func (r right) isUsedBy(event framework.AuditEvent) bool {
	resource := event.ObjectRef.Resource
	if event.ObjectRef.Subresource != "" {
		resource += "/" + event.ObjectRef.Subresource
	}
	return event.User.Username == account(r.app) && slices.Contains(r.allows.Resources, resource) && slices.Contains(r.allows.Verbs, event.Verb)
}

func account(app string) string { return "system:serviceaccount:nsinit-system:" + app }

// used waits until the audit log shows a request for each right. No request of the programs may be refused, except for those
// that show the event of a refusal.
func (i *installation) used(t *testing.T, rights []right) {
	t.Helper()
	unused, from := slices.Clone(rights), int64(0)
	wait := func() {
		framework.Eventually(t, "every right is used", func(context.Context) error {
			events, next := i.AuditSince(t, from)
			from = next
			for _, event := range events {
				unused = slices.DeleteFunc(unused, func(r right) bool { return r.isUsedBy(event) })
			}
			if len(unused) > 0 {
				return fmt.Errorf("no request needed %s", unused)
			}
			return nil
		})
	}
	// policy-population writes events only if requests are refused.
	events := slices.IndexFunc(unused, func(r right) bool {
		return r.app == "policy-population" && slices.Contains(r.allows.Resources, "events")
	})
	if events < 0 {
		t.Fatal("policy-population may not write events")
	}
	last := unused[events]
	unused = slices.Delete(unused, events, events+1)
	wait()
	for app := range programs {
		refused, _ := i.refusals(t, app, 0)
		// The others are about namespaces that are deleted meanwhile.
		refused = slices.DeleteFunc(refused, func(event framework.AuditEvent) bool {
			return event.Annotations["authorization.k8s.io/decision"] != "forbid"
		})
		if len(refused) > 0 {
			t.Errorf("%d requests of %s were refused, such as %+v", len(refused), app, refused[0])
		}
	}
	quota := slices.IndexFunc(rights, func(r right) bool { return r.app == last.app && slices.Contains(r.allows.Resources, "resourcequotas") })
	defer i.take(t, rights[quota])()
	unused = []right{last}
	wait()
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
	if _, err := i.Nsinit.NsinitV1alpha1().InitializerConfigurations().Create(t.Context(), &v1alpha1.InitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "rights"}, Initializers: []v1alpha1.Initializer{{Name: name}},
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
				if helper.IsActing(&record, name) {
					helper.RemovePending(&record, name)
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
		for ; ctx.Err() == nil; time.Sleep(800 * time.Millisecond) {
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

// programs are nsinit's service accounts, which have the names of their programs.
var programs = sets.New("nsinit-apiserver", "nsinit-controller-manager", "policy-population") //nolint:gochecknoglobals // a constant

// rights returns every right of nsinit's programs: those that a policy or nsinit-apiserver checks, and those that
// kube-apiserver checks.
func (i *installation) rights(t *testing.T) (checked, read []right) {
	t.Helper()
	add := func(role rbacv1.RoleRef, namespaced bool, binding string, subjects []rbacv1.Subject) {
		for _, subject := range subjects {
			if !programs.Has(subject.Name) || subject.Namespace != "nsinit-system" {
				continue
			}
			if !strings.HasPrefix(role.Name, "nsinit:") {
				allows := rbacv1.PolicyRule{Resources: []string{"tokenreviews", "subjectaccessreviews"}, Verbs: []string{"create"}}
				if namespaced {
					allows = rbacv1.PolicyRule{Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}
				}
				read = append(read, right{app: subject.Name, role: binding, namespaced: namespaced, rule: -1, allows: allows})
				continue
			}
			r := right{app: subject.Name, role: role.Name, namespaced: namespaced}
			for n, rule := range *i.rules(t, r).rules {
				r.rule, r.allows = n, rule
				if virtual(rule) {
					checked = append(checked, r)
				} else {
					read = append(read, r)
				}
			}
		}
	}
	clusterBindings, err := i.Core.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range clusterBindings.Items {
		add(b.RoleRef, false, b.Name, b.Subjects)
	}
	bindings, err := i.Core.RbacV1().RoleBindings("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings.Items {
		add(b.RoleRef, true, b.Name, b.Subjects)
	}
	return checked, read
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

// take removes a rule. It returns a function that restores it.
func (i *installation) take(t *testing.T, r right) (giveBack func()) {
	t.Helper()
	e := i.rules(t, r)
	before := slices.Clone(*e.rules)
	*e.rules = slices.Delete(slices.Clone(before), r.rule, r.rule+1)
	if err := e.store(); err != nil {
		t.Fatal(err)
	}
	return func() {
		*e.rules = before
		if err := e.store(); err != nil {
			t.Errorf("%s cannot be given back: %v", r, err)
		}
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

// missed removes one rule and waits until a request is refused. Then it restores the rule and waits until everything works
// again.
func (i *installation) missed(t *testing.T, r right) {
	t.Helper()
	i.quiet(t, r.app)
	_, from := i.AuditSince(t, 0)
	giveBack := i.take(t, r)
	defer func() {
		giveBack()
		i.healthy(t)
	}()
	framework.Eventually(t, "it is missed", func(context.Context) error {
		refused, next := i.refusals(t, r.app, from)
		from = next
		if len(refused) == 0 {
			return errors.New("nothing was refused: it may not be needed")
		}
		t.Logf("without %s: refused %s of %s %s", r.allows.Verbs, refused[0].Verb, refused[0].ObjectRef.Resource, refused[0].ObjectRef.Subresource)
		return nil
	})
}

// virtual reports whether a rule grants a permission that a policy or nsinit-apiserver checks. Without it, they refuse
// the request.
func virtual(rule rbacv1.PolicyRule) bool {
	return !slices.ContainsFunc(rule.Verbs, func(verb string) bool {
		return slices.Contains([]string{"get", "list", "watch", "create", "update", "patch", "delete"}, verb)
	})
}

// refusals returns the refused requests of a program since a position of the audit log. The webhook for early writes refuses
// with 429.
func (i *installation) refusals(t *testing.T, app string, from int64) (refused []framework.AuditEvent, next int64) {
	t.Helper()
	events, next := i.AuditSince(t, from)
	for _, event := range events {
		if code := event.ResponseStatus.Code; (code == http.StatusForbidden || code == http.StatusTooManyRequests) && event.User.Username == account(app) {
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

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// rig is a server of the resource with a fake core API.
type rig struct {
	t    *testing.T
	ctx  context.Context
	core *fake.Clientset
	rest *REST

	mu sync.Mutex
	// allowed are the permissions, as "USER VERB NAME", and asked the questions so far.
	allowed map[string]bool
	asked   []string
	down    bool
	// delay is how long an answer takes.
	delay  time.Duration
	number int
}

func newRig(t *testing.T, objects ...runtime.Object) *rig {
	t.Helper()
	ctx := t.Context()
	view := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}, Rules: onNamespaces()}
	r := &rig{t: t, ctx: ctx, core: fake.NewClientset(append(objects, view)...), allowed: map[string]bool{}}
	factory := informers.NewSharedInformerFactory(r.core, 0)
	index, err := NewIndex(r.core, factory.Core().V1().Namespaces().Informer(), r, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	r.rest = New(index)[Resource].(*REST)
	factory.StartWithContext(ctx)
	go index.Run(ctx)
	synctest.Wait()
	return r
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (r *rig) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.mu.Lock()
	delay := r.delay
	r.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return authorizer.DecisionNoOpinion, "", context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	question := strings.TrimSpace(fmt.Sprintf("%s %s %s", a.GetUser().GetName(), a.GetVerb(), a.GetName()))
	r.asked = append(r.asked, question)
	switch {
	case r.down:
		return authorizer.DecisionNoOpinion, "", errors.New("down")
	case a.GetResource() != "namespaces" || a.GetNamespace() != a.GetName() || a.GetAPIGroup() != "":
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("asked for %+v", a)
	case r.allowed[question], r.allowed[a.GetUser().GetName()+" "+a.GetVerb()]: // the verb on every namespace is one on each
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// allow changes permissions.
func (r *rig) allow(allowed bool, questions ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range questions {
		r.allowed[q] = allowed
	}
}

// fail has the authorizer answer with errors, or not any more.
func (r *rig) fail(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

// slow has the authorizer answer after some time.
func (r *rig) slow(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = delay
}

// questions returns and forgets what was asked.
func (r *rig) questions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked
	r.asked = nil
	slices.Sort(asked)
	return asked
}

func namespace(name string, changes ...func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}, Annotations: map[string]string{}}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func closed(n *corev1.Namespace) { n.Labels[v1alpha1.LabelInitializing] = "true" }

func by(creator string) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationCreatedBy] = creator }
}

// put creates or updates a namespace.
func (r *rig) put(n *corev1.Namespace) {
	r.t.Helper()
	r.number++
	n.ResourceVersion = fmt.Sprint(r.number)
	_, err := r.core.CoreV1().Namespaces().Update(r.ctx, n, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = r.core.CoreV1().Namespaces().Create(r.ctx, n, metav1.CreateOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := r.core.CoreV1().Namespaces().Delete(r.ctx, name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func binding(namespace string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: subjects}
}

// onNamespaces are the rules of a role that lets its subjects get namespaces with some names, or each.
func onNamespaces(names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}, ResourceNames: names}}
}

func person(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.UserKind, Name: name} }

// bind creates or removes a binding.
func (r *rig) bind(b *rbacv1.RoleBinding) {
	r.t.Helper()
	if _, err := r.core.RbacV1().RoleBindings(b.Namespace).Create(r.ctx, b, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) unbind(namespace string) {
	r.t.Helper()
	if err := r.core.RbacV1().RoleBindings(namespace).Delete(r.ctx, "b", metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) as(name string, groups ...string) context.Context {
	return genericapirequest.WithUser(r.ctx, &user.DefaultInfo{Name: name, Groups: groups})
}

func (r *rig) list(ctx context.Context, options internalversion.ListOptions) ([]string, string) {
	r.t.Helper()
	list, err := r.rest.List(ctx, &options)
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		names = append(names, o.(*nsinit.AccessibleNamespace).Name)
		return nil
	})
	return names, list.(*nsinit.AccessibleNamespaceList).ResourceVersion
}

// byPhase asks for namespaces that are being initialized.
func byPhase(phase v1alpha1.LifecyclePhase) internalversion.ListOptions {
	return internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("status.phase", string(phase))}
}

// TestWhoSees: a user sees the namespaces that the authorizer lets it get, if a binding proposes them. Those that are being initialized
// have three exceptions.
func TestWhoSees(t *testing.T) {
	objects := []runtime.Object{
		namespace("open"), namespace("other"), namespace("closed", closed, by("creator")),
		namespace("on-behalf", closed, by("portal"), func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationOnBehalfOf] = "creator" }),
		namespace("deleted", func(n *corev1.Namespace) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
		binding("open", person("jane"), person("none"), rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "team"},
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "robot"}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "other", Name: "robot"}),
		binding("closed", person("jane"), person("ready")), binding("removed", person("jane")),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "named"}, Rules: append(onNamespaces("other", "removed"),
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}, ResourceNames: []string{"open"}})},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "named"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "named"},
			Subjects: []rbacv1.Subject{person("named")}},
	}
	all := []string{"deleted", "open", "other"}
	for name, test := range map[string]struct {
		groups  []string
		allowed []string
		// sees are the namespaces in a list, and asks those in one by the phase Initializing.
		sees, asks []string
	}{
		"stranger":                          {nil, nil, nil, nil},
		"jane":                              {nil, []string{"get open", "get closed", "get other"}, []string{"open"}, []string{"closed"}},
		"none":                              {nil, nil, nil, nil},
		"member":                            {[]string{"team"}, []string{"get open"}, []string{"open"}, nil},
		"system:serviceaccount:open:robot":  {nil, []string{"get open"}, []string{"open"}, nil},
		"system:serviceaccount:other:robot": {nil, []string{"get open"}, []string{"open"}, nil},
		"system:serviceaccount:none:robot":  {nil, []string{"get open"}, nil, nil},
		"named":                             {nil, []string{"get other", "get open"}, []string{"other"}, nil},
		"lister":                            {nil, []string{"list"}, all, []string{"closed", "on-behalf"}},
		"getter":                            {nil, []string{"get"}, all, []string{"closed", "on-behalf"}},
		"creator":                           {nil, nil, []string{"closed", "on-behalf"}, []string{"closed", "on-behalf"}},
		"portal":                            {nil, nil, nil, nil},
		"acting":                            {nil, []string{"list", "initialize"}, []string{"closed", "deleted", "on-behalf", "open", "other"}, []string{"closed", "on-behalf"}},
		"ready":                             {nil, []string{"get closed", "initialize"}, []string{"closed"}, []string{"closed"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects...)
				for _, q := range test.allowed {
					r.allow(true, name+" "+q)
				}
				ctx := r.as(name, test.groups...)
				if got, _ := r.list(ctx, internalversion.ListOptions{}); !slices.Equal(got, test.sees) {
					t.Errorf("sees %q, want %q", got, test.sees)
				}
				if got, _ := r.list(ctx, byPhase(v1alpha1.LifecycleInitializing)); !slices.Equal(got, test.asks) {
					t.Errorf("sees %q when it asks, want %q", got, test.asks)
				}
				for _, n := range []string{"open", "other", "closed", "on-behalf", "deleted", "removed", "no name", strings.Repeat("x", 64)} {
					_, err := r.rest.Get(ctx, n, nil)
					want := slices.Contains(test.sees, n) || n != "removed" && n != "closed" && slices.Contains(test.allowed, "get "+n)
					if (err == nil) != want || err != nil && err.Error() != fmt.Sprintf(`accessiblenamespaces.nsinit.dev %q not found`, n) {
						t.Errorf("get %s: %v", n, err)
					}
				}
			})
		})
	}
}

// follower keeps what a watch has shown.
type follower struct {
	mu     sync.Mutex
	seen   map[string]*nsinit.AccessibleNamespace
	events []string
	err    *metav1.Status
	// version is that of the last event or bookmark.
	version string
	watch   watch.Interface
}

func (r *rig) watch(ctx context.Context, options internalversion.ListOptions) *follower {
	r.t.Helper()
	f := &follower{seen: map[string]*nsinit.AccessibleNamespace{}, version: options.ResourceVersion}
	r.follow(ctx, f, options)
	return f
}

// follow begins, or goes on, with a watch.
func (r *rig) follow(ctx context.Context, f *follower, options internalversion.ListOptions) {
	r.t.Helper()
	w, err := r.rest.Watch(ctx, &options)
	if err != nil {
		r.t.Fatal(err)
	}
	f.watch = w
	go func() {
		for e := range w.ResultChan() {
			n, ok := e.Object.(*nsinit.AccessibleNamespace)
			switch {
			case !ok:
				f.err = e.Object.(*metav1.Status)
				continue
			case e.Type == watch.Deleted:
				delete(f.seen, n.Name)
			case e.Type != watch.Bookmark:
				f.seen[n.Name] = n
			}
			f.version = n.ResourceVersion
			f.mu.Lock()
			f.events = append(f.events, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, n.Name, n.Annotations[metav1.InitialEventsAnnotationKey])))
			f.mu.Unlock()
		}
	}()
	synctest.Wait()
}

// take returns the events since the last call.
func (f *follower) take() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.events
	f.events = nil
	return events
}

func expect(t *testing.T, f *follower, want ...string) {
	t.Helper()
	got := f.take()
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got the events %q, want %q", got, want)
	}
}

// TestWatch: a tenant sees its namespace when it opens, or from its creation if it asks or is the creator. A permission that is granted
// or withdrawn shows within two seconds, and one question is asked for each namespace that it concerns, twice.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("other"), namespace("another"))
		r.allow(true, "jane get shop", "admin list")
		jane, asking := r.watch(r.as("jane"), internalversion.ListOptions{}), r.watch(r.as("jane"), byPhase(v1alpha1.LifecycleInitializing))
		creator, admin := r.watch(r.as("creator"), internalversion.ListOptions{}), r.watch(r.as("admin"), internalversion.ListOptions{})
		expect(t, admin, "ADDED another", "ADDED other")
		r.questions()
		r.put(namespace("shop", closed, by("creator")))
		expect(t, creator, "ADDED shop")
		r.bind(binding("shop", person("jane")))
		time.Sleep(2 * time.Second)
		expect(t, jane)
		expect(t, asking, "ADDED shop")
		if got := r.questions(); !slices.Equal(got, []string{"jane get shop", "jane get shop"}) {
			t.Errorf("asked %q", got)
		}
		r.put(namespace("shop", by("creator")))
		expect(t, jane, "ADDED shop")
		expect(t, asking, "DELETED shop")
		expect(t, creator, "DELETED shop")
		expect(t, admin, "ADDED shop")
		r.put(namespace("shop", by("creator"), func(n *corev1.Namespace) { n.Labels["team"] = "a" }))
		expect(t, jane, "MODIFIED shop")
		r.put(namespace("other", closed, by("creator")))
		expect(t, creator, "ADDED other")
		r.put(namespace("other", closed, by("another")))
		expect(t, creator, "DELETED other")
		r.put(namespace("other"))
		r.allow(false, "jane get shop")
		r.unbind("shop")
		time.Sleep(2 * time.Second)
		expect(t, jane, "DELETED shop")
		r.bind(binding("shop", person("jane")))
		r.allow(true, "jane get shop")
		time.Sleep(2 * time.Second)
		expect(t, jane, "ADDED shop")

		// The permission does not count for the next namespace of the name.
		admin.take()
		r.remove("shop")
		expect(t, jane, "DELETED shop")
		r.allow(false, "jane get shop")
		r.put(namespace("shop", func(n *corev1.Namespace) { n.UID = "second" }))
		time.Sleep(2 * time.Second)
		expect(t, jane)
		expect(t, admin, "ADDED shop", "DELETED shop")

		// A watch without changes asks nothing.
		r.questions()
		time.Sleep(time.Hour)
		if got := r.questions(); len(got) > 0 {
			t.Errorf("asked %q", got)
		}
		// All namespaces become visible, and invisible.
		r.allow(true, "jane list")
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{person("jane")}}
		if _, err := r.core.RbacV1().ClusterRoleBindings().Create(r.ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		expect(t, jane, "ADDED another", "ADDED other", "ADDED shop")
		r.allow(false, "jane list")
		if err := r.core.RbacV1().ClusterRoleBindings().Delete(r.ctx, "all", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		expect(t, jane, "DELETED another", "DELETED other", "DELETED shop")
	})
}

// TestRoles: a watch shows every change that can grant a permission: of a role, of the subjects of a binding, and of a binding that is
// created again with another role.
func TestRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("shop"))
		r.questions()
		rbac, jane := r.core.RbacV1(), r.watch(r.as("jane"), internalversion.ListOptions{})
		must := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * settleTime)
		}
		shows := func(allowed bool, change func()) {
			t.Helper()
			r.allow(allowed, "jane get shop")
			change()
			kind := "DELETED shop"
			if allowed {
				kind = "ADDED shop"
			}
			expect(t, jane, kind)
		}
		number := 0
		role := func(rules ...rbacv1.PolicyRule) *rbacv1.Role {
			number++
			return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r", ResourceVersion: fmt.Sprint(number)}, Rules: rules}
		}
		bound := func(subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
			number++
			b := binding("shop", subjects...)
			b.ResourceVersion, b.RoleRef = fmt.Sprint(number), rbacv1.RoleRef{Kind: "Role", Name: "r"}
			return b
		}
		must(rbac.RoleBindings("shop").Create(r.ctx, bound(person("jane")), metav1.CreateOptions{}))
		expect(t, jane)
		shows(true, func() { must(rbac.Roles("shop").Create(r.ctx, role(onNamespaces()...), metav1.CreateOptions{})) })
		shows(false, func() { must(rbac.Roles("shop").Update(r.ctx, role(onNamespaces("other")...), metav1.UpdateOptions{})) })
		shows(true, func() { must(rbac.Roles("shop").Update(r.ctx, role(onNamespaces()...), metav1.UpdateOptions{})) })
		shows(false, func() { must(rbac.RoleBindings("shop").Update(r.ctx, bound(person("john")), metav1.UpdateOptions{})) })
		shows(true, func() { must(rbac.RoleBindings("shop").Update(r.ctx, bound(person("jane")), metav1.UpdateOptions{})) })
		shows(false, func() { must(rbac.Roles("shop").Update(r.ctx, role(), metav1.UpdateOptions{})) })
		view := bound(person("jane"))
		view.RoleRef = rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}
		shows(true, func() { must(rbac.RoleBindings("shop").Update(r.ctx, view, metav1.UpdateOptions{})) }) // as an informer shows it
		shows(false, func() { must(nil, rbac.RoleBindings("shop").Delete(r.ctx, "b", metav1.DeleteOptions{})) })

		// A ClusterRole names a namespace that is created later.
		clusterBinding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "later"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "later"}, Subjects: []rbacv1.Subject{person("jane")}}
		must(rbac.ClusterRoleBindings().Create(r.ctx, clusterBinding, metav1.CreateOptions{}))
		must(rbac.ClusterRoles().Create(r.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Rules: onNamespaces("later")}, metav1.CreateOptions{}))
		time.Sleep(3 * bookmarkInterval)
		r.allow(true, "jane get later")
		r.put(namespace("later"))
		time.Sleep(settleTime)
		expect(t, jane, "ADDED later")

		// A binding to a role that does not concern namespaces costs nothing.
		r.questions()
		other := binding("shop", person("jane"))
		other.RoleRef.Name = "none"
		must(rbac.RoleBindings("shop").Create(r.ctx, other, metav1.CreateOptions{}))
		if got := r.questions(); len(got) > 0 {
			t.Errorf("asked %q", got)
		}
	})
}

// TestLaggingServer: kube-apiserver learns of a binding after nsinit-apiserver.
func TestLaggingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("shop"))
		jane := r.watch(r.as("jane"), internalversion.ListOptions{})
		r.bind(binding("shop", person("jane")))
		time.Sleep(settleTime / 2)
		r.allow(true, "jane get shop")
		time.Sleep(settleTime)
		expect(t, jane, "ADDED shop")

		// One server does not know yet that the permission on all namespaces was withdrawn.
		r.allow(true, "john list", "john get shop")
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{person("john")}}
		if _, err := r.core.RbacV1().ClusterRoleBindings().Create(r.ctx, b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.unbind("shop")
		r.bind(binding("shop", person("john")))
		john := r.watch(r.as("john"), internalversion.ListOptions{})
		time.Sleep(time.Minute)
		expect(t, john, "ADDED shop")
		r.allow(false, "john list")
		if err := r.core.RbacV1().ClusterRoleBindings().Delete(r.ctx, "all", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settleTime / 2)
		expect(t, john) // not even for a moment
		r.allow(false, "john get shop")
		time.Sleep(settleTime)
		expect(t, john, "DELETED shop")
	})
}

// TestLaggingServerFirst: kube-apiserver learns of the change of a binding after the first request of a user.
func TestLaggingServerFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{person("john")}}
		r := newRig(t, namespace("shop"), b)
		r.allow(true, "john list")
		time.Sleep(time.Minute)
		if err := r.core.RbacV1().ClusterRoleBindings().Delete(r.ctx, "all", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.bind(binding("shop", person("jane")))
		time.Sleep(settleTime / 2)
		jane, john := r.watch(r.as("jane"), internalversion.ListOptions{}), r.watch(r.as("john"), internalversion.ListOptions{})
		expect(t, jane)
		expect(t, john, "ADDED shop")
		r.allow(true, "jane get shop")
		r.allow(false, "john list")
		time.Sleep(2 * settleTime)
		expect(t, jane, "ADDED shop")
		expect(t, john, "DELETED shop")
	})
}

// TestQuestions: a list asks once for each candidate in the cache period, and none while all namespaces are allowed. The first list asks about
// a few candidates before that is known.
func TestQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []runtime.Object{namespace("shop"), namespace("depot"), namespace("other"), binding("shop", person("jane"), person("admin")), binding("depot", person("jane"))}
		for n := range questioners + 1 {
			objects = append(objects, namespace(fmt.Sprint(n)), binding(fmt.Sprint(n), person("boss")))
		}
		r := newRig(t, objects...)
		r.allow(true, "jane get shop", "admin list", "boss get")
		each := []string{"jane get", "jane get depot", "jane get shop", "jane initialize", "jane list"}
		for name, want := range map[string][2][]string{
			"jane":  {each, each},
			"admin": {{"admin get", "admin get shop", "admin initialize", "admin list"}, {"admin get", "admin initialize", "admin list"}},
			"boss":  {{"boss get", "boss initialize", "boss list"}, {"boss get", "boss initialize", "boss list"}},
		} {
			for n, wait := range []time.Duration{0, cachePeriod} {
				time.Sleep(wait)
				r.list(r.as(name), internalversion.ListOptions{})
				if got := r.questions(); !slices.Equal(got, want[n]) {
					t.Errorf("asked %q, want %q", got, want[n])
				}
				r.list(r.as(name), internalversion.ListOptions{})
				if got := r.questions(); len(got) > 0 {
					t.Errorf("asked %q", got)
				}
			}
		}
		// A namespace that exists and one that does not are asked for in the same way.
		r.list(r.as("jane"), internalversion.ListOptions{})
		r.questions()
		for _, name := range []string{"other", "none"} {
			_, _ = r.rest.Get(r.as("jane"), name, nil)
			if got := r.questions(); !slices.Equal(got, []string{"jane get " + name}) {
				t.Errorf("asked %q", got)
			}
			r.list(r.as("jane"), internalversion.ListOptions{})
			if got := r.questions(); len(got) > 0 {
				t.Errorf("a list asks %q", got)
			}
		}
		// Later lists take as long as before.
		time.Sleep(cachePeriod)
		r.list(r.as("jane"), internalversion.ListOptions{})
		if got := r.questions(); len(got) != 5 {
			t.Errorf("a later list asks %q", got)
		}
	})
}

// TestConcurrentGets: a list takes as long while the user asks for a namespace that exists as for one that does not.
func TestConcurrentGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("other"))
		ctx := r.as("jane")
		r.list(ctx, internalversion.ListOptions{})
		r.slow(time.Second)
		for _, name := range []string{"other", "none"} {
			took := make(chan time.Duration, 1)
			go func() { _, _ = r.rest.Get(ctx, "first", nil) }()
			synctest.Wait()
			go func() {
				began := time.Now()
				r.list(ctx, internalversion.ListOptions{})
				took <- time.Since(began)
			}()
			synctest.Wait()
			began := time.Now()
			_, err := r.rest.Get(ctx, name, nil)
			if list, get := <-took, time.Since(began); !apierrors.IsNotFound(err) || list != time.Second || get != 2*time.Second {
				t.Errorf("%s: the list takes %v, and the get %v: %v", name, list, get, err)
			}
		}
	})
}

// TestGetMeanwhile: a get shows the namespace as it is after the authorizer answered, and an answer does not count for another namespace
// of the name.
func TestGetMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("shop"))
		r.allow(true, "jane get shop")
		get := func(meanwhile func()) (runtime.Object, error) {
			r.slow(time.Second)
			defer r.slow(0)
			var found runtime.Object
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				found, err = r.rest.Get(r.as("jane"), "shop", nil)
			}()
			synctest.Wait()
			meanwhile()
			<-done
			return found, err
		}
		found, err := get(func() { r.put(namespace("shop", func(n *corev1.Namespace) { n.Labels["a"] = "b" })) })
		if err != nil || found.(*nsinit.AccessibleNamespace).Labels["a"] != "b" {
			t.Errorf("after a change: %v, %v", found, err)
		}
		if _, err := get(func() {
			r.remove("shop")
			r.put(namespace("shop", func(n *corev1.Namespace) { n.UID = "second" }))
		}); !apierrors.IsNotFound(err) {
			t.Errorf("another namespace of the name: %v", err)
		}
	})
}

// TestNamesInRoles: names in a role that are no names of namespaces have no effect, also after their binding is gone.
func TestNamesInRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "named"}, Rules: onNamespaces(every, userKey("jane"))}
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "named"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "named"}, Subjects: []rbacv1.Subject{person("jane")}}
		r := newRig(t, role, b)
		r.allow(true, "jane list")
		jane := r.watch(r.as("jane"), internalversion.ListOptions{})
		if err := r.core.RbacV1().ClusterRoleBindings().Delete(r.ctx, "named", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * bookmarkInterval)
		r.put(namespace("shop"))
		expect(t, jane, "ADDED shop")
	})
}

// TestVersions: a watch goes on from a version of this process, unless there were too many changes since.
func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("shop"), binding("shop", person("jane")))
		r.allow(true, "jane get shop", "john list")
		ctx := r.as("jane")
		_, version := r.list(ctx, internalversion.ListOptions{})
		r.put(namespace("shop", func(n *corev1.Namespace) { n.Labels["a"] = "b" }))
		expect(t, r.watch(ctx, internalversion.ListOptions{ResourceVersion: version}), "MODIFIED shop")
		time.Sleep(time.Second)
		_, johns := r.list(r.as("john"), internalversion.ListOptions{})
		time.Sleep(time.Second)
		yes, no := true, false
		initial := internalversion.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
		f := r.watch(ctx, initial)
		expect(t, f, "ADDED shop", "BOOKMARK  true")
		initial.AllowWatchBookmarks = false // as the server asks for a watch without a version
		expect(t, r.watch(ctx, initial), "ADDED shop")
		expect(t, r.watch(ctx, internalversion.ListOptions{SendInitialEvents: &no}))
		expect(t, r.watch(ctx, internalversion.ListOptions{ResourceVersion: "0"}), "ADDED shop")
		time.Sleep(bookmarkInterval)
		expect(t, f, "BOOKMARK")
		for n := range 3 * maxLog {
			r.put(namespace("shop", func(shop *corev1.Namespace) { shop.Labels["n"] = fmt.Sprint(n) }))
		}
		f.watch.Stop()
		expect(t, r.watch(ctx, internalversion.ListOptions{ResourceVersion: f.version}))
		now := versions{clock: clock.RealClock{}, random: r.view("jane").random}
		other := now
		other.random ^= 1
		for _, bad := range []string{version, johns, "5", "x", "-1", text(other.now()), text(now.now() + 1<<40), "99999999999999999999999"} {
			options := internalversion.ListOptions{ResourceVersion: bad}
			w, err := r.rest.Watch(ctx, &options)
			if err == nil {
				defer w.Stop()
				event := <-w.ResultChan()
				err = apierrors.FromObject(event.Object)
			}
			if !apierrors.IsResourceExpired(err) {
				t.Errorf("watch from %s: %v", bad, err)
			}
			if _, err := r.rest.List(ctx, &options); !apierrors.IsResourceExpired(err) && bad != version {
				t.Errorf("list at %s: %v", bad, err)
			}
		}
		if _, err := r.rest.List(ctx, &internalversion.ListOptions{Continue: "x"}); !apierrors.IsBadRequest(err) {
			t.Errorf("list with a continue token: %v", err)
		}
	})
}

// TestUnavailable: no part of a list is returned before everything is known, or while the authorizer does not answer.
func TestUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("shop"), binding("shop", person("jane")))
		r.allow(true, "jane get shop")
		requests := func() error {
			ctx, options := r.as("jane"), internalversion.ListOptions{}
			_, get := r.rest.Get(ctx, "shop", nil)
			_, list := r.rest.List(ctx, &options)
			w, watching := r.rest.Watch(ctx, &options)
			if watching == nil {
				w.Stop()
			}
			if (get == nil) != (list == nil) || (get == nil) != (watching == nil) {
				t.Errorf("get: %v, list: %v, watch: %v", get, list, watching)
			}
			return get
		}
		synced := r.rest.index.synced
		for n := range synced {
			r.rest.index.synced = slices.Clone(synced)
			r.rest.index.synced[n] = func() bool { return false }
			if seconds, ok := apierrors.SuggestsClientDelay(requests()); !ok || seconds < 1 {
				t.Errorf("%d: retry after %d seconds", n, seconds)
			}
		}
		r.rest.index.synced = synced
		if len(synced) != 5 || requests() != nil {
			t.Errorf("%d informers", len(synced))
		}
		watching := r.watch(r.as("jane"), internalversion.ListOptions{})
		r.fail(true)
		time.Sleep(cachePeriod)
		if err := requests(); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("while the authorizer is down: %v", err)
		}
		r.unbind("shop")
		time.Sleep(cachePeriod)
		expect(t, watching, "ADDED shop")
		r.fail(false)
		r.allow(false, "jane get shop")
		time.Sleep(bookmarkInterval)
		expect(t, watching, "DELETED shop")
	})
}

// TestHungAuthorizer: a question of a watch that is never answered does not stop the other requests of the user.
func TestHungAuthorizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("shop"), binding("shop", person("jane")))
		r.watch(r.as("jane"), internalversion.ListOptions{})
		r.slow(24 * time.Hour)
		r.unbind("shop")
		time.Sleep(time.Second)
		r.slow(0)
		ctx, cancel := context.WithTimeout(r.as("jane"), 2*questionTimeout)
		defer cancel()
		r.list(ctx, internalversion.ListOptions{})
	})
}

// view returns the view of a user.
func (r *rig) view(name string) *view {
	synctest.Wait()
	r.rest.index.mu.Lock()
	defer r.rest.index.mu.Unlock()
	for _, v := range r.rest.index.views {
		if v.user.GetName() == name {
			return v
		}
	}
	return nil
}

// TestManyViews: unused views are removed before they use much memory. The tokens of a user have one view.
func TestManyViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 2000
		var objects []runtime.Object
		for n := range namespaces {
			objects = append(objects, namespace(fmt.Sprint(n)))
		}
		r := newRig(t, objects...)
		for n := range 2 * maxEntries / namespaces {
			name := fmt.Sprint("user", n)
			r.allow(true, name+" list")
			for _, id := range []string{"a", "b"} {
				ctx := genericapirequest.WithUser(r.ctx, &user.DefaultInfo{Name: name, Extra: map[string][]string{user.CredentialIDKey: {id}}})
				if _, err := r.rest.List(ctx, &internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "none")}); err != nil {
					t.Fatal(err)
				}
			}
			if got, all := len(r.rest.index.views), len(r.rest.index.concerned[every]); got > min(n+1, maxEntries/namespaces+2) || got != all {
				t.Fatalf("%d views of %d users, %d with all namespaces", got, n+1, all)
			}
		}
	})
}

// TestManyWatches: a user can have a limited number of watches, and those of another user do not count.
func TestManyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for range maxWatches {
			r.watch(r.as("jane"), internalversion.ListOptions{})
		}
		if _, err := r.rest.Watch(r.as("jane"), &internalversion.ListOptions{}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("another watch: %v", err)
		}
		r.watch(r.as("john"), internalversion.ListOptions{})
	})
}

// TestRepeatedSubject: a binding that repeats a subject costs as much as one that does not.
func TestRepeatedSubject(t *testing.T) {
	const views, times, perView = 200, 5000, 10
	core := fake.NewClientset()
	index, err := NewIndex(core, informers.NewSharedInformerFactory(core, 0).Core().V1().Namespaces().Informer(), nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range views {
		index.newView(&user.DefaultInfo{Name: fmt.Sprint(n), Groups: []string{"team"}})
	}
	subjects := slices.Repeat([]string{groupKey("team")}, times)
	if got := testing.AllocsPerRun(1, func() { index.onGrants(subjects, []string{"shop"}, false) }); got > perView*views {
		t.Errorf("%v allocations for %d views", got, views)
	}
}

// TestSlowAuthorizer: the watches of a user ask as often as one, however long an answer takes.
func TestSlowAuthorizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("shop"))
		r.slow(2 * reviewDelay)
		for range maxWatches {
			r.watch(r.as("jane"), internalversion.ListOptions{})
		}
		time.Sleep(idlePeriod)
		r.questions()
		r.bind(binding("shop", person("jane")))
		time.Sleep(idlePeriod)
		if got := r.questions(); !slices.Equal(got, []string{"jane get shop", "jane get shop"}) {
			t.Errorf("asked %q", got)
		}
	})
}

// TestManyCandidates: a change of one namespace costs a watch the same however many namespaces the user may get.
func TestManyCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const candidates = 1000
		var objects []runtime.Object
		for n := range candidates {
			objects = append(objects, namespace(fmt.Sprint(n)), binding(fmt.Sprint(n), person("jane")))
		}
		r := newRig(t, objects...)
		jane := r.watch(r.as("jane"), internalversion.ListOptions{})
		time.Sleep(2 * settleTime)
		synctest.Wait()
		index, v, n := r.rest.index, r.view("jane"), namespace("0")
		if got := testing.AllocsPerRun(1, func() {
			index.onNamespace(n)
			_, _ = index.changes(v, v.now(), selectionOf(&internalversion.ListOptions{}))
		}); got > candidates/2 {
			t.Errorf("%v allocations", got)
		}
		jane.watch.Stop()
	})
}

// TestWatchInitialized: an open watch is not one of the requests that the server handles at the same time. Otherwise some hundred watches
// would use up what it allows.
func TestWatchInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("shop"))
		r.allow(true, "jane list")
		signal, initialized := utilflowcontrol.NewInitializationSignal(), false
		go func() {
			signal.Wait()
			initialized = true
		}()
		w, err := r.rest.Watch(utilflowcontrol.WithInitializationSignal(r.as("jane"), signal), &internalversion.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if initialized {
			t.Error("before the initial events are sent, the watch is initialized")
		}
		<-w.ResultChan()
		synctest.Wait()
		if !initialized {
			t.Error("after the initial events, the watch is not initialized")
		}
		w.Stop()
	})
}

// TestForget: views without requests, and what no watch needs, are removed.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, namespace("shop"))
		watching := r.watch(r.as("watching"), internalversion.ListOptions{})
		index, v := r.rest.index, r.view("watching")
		logged := func() int {
			synctest.Wait()
			index.mu.Lock()
			defer index.mu.Unlock()
			return len(v.log)
		}
		r.allow(true, "watching get shop")
		r.bind(binding("shop", person("watching")))
		time.Sleep(2 * settleTime)
		for n := range 3 * maxLog {
			r.put(namespace("shop", func(namespace *corev1.Namespace) { namespace.Labels["n"] = fmt.Sprint(n) }))
		}
		if got := logged(); got < maxLog || got > 2*maxLog {
			t.Errorf("the log has %d changes", got)
		}
		version := watching.version
		time.Sleep(keepPeriod)
		if got := logged(); got < maxLog {
			t.Errorf("after %v, the log has %d changes", keepPeriod, got)
		}
		time.Sleep(bookmarkInterval)
		if got := logged(); got > 0 {
			t.Errorf("the log keeps %d changes", got)
		}
		r.put(namespace("shop"))
		resumed := r.watch(r.as("watching"), internalversion.ListOptions{ResourceVersion: version}) // it had the changes that were removed
		expect(t, resumed, "MODIFIED shop")
		resumed.watch.Stop()
		r.unbind("shop")
		r.remove("shop")
		time.Sleep(idlePeriod + 2*bookmarkInterval)
		synctest.Wait()
		if len(index.views) != 1 || len(v.decisions) != 3 || len(v.seen) != 0 {
			t.Errorf("%d views, %v %v", len(index.views), v.decisions, v.seen)
		}
		watching.watch.Stop()
		time.Sleep(idlePeriod + 2*bookmarkInterval)
		synctest.Wait()
		if len(index.views) != 0 || len(index.concerned) != 0 {
			t.Errorf("left: %v %v", index.views, index.concerned)
		}
	})
}

// step is something that happens in TestSameInTheEnd.
type step struct {
	what, name, user, selection      string
	closed, labelled, list, initiate bool
	allowed                          bool
	pause                            time.Duration
}

func drawStep(t *rapid.T) step {
	return step{
		what:      rapid.SampledFrom([]string{"put", "remove", "bind", "all", "get", "fail", "pause", "interrupt"}).Draw(t, "what"),
		name:      rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
		user:      rapid.SampledFrom([]string{"jane", "john"}).Draw(t, "user"),
		selection: rapid.SampledFrom([]string{"", "initializing", "label", "name"}).Draw(t, "selection"),
		closed:    rapid.Bool().Draw(t, "closed"), labelled: rapid.Bool().Draw(t, "labelled"),
		allowed: rapid.Bool().Draw(t, "allowed"), list: rapid.Bool().Draw(t, "list"), initiate: rapid.Bool().Draw(t, "initialize"),
		pause: rapid.SampledFrom([]time.Duration{0, time.Millisecond, reviewDelay, settleTime, time.Minute}).Draw(t, "pause"),
	}
}

// TestSameInTheEnd: whatever happens, and however often a watch is interrupted, its events lead to what a list shows.
func TestSameInTheEnd(t *testing.T) { rapid.Check(t, sameInTheEnd(t)) }

func FuzzSameInTheEnd(f *testing.F) {
	f.Fuzz(func(t *testing.T, input []byte) { rapid.MakeFuzz(sameInTheEnd(t))(t, input) })
}

func sameInTheEnd(t *testing.T) func(*rapid.T) {
	return func(draw *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 30).Draw(draw, "steps")
		var problem string
		synctest.Test(t, func(t *testing.T) { problem = play(newRig(t), steps) })
		if problem != "" {
			draw.Fatal(problem)
		}
	}
}

// inconsistent returns how the views and the relations that find them differ.
func (r *rig) inconsistent() string {
	index := r.rest.index
	index.mu.Lock()
	defer index.mu.Unlock()
	concerned := relation{}
	for _, v := range index.views {
		for subject := range v.subjects {
			concerned.add(subject, v)
		}
		for q := range v.decisions {
			if q.name != "" {
				concerned.add(q.name, v)
			}
		}
		if v.everything(nil) {
			concerned.add(every, v)
		}
	}
	if !maps.EqualFunc(concerned, index.concerned, sets.Set[*view].Equal) {
		return fmt.Sprintf("%v instead of %v", index.concerned, concerned)
	}
	return ""
}

// play plays steps, and returns how a watch and a list differ in the end.
func play(r *rig, steps []step) (problem string) {
	selections := map[string]internalversion.ListOptions{"": {}, "initializing": byPhase(v1alpha1.LifecycleInitializing),
		"label": {LabelSelector: labels.SelectorFromSet(labels.Set{"x": "y"})}, "name": {FieldSelector: fields.OneTermEqualSelector("metadata.name", "a")}}
	followers := map[string]*follower{}
	begin := func(who, what string) {
		options, f := selections[what], followers[who+" "+what]
		if f == nil {
			f = &follower{seen: map[string]*nsinit.AccessibleNamespace{}}
			followers[who+" "+what] = f
			_, f.version = r.list(r.as(who), internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "none")})
		} else {
			options.ResourceVersion = f.version
		}
		options.AllowWatchBookmarks = true
		version, _ := strconv.ParseInt(f.version, 10, 64)
		old := time.Since(time.UnixMilli(version>>randomBits)) > keepPeriod
		r.follow(r.as(who), f, options)
		if old && f.err != nil { // a client lists again
			options.ResourceVersion, f.err, f.seen = "", nil, map[string]*nsinit.AccessibleNamespace{}
			r.follow(r.as(who), f, options)
		}
	}
	for _, who := range []string{"jane", "john"} {
		for what := range selections {
			begin(who, what)
		}
	}
	existing, bound := map[string]*corev1.Namespace{}, map[string]bool{}
	for n, s := range steps {
		switch s.what {
		case "put":
			namespace := namespace(s.name, by(s.user), func(n *corev1.Namespace) {
				if s.closed {
					closed(n)
				}
				if s.labelled {
					n.Labels["x"] = "y"
				}
			})
			namespace.UID = types.UID(fmt.Sprint(n))
			if old := existing[s.name]; old != nil {
				namespace.UID = old.UID
			}
			existing[s.name] = namespace
			r.put(namespace)
		case "remove":
			if existing[s.name] != nil {
				delete(existing, s.name)
				r.remove(s.name)
			}
		case "bind":
			r.allow(s.allowed, s.user+" get "+s.name)
			if bound[s.name] {
				r.unbind(s.name)
			} else {
				r.bind(binding(s.name, person("jane"), person("john")))
			}
			bound[s.name] = !bound[s.name]
		case "all":
			r.allow(s.list, s.user+" list")
			r.allow(s.initiate, s.user+" initialize")
			b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(n)}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{person(s.user)}}
			if _, err := r.core.RbacV1().ClusterRoleBindings().Create(r.ctx, b, metav1.CreateOptions{}); err != nil {
				r.t.Fatal(err)
			}
		case "get":
			_, _ = r.rest.Get(r.as(s.user, "group"), s.name, nil) // of another view, which is removed when it is unused
		case "fail":
			r.fail(true)
			time.Sleep(s.pause)
			_, _ = r.rest.List(r.as(s.user), &internalversion.ListOptions{})
			r.fail(false)
		case "interrupt":
			followers[s.user+" "+s.selection].watch.Stop()
			synctest.Wait()
			time.Sleep(s.pause)
			begin(s.user, s.selection)
		}
		time.Sleep(s.pause)
		synctest.Wait()
		if problem := r.inconsistent(); problem != "" {
			return problem
		}
	}
	time.Sleep(2 * bookmarkInterval)
	synctest.Wait()
	for who, f := range followers {
		name, what, _ := strings.Cut(who, " ")
		options := selections[what]
		list, err := r.rest.List(r.as(name), &options)
		if err != nil || f.err != nil {
			return fmt.Sprint(err, f.err)
		}
		want := map[string]*nsinit.AccessibleNamespace{}
		for i, n := range list.(*nsinit.AccessibleNamespaceList).Items {
			want[n.Name] = &list.(*nsinit.AccessibleNamespaceList).Items[i]
		}
		without := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".ResourceVersion" }, cmp.Ignore())
		if diff := cmp.Diff(want, f.seen, without); diff != "" {
			return fmt.Sprintf("%s: the watch and the list differ: %s\nevents: %q", who, diff, f.events)
		}
	}
	return ""
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// bySubject and byRole are indexes of bindings.
const (
	bySubject = "subject"
	byRole    = "role"
)

// grants are the roles and bindings of RBAC. They propose which namespaces a user may get, and show when to ask the authorizer again.
// Cluster-scoped roles and bindings are stored as Role and RoleBinding without a namespace.
type grants struct {
	informers informers.SharedInformerFactory
	// mu is held while an event is handled.
	mu sync.Mutex
	// roles and bindings are those of namespaces, and those of the cluster, after the events that were handled. The stores of the informers are
	// ahead: if a role and its binding are deleted, both may be gone before either event is handled, and it would concern no subject.
	roles    [2]cache.Store
	bindings [2]cache.Indexer
	synced   []cache.InformerSynced
	// changed is called for subjects whose permissions may have changed: in some namespaces or, with everywhere, also in all.
	changed func(subjects, namespaces []string, everywhere bool)
}

func newGrants(core kubernetes.Interface, changed func(subjects, namespaces []string, everywhere bool)) (*grants, error) {
	g := &grants{informers: informers.NewSharedInformerFactoryWithOptions(core, 0, informers.WithTransform(slim)), changed: changed}
	rbac, key := g.informers.Rbac().V1(), cache.DeletionHandlingMetaNamespaceKeyFunc
	for i, roles := range []cache.SharedIndexInformer{rbac.Roles().Informer(), rbac.ClusterRoles().Informer()} {
		g.roles[i] = cache.NewStore(key)
		if err := g.follow(roles, g.roles[i], eachState(g.onRole, func(a, b *rbacv1.Role) bool { return equality.Semantic.DeepEqual(a.Rules, b.Rules) })); err != nil {
			return nil, err
		}
	}
	for i, bindings := range []cache.SharedIndexInformer{rbac.RoleBindings().Informer(), rbac.ClusterRoleBindings().Informer()} {
		g.bindings[i] = cache.NewIndexer(key, cache.Indexers{bySubject: subjectsOf, byRole: roleOf})
		if err := g.follow(bindings, g.bindings[i], eachState(g.onBinding, func(a, b *rbacv1.RoleBinding) bool {
			return a.RoleRef == b.RoleRef && equality.Semantic.DeepEqual(a.Subjects, b.Subjects)
		})); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// follow has a handler handle the events of an informer one after the other, and keeps its objects in a store. Their keys are valid.
func (g *grants) follow(informer cache.SharedIndexInformer, store cache.Store, handler cache.ResourceEventHandler) error {
	handle := func(change func(any) error, object any, then func()) {
		g.mu.Lock()
		defer g.mu.Unlock()
		_ = change(object)
		then()
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { handle(store.Add, o, func() { handler.OnAdd(o, false) }) },
		UpdateFunc: func(old, o any) { handle(store.Update, o, func() { handler.OnUpdate(old, o) }) },
		DeleteFunc: func(o any) { handle(store.Delete, o, func() { handler.OnDelete(o) }) },
	})
	if err == nil {
		g.synced = append(g.synced, registration.HasSynced)
	}
	return err
}

// eachState calls a function for each state that an object had, or has, unless two of them are the same.
func eachState[T any](f func(*T), same func(a, b *T) bool) cache.ResourceEventHandler {
	one := func(object any) {
		if removed, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = removed.Obj
		}
		f(object.(*T))
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: one, DeleteFunc: one, UpdateFunc: func(old, updated any) {
		if !same(old.(*T), updated.(*T)) {
			one(old)
			one(updated)
		}
	}}
}

// slim is a cache.TransformFunc that keeps of roles and bindings what may concern namespaces.
func slim(object any) (any, error) {
	identity := func(o metav1.Object) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
	}
	switch o := object.(type) {
	case *rbacv1.Role:
		return &rbacv1.Role{ObjectMeta: identity(o), Rules: ofNamespaces(o.Rules)}, nil
	case *rbacv1.ClusterRole:
		return &rbacv1.Role{ObjectMeta: identity(o), Rules: ofNamespaces(o.Rules)}, nil
	case *rbacv1.RoleBinding:
		return &rbacv1.RoleBinding{ObjectMeta: identity(o), RoleRef: o.RoleRef, Subjects: o.Subjects}, nil
	case *rbacv1.ClusterRoleBinding:
		return &rbacv1.RoleBinding{ObjectMeta: identity(o), RoleRef: o.RoleRef, Subjects: o.Subjects}, nil
	}
	return object, nil
}

// ofNamespaces returns the rules that concern namespaces, with the names that namespaces can have: RBAC accepts every text.
func ofNamespaces(rules []rbacv1.PolicyRule) (kept []rbacv1.PolicyRule) {
	includes := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, rbacv1.ResourceAll)
	}
	for _, rule := range rules {
		if includes(rule.APIGroups, "") && includes(rule.Resources, "namespaces") {
			rule.ResourceNames = slices.DeleteFunc(slices.Clone(rule.ResourceNames), func(name string) bool { return len(validation.IsDNS1123Label(name)) > 0 })
			kept = append(kept, rule)
		}
	}
	return kept
}

func (g *grants) onBinding(b *rbacv1.RoleBinding) { g.report(b, g.role(b)) }

func (g *grants) onRole(role *rbacv1.Role) {
	if len(role.Rules) == 0 {
		return
	}
	for _, bindings := range g.bindings {
		objects, _ := bindings.ByIndex(byRole, role.Namespace+"/"+role.Name) // the index exists
		for _, object := range objects {
			g.report(object.(*rbacv1.RoleBinding), role)
		}
	}
}

// report reports that the permissions of a binding may have changed, because it has a role that concerns namespaces.
func (g *grants) report(b *rbacv1.RoleBinding, role *rbacv1.Role) {
	if names := proposed(b, role); len(names) > 0 || b.Namespace == "" && role != nil && len(role.Rules) > 0 {
		subjects, _ := subjectsOf(b)
		g.changed(subjects, names, b.Namespace == "")
	}
}

// candidates returns the names of the namespaces that a user may get according to a binding. They need not exist.
func (g *grants) candidates(subjects sets.Set[string]) sets.Set[string] {
	names := sets.New[string]()
	for subject := range subjects {
		for _, bindings := range g.bindings {
			objects, _ := bindings.ByIndex(bySubject, subject) // the index exists
			for _, object := range objects {
				b := object.(*rbacv1.RoleBinding)
				names.Insert(proposed(b, g.role(b))...)
			}
		}
	}
	return names
}

// proposed returns the single namespaces that a binding to a role may let its subjects get.
func proposed(b *rbacv1.RoleBinding, role *rbacv1.Role) (names []string) {
	switch {
	case role == nil || len(role.Rules) == 0:
		return nil
	case b.Namespace != "":
		return []string{b.Namespace}
	}
	for _, rule := range role.Rules {
		names = append(names, rule.ResourceNames...)
	}
	return names
}

// role returns the role of a binding, or nil.
func (g *grants) role(b *rbacv1.RoleBinding) *rbacv1.Role {
	key, roles := roleKey(b), g.roles[0]
	if name, ok := strings.CutPrefix(key, "/"); ok {
		key, roles = name, g.roles[1]
	}
	if role, exists, _ := roles.GetByKey(key); exists {
		return role.(*rbacv1.Role)
	}
	return nil
}

// roleOf is a cache.IndexFunc that returns the role of a binding.
func roleOf(binding any) ([]string, error) {
	return []string{roleKey(binding.(*rbacv1.RoleBinding))}, nil
}

// roleKey returns the namespace and the name of the role of a binding.
func roleKey(b *rbacv1.RoleBinding) string {
	if b.RoleRef.Kind == "ClusterRole" {
		return "/" + b.RoleRef.Name
	}
	return b.Namespace + "/" + b.RoleRef.Name
}

// subjectsOf is a cache.IndexFunc that returns the users and groups of a binding. A service account without a namespace is one of the
// binding's namespace.
func subjectsOf(binding any) (keys []string, err error) {
	b := binding.(*rbacv1.RoleBinding)
	for _, s := range b.Subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			keys = append(keys, userKey(s.Name))
		case rbacv1.GroupKind:
			keys = append(keys, groupKey(s.Name))
		case rbacv1.ServiceAccountKind:
			keys = append(keys, userKey(serviceaccount.MakeUsername(cmp.Or(s.Namespace, b.Namespace), s.Name)))
		}
	}
	return keys, nil
}

// subjectsOfUser returns a user and its groups in the form of subjectsOf.
func subjectsOfUser(u user.Info) sets.Set[string] {
	subjects := sets.New(userKey(u.GetName()))
	for _, group := range u.GetGroups() {
		subjects.Insert(groupKey(group))
	}
	return subjects
}

func userKey(name string) string  { return "User/" + name }
func groupKey(name string) string { return "Group/" + name }

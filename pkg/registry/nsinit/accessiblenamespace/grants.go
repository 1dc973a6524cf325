/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"cmp"
	"errors"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// bySubject and byRole are the indices of bindings.
const (
	bySubject = "subject"
	byRole    = "role"
)

// grants are the roles and bindings of RBAC. They propose which namespaces a user may get, and tell when to ask the authorizer again.
// What concerns the cluster has the same types as what concerns a namespace, with an empty namespace.
type grants struct {
	informers informers.SharedInformerFactory
	roles     cache.Store
	bindings  []cache.Indexer
	synced    []cache.InformerSynced
	// changed is called for subjects whose permissions may have changed: in some namespaces or, with everywhere, also in all.
	changed func(subjects, namespaces []string, everywhere bool)
}

func newGrants(core kubernetes.Interface, changed func(subjects, namespaces []string, everywhere bool)) (*grants, error) {
	g := &grants{informers: informers.NewSharedInformerFactoryWithOptions(core, 0, informers.WithTransform(slim)), changed: changed}
	rbac := g.informers.Rbac().V1()
	g.roles = rbac.ClusterRoles().Informer().GetStore()
	for _, bindings := range []cache.SharedIndexInformer{rbac.RoleBindings().Informer(), rbac.ClusterRoleBindings().Informer()} {
		g.bindings = append(g.bindings, bindings.GetIndexer())
		synced, err := follow(bindings, g.onBinding)
		if err = errors.Join(err, bindings.AddIndexers(cache.Indexers{bySubject: subjectsOf, byRole: roleOf})); err != nil {
			return nil, err
		}
		g.synced = append(g.synced, synced)
	}
	for _, roles := range []cache.SharedIndexInformer{rbac.Roles().Informer(), rbac.ClusterRoles().Informer()} {
		synced, err := follow(roles, g.onRole)
		if err != nil {
			return nil, err
		}
		g.synced = append(g.synced, synced)
	}
	return g, nil
}

// follow calls a function for each change of an object: from nil, if it is new, to nil, if it was removed.
func follow[T any](informer cache.SharedIndexInformer, f func(old, updated *T)) (cache.InformerSynced, error) {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f(nil, object.(*T)) },
		UpdateFunc: func(old, updated any) { f(old.(*T), updated.(*T)) },
		DeleteFunc: func(object any) {
			if removed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = removed.Obj
			}
			f(object.(*T), nil)
		},
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
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

// ofNamespaces returns the rules that concern namespaces.
func ofNamespaces(rules []rbacv1.PolicyRule) (kept []rbacv1.PolicyRule) {
	includes := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, rbacv1.ResourceAll)
	}
	for _, rule := range rules {
		if includes(rule.APIGroups, "") && includes(rule.Resources, "namespaces") {
			kept = append(kept, rule)
		}
	}
	return kept
}

func (g *grants) onBinding(old, updated *rbacv1.RoleBinding) {
	if old != nil && updated != nil && equality.Semantic.DeepEqual(old.Subjects, updated.Subjects) { // the role of a binding is immutable
		return
	}
	for _, b := range []*rbacv1.RoleBinding{old, updated} {
		if b != nil {
			g.report(b, g.named(b))
		}
	}
}

func (g *grants) onRole(old, updated *rbacv1.Role) {
	if old != nil && updated != nil && equality.Semantic.DeepEqual(old.Rules, updated.Rules) {
		return
	}
	for _, role := range []*rbacv1.Role{old, updated} {
		if role == nil {
			continue
		}
		kind := "Role"
		if role.Namespace == "" {
			kind = "ClusterRole"
		}
		for _, b := range g.find(byRole, roleKey(kind, role.Namespace, role.Name)) {
			g.report(b, namedBy(role))
		}
	}
}

// report reports that the permissions of a binding may have changed. Its role names some namespaces.
func (g *grants) report(b *rbacv1.RoleBinding, named []string) {
	subjects, _ := subjectsOf(b)
	if b.Namespace != "" {
		g.changed(subjects, []string{b.Namespace}, false)
		return
	}
	g.changed(subjects, named, true)
}

// candidates returns the names of the namespaces that a user may get according to a binding. They need not exist.
func (g *grants) candidates(subjects sets.Set[string]) sets.Set[string] {
	names := sets.New[string]()
	for subject := range subjects {
		for _, b := range g.find(bySubject, subject) {
			if b.Namespace != "" {
				names.Insert(b.Namespace)
				continue
			}
			names.Insert(g.named(b)...)
		}
	}
	return names
}

// named returns the namespaces that the role of a ClusterRoleBinding names.
func (g *grants) named(b *rbacv1.RoleBinding) []string {
	if role, exists, _ := g.roles.GetByKey(b.RoleRef.Name); exists {
		return namedBy(role.(*rbacv1.Role))
	}
	return nil
}

func namedBy(role *rbacv1.Role) (names []string) {
	for _, rule := range role.Rules {
		names = append(names, rule.ResourceNames...)
	}
	return names
}

// find returns the bindings that an index has for a key.
func (g *grants) find(index, key string) (found []*rbacv1.RoleBinding) {
	for _, indexer := range g.bindings {
		objects, _ := indexer.ByIndex(index, key) // the index exists
		for _, object := range objects {
			found = append(found, object.(*rbacv1.RoleBinding))
		}
	}
	return found
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

// roleOf is a cache.IndexFunc that returns the role of a binding.
func roleOf(binding any) ([]string, error) {
	b := binding.(*rbacv1.RoleBinding)
	return []string{roleKey(b.RoleRef.Kind, b.Namespace, b.RoleRef.Name)}, nil
}

func roleKey(kind, namespace, name string) string {
	if kind == "ClusterRole" {
		return kind + "/" + name
	}
	return kind + "/" + namespace + "/" + name
}

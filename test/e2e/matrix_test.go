//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// An answer is one letter, so that a row of the matrix fits on a line.
const (
	passes      = '+' // it is done
	ends        = '.' // it is let through, and ends for want of a node, or of what it asks for
	byRBAC      = 'r' // RBAC refuses it
	byGate      = 'G' // the gate refuses it
	byGuard     = 'U' // a guard refuses it
	byAuthority = 'A' // nsinit-apiserver refuses it: it takes one of nsinit's verbs
	terminates  = 't' // nothing new in a namespace that is being deleted
	invalid     = 'i' // the change is invalid for every user
	conflicts   = 'c' // the object is another one, or was changed
)

// answer returns the result of a request.
func answer(err error) rune {
	switch {
	case err == nil:
		return passes
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'nsinit-gate'"):
		return byGate
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'nsinit-guard"):
		return byGuard
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return terminates
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "granted cluster-wide"):
		return byAuthority
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "):
		return byRBAC
	case apierrors.IsInvalid(err):
		return invalid
	case apierrors.IsConflict(err):
		return conflicts
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return '?'
	}
	return ends
}

const (
	initializerA, initializerB = "a.example.com", "b.example.com"
	identities                 = "tenant, administrator of the namespace, initializer A, initializer B, nsinit's controller, cluster-admin, cluster-admin as the tenant, anonymous, editor of everything"
)

// matrix holds the identities and the namespaces. The editor of everything holds all of Kubernetes' verbs on all
// resources, and none of nsinit's, so it is not refused by RBAC.
type matrix struct {
	*framework.Cluster
	clients                           []rest.Interface
	initializing, active, terminating string
}

// TestSecurityMatrix sends every request, as every user, in every state of a namespace. Requests
// that change an object are dry runs, which pass the same authorization, admission and validation.
func TestSecurityMatrix(t *testing.T) {
	m := newMatrix(t)
	states := map[string]string{"initializing": m.initializing, "active": m.active, "terminating": m.terminating}
	cells := 0
	for _, operation := range operations() {
		for state, namespace := range states {
			want := operation.want[state]
			var got []rune
			for _, client := range m.clients {
				err := m.ask(t, operation, client, namespace)
				// A controller can write between the read and the write.
				for i := 0; i < 10 && apierrors.IsConflict(err) && !strings.ContainsRune(want, conflicts); i++ {
					err = m.ask(t, operation, client, namespace)
				}
				got = append(got, answer(err))
				cells++
				if i := len(got) - 1; i >= len(want) || got[i] != rune(want[i]) {
					t.Logf("%s in a namespace that is %s, as %s: %v", operation.name, state, strings.Split(identities, ", ")[i], err)
				}
			}
			if string(got) != want {
				t.Errorf("%s in a namespace that is %s: %s, want %s (%s)", operation.name, state, string(got), want, identities)
			}
		}
	}
	t.Logf("%d cells", cells)
}

// ask makes one request.
func (m *matrix) ask(t *testing.T, o operation, client rest.Interface, namespace string) error {
	t.Helper()
	var body string
	if o.body != nil {
		body = o.body(t, m, namespace)
	}
	request := client.Verb(o.verb).RequestURI(strings.ReplaceAll(o.path, "{ns}", namespace)).MaxRetries(0)
	if body != "" {
		contentType := o.contentType
		if contentType == "" {
			contentType = "application/json"
		}
		request = request.SetHeader("Content-Type", contentType).Body([]byte(body))
	}
	return request.Do(t.Context()).Error()
}

// newMatrix creates the identities, and a namespace in each state. The objects in the namespaces have
// finalizers, so that they still exist while the namespace is being deleted.
func newMatrix(t *testing.T) *matrix {
	t.Helper()
	c := framework.Connect(t)
	m := &matrix{Cluster: c}
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: initializerA, Finalizer: true}, v1alpha1.RegisteredInitializer{Name: initializerB})
	content := rbacv1.PolicyRule{
		APIGroups: []string{"", "apps", "rbac.authorization.k8s.io", "authorization.k8s.io"},
		Resources: []string{"configmaps", "pods", "pods/exec", "pods/ephemeralcontainers", "pods/eviction", "pods/status", "serviceaccounts/token",
			"events", "deployments", "deployments/scale", "deployments/status", "rolebindings", "localsubjectaccessreviews"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
	}
	bind := rbacv1.PolicyRule{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"}, Verbs: []string{"bind"}}
	selfService := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "create"}}
	all := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}

	tenant := c.User(t, "e2e-matrix-tenant", content, bind, selfService)
	administrator := c.As("e2e-matrix-admin")
	controller, err := clientcmd.BuildConfigFromFlags("", c.Dir+"/nsinit-controller-manager.kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	_, root := c.ServiceAccount(t, all)
	impersonated := rest.CopyConfig(root)
	impersonated.Impersonate = rest.ImpersonationConfig{UserName: "e2e-matrix-tenant", Groups: []string{"system:authenticated"}}
	for _, config := range []*rest.Config{
		tenant, administrator, m.initializer(t, initializerA, content, bind), m.initializer(t, initializerB, content, bind),
		controller, root, impersonated, rest.AnonymousClientConfig(c.Admin), c.User(t, "e2e-matrix-editor", framework.Everything(), bind),
	} {
		config.QPS = -1
		m.clients = append(m.clients, kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient())
	}

	for _, state := range []*string{&m.initializing, &m.active, &m.terminating} {
		namespace := c.CreateNamespace(t, c.Admin).Name
		*state = namespace
		c.WaitCurrent(t, namespace, initializerA)
		m.fill(t, namespace)
		if state == &m.initializing {
			c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, initializerA)
			continue
		}
		c.RemoveFirst(t, namespace)
		c.RemoveFirst(t, namespace)
		c.WaitReady(t, namespace)
	}
	c.DeleteNamespace(t, m.terminating)
	framework.Eventually(t, "the content is being deleted", func(ctx context.Context) error {
		// Pods are deleted first, and other objects only after them.
		pod, err := c.Core.CoreV1().Pods(m.terminating).Get(ctx, "there", metav1.GetOptions{})
		if err == nil && pod.DeletionTimestamp == nil {
			err = errors.New("not yet")
		}
		return err
	})
	framework.Eventually(t, "the NamespaceLifecycle is being deleted", func(ctx context.Context) error {
		lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, m.terminating, metav1.GetOptions{})
		if err == nil && lifecycle.DeletionTimestamp == nil {
			err = errors.New("not yet")
		}
		return err
	})
	t.Cleanup(func() { m.empty(t) })
	return m
}

// initializer creates a user with the permissions of every initializer, the permission to act under one name, and
// additional ones.
func (m *matrix) initializer(t *testing.T, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	user := "e2e-matrix-" + name
	config := m.User(t, user, append(rules, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.ResourceInitializers}, ResourceNames: []string{name},
		Verbs: []string{v1alpha1.VerbInitialize, v1alpha1.VerbFinalize},
	})...)
	binding, err := m.Core.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("e2e")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nsinit:initializer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.Core.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{})
	})
	m.WaitMay(t, config, "namespaces", v1alpha1.VerbInitialize)
	return config
}

// kept are the objects of a matrix's namespaces. The administrator is bound by the last one,
// which grants initialize and open, too, without effect.
const kept = `
apiVersion: v1
kind: ConfigMap
metadata: {name: there, finalizers: [e2e.example.com/hold]}
---
apiVersion: v1
kind: Pod
metadata: {name: there, finalizers: [e2e.example.com/hold]}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: i}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: there, finalizers: [e2e.example.com/hold]}
spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: there, finalizers: [e2e.example.com/hold]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: there, finalizers: [e2e.example.com/hold]}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [initialize, open]}
- {apiGroups: [nsinit.dev], resources: [initializers], verbs: [initialize, finalize]}
- {apiGroups: [nsinit.dev], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: granted, finalizers: [e2e.example.com/hold]}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: there}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-matrix-admin}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: there, finalizers: [e2e.example.com/hold]}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-matrix-admin}]
`

func (m *matrix) fill(t *testing.T, namespace string) {
	t.Helper()
	if _, err := m.KubectlInput(kept, "apply", "--server-side", "--namespace", namespace); err != nil {
		t.Fatal(err)
	}
	m.WaitMay(t, m.As("e2e-matrix-admin"), "configmaps", "create", namespace)
	m.WaitMay(t, m.As("e2e-matrix-admin"), "namespaces", v1alpha1.VerbInitialize, namespace)
}

// empty removes the finalizers.
func (m *matrix) empty(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{m.initializing, m.active, m.terminating} {
		for _, object := range []string{"configmap/there", "pod/there", "deployment/there", "serviceaccount/there", "role/there", "rolebinding/granted", "rolebinding/there"} {
			if _, err := m.Kubectl("patch", object, "--namespace", namespace, "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`); err != nil && !strings.Contains(err.Error(), "NotFound") {
				t.Error(err)
			}
		}
		_, _ = m.Kubectl("delete", "pod/there", "--namespace", namespace, "--grace-period=0", "--force", "--ignore-not-found")
		if err := m.Core.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			t.Error(err)
		}
		m.ReleaseParticipant(t, namespace, initializerA)
		m.WaitNoNamespace(t, namespace)
	}
}

// patchOf returns the body of a request.
func patchOf(text string) func(*testing.T, *matrix, string) string {
	return func(_ *testing.T, _ *matrix, namespace string) string {
		return strings.ReplaceAll(text, "{ns}", namespace)
	}
}

// asIs returns the object at a path.
func asIs(path string) func(*testing.T, *matrix, string) string {
	return func(t *testing.T, m *matrix, namespace string) string {
		t.Helper()
		object, err := m.Core.CoreV1().RESTClient().Get().RequestURI(strings.ReplaceAll(path, "{ns}", namespace)).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(object)
	}
}

// lifecycleBody returns the changed NamespaceLifecycle of a namespace in JSON.
func lifecycleBody(change func(*v1alpha1.NamespaceLifecycle)) func(*testing.T, *matrix, string) string {
	return func(t *testing.T, m *matrix, namespace string) string {
		t.Helper()
		lifecycle, err := m.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lifecycle.APIVersion, lifecycle.Kind = v1alpha1.SchemeGroupVersion.String(), "NamespaceLifecycle"
		change(lifecycle)
		return framework.JSON(t, lifecycle)
	}
}

func withoutFinalizer(name v1alpha1.FinalizerName) func(*v1alpha1.NamespaceLifecycle) {
	return func(r *v1alpha1.NamespaceLifecycle) {
		r.Spec.Finalizers = slices.DeleteFunc(r.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == name })
	}
}

// withoutFirst removes the first n pending initializers, if there are any.
func withoutFirst(n int) func(*v1alpha1.NamespaceLifecycle) {
	return func(r *v1alpha1.NamespaceLifecycle) {
		if r.Spec.Initializers != nil {
			r.Spec.Initializers.Pending = r.Spec.Initializers.Pending[n:]
		}
	}
}

func namespaceBody(change func(*corev1.Namespace)) func(*testing.T, *matrix, string) string {
	return func(t *testing.T, m *matrix, name string) string {
		t.Helper()
		namespace, err := m.Core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		namespace.APIVersion, namespace.Kind = "v1", "Namespace"
		change(namespace)
		return framework.JSON(t, namespace)
	}
}

// toggled removes the label that closes the gate, or sets it where it is not.
func toggled(n *corev1.Namespace) {
	if _, closed := n.Labels[v1alpha1.LabelInitializing]; closed {
		delete(n.Labels, v1alpha1.LabelInitializing)
		return
	}
	n.Labels[v1alpha1.LabelInitializing] = "true"
}

//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// content is what the writes of TestGate find in the namespace.
const content = `
apiVersion: v1
kind: ConfigMap
metadata: {name: there}
---
apiVersion: v1
kind: Service
metadata: {name: there}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: there}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: there}
spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}
---
apiVersion: e2e.example.com/v1
kind: Thing
metadata: {name: there}
`

const thingDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.e2e.example.com}
spec:
  group: e2e.example.com
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// write tries to write into a namespace.
type write func(ctx context.Context, client kubernetes.Interface, namespace string) error

// raw returns a write by a verb of HTTP and the end of a path.
func raw(verb, group, path, contentType, body string) write {
	return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
		request := client.CoreV1().RESTClient().Verb(verb).AbsPath(group, "namespaces", namespace).Suffix(path)
		if body != "" {
			request = request.SetHeader("Content-Type", contentType).Body([]byte(body))
		}
		return request.Do(ctx).Error()
	}
}

// writes returns writes of every operation, to kinds and subresources of every sort.
func writes() map[string]write {
	const (
		core, apps = "/api/v1", "/apis/apps/v1"
		jsonType   = "application/json"
		mergePatch = string(types.MergePatchType)
		labelPatch = `{"metadata":{"labels":{"a":"b"}}}`
	)
	named := metav1.ObjectMeta{Name: "there"}
	return map[string]write{
		"create configmaps": func(ctx context.Context, c kubernetes.Interface, ns string) error { return writeConfigMap(ctx, c, ns) },
		"create configmaps, dry run": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
		"update configmaps": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			_, err := c.CoreV1().ConfigMaps(ns).Update(ctx, &corev1.ConfigMap{ObjectMeta: named}, metav1.UpdateOptions{})
			return err
		},
		"patch configmaps": raw("PATCH", core, "configmaps/there", mergePatch, `{"data":{"a":"b"}}`),
		"apply configmaps": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			_, err := c.CoreV1().ConfigMaps(ns).Patch(ctx, "applied", types.ApplyPatchType,
				[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`), metav1.PatchOptions{FieldManager: "e2e"})
			return err
		},
		"delete configmaps": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			return c.CoreV1().ConfigMaps(ns).Delete(ctx, "there", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		},
		"delete a collection of configmaps": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			return c.CoreV1().ConfigMaps(ns).DeleteCollection(ctx, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{})
		},
		"create secrets": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			_, err := c.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
			return err
		},
		"create events": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			_, err := c.CoreV1().Events(ns).Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}, InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Name: "there", Namespace: ns},
			}, metav1.CreateOptions{})
			return err
		},
		"create leases": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			_, err := c.CoordinationV1().Leases(ns).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
			return err
		},
		"create rolebindings": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			_, err := c.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:basic-user"},
			}, metav1.CreateOptions{})
			return err
		},
		"create serviceaccounts/token": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			_, err := c.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		},
		"create pods/eviction": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			return c.PolicyV1().Evictions(ns).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "there", Namespace: ns}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}})
		},
		"create pods/binding": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			return c.CoreV1().Pods(ns).Bind(ctx, &corev1.Binding{ObjectMeta: named, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		},
		"patch pods/status":              raw("PATCH", core, "pods/there/status", mergePatch, `{"status":{"message":"x"}}`),
		"patch pods/ephemeralcontainers": raw("PATCH", core, "pods/there/ephemeralcontainers", mergePatch, labelPatch),
		"patch deployments/status":       raw("PATCH", apps, "deployments/there/status", mergePatch, labelPatch),
		"update deployments/scale": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			_, err := c.AppsV1().Deployments(ns).UpdateScale(ctx, "there", &autoscalingv1.Scale{ObjectMeta: named}, metav1.UpdateOptions{})
			return err
		},
		"create deployments": func(ctx context.Context, c kubernetes.Interface, ns string) error {
			labels := map[string]string{"a": "b"}
			_, err := c.AppsV1().Deployments(ns).Create(ctx, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"},
				Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				}},
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
		"create custom resources":     raw("POST", "/apis/e2e.example.com/v1", "things", jsonType, `{"apiVersion":"e2e.example.com/v1","kind":"Thing","metadata":{"generateName":"x-"}}`),
		"patch custom resources":      raw("PATCH", "/apis/e2e.example.com/v1", "things/there", mergePatch, `{"a":"b"}`),
		"connect to pods/exec":        raw("POST", core, "pods/there/exec", "", ""),
		"connect to pods/attach":      raw("POST", core, "pods/there/attach", "", ""),
		"connect to pods/portforward": raw("POST", core, "pods/there/portforward", "", ""),
		"connect to pods/proxy":       raw("GET", core, "pods/there/proxy", "", ""),
		"connect to services/proxy":   raw("GET", core, "services/there/proxy", "", ""),
	}
}

// TestGate: while a namespace is initializing, every write is refused, save for those who
// hold the verb initialize for this namespace.
func TestGate(t *testing.T) {
	c := connect(t)
	if _, err := c.kubectlInput(thingDefinition, "apply", "--server-side"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.kubectlInput(thingDefinition, "delete", "--wait=false") })
	namespace, other := c.held(t, c.admin).Name, c.createNamespace(t, c.admin).Name
	clients := map[string]kubernetes.Interface{
		"tenant":                          kubernetes.NewForConfigOrDie(c.user(t, "e2e-tenant-of-all", everything())),
		"holder":                          kubernetes.NewForConfigOrDie(c.user(t, "e2e-holder", everything(), initialize(namespace))),
		"holder for another":              kubernetes.NewForConfigOrDie(c.user(t, "e2e-other-holder", everything(), initialize(other))),
		"holder by a RoleBinding":         kubernetes.NewForConfigOrDie(c.user(t, "e2e-bound", everything())),
		"tenant impersonated by a holder": c.impersonating(t, "e2e-tenant-of-all"),
	}
	c.bindInitialize(t, namespace, "e2e-bound")
	eventually(t, "the namespace has its content", func(context.Context) error {
		_, err := c.kubectlInput(content, "apply", "--server-side", "--namespace", namespace)
		return err
	})
	for name, write := range writes() {
		t.Run(name, func(t *testing.T) {
			for who, client := range clients {
				err := write(t.Context(), client, namespace)
				if who != "holder" {
					if err := refused(err, fmt.Sprintf("namespace %q", namespace), `"hold.example.com"`, "condition Ready"); err != nil {
						t.Errorf("%s: %v", who, err)
					}
					continue
				}
				// There is no node, so what connects to a pod ends otherwise.
				if err != nil && (!strings.HasPrefix(name, "connect") || apierrors.IsForbidden(err)) {
					t.Errorf("%s: %v", who, err)
				}
			}
		})
	}
	t.Run("reads", func(t *testing.T) {
		if _, err := clients["tenant"].CoreV1().ConfigMaps(namespace).Get(t.Context(), "there", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := clients["tenant"].CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("access reviews", func(t *testing.T) {
		review := authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "e2e-tenant-of-all", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "configmaps"},
			},
		}
		answer, err := clients["tenant"].AuthorizationV1().LocalSubjectAccessReviews(namespace).Create(t.Context(), &review, metav1.CreateOptions{})
		if err != nil || !answer.Status.Allowed {
			t.Errorf("%v, %v", answer, err)
		}
	})
}

// impersonating returns a client that acts as a user, by means of somebody who holds the
// verb initialize.
func (c *cluster) impersonating(t *testing.T, user string) kubernetes.Interface {
	t.Helper()
	_, config := c.serviceAccount(t, everything(), initialize(),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"}})
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return kubernetes.NewForConfigOrDie(config)
}

// bindInitialize grants the verb initialize in one namespace, as RBAC allows who
// administers it, which has no effect.
func (c *cluster) bindInitialize(t *testing.T, namespace, user string) {
	t.Helper()
	ctx := t.Context()
	if _, err := c.core.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "initialize"}, Rules: []rbacv1.PolicyRule{initialize()},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []rbacv1.RoleRef{
		{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "initialize"},
		{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nsinit:initialize-namespaces"},
	} {
		if _, err := c.core.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "initialize-"}, RoleRef: role,
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// It is in force for who asks within the namespace.
	eventually(t, "the RoleBinding is in force", func(ctx context.Context) error {
		answer, err := c.core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: v1alpha1.VerbInitialize, Resource: "namespaces", Name: namespace,
			}},
		}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = fmt.Errorf("not yet: %s", answer.Status.Reason)
		}
		return err
	})
}

// TestGateMessage: the gate quotes the namespace's condition, whatever that says.
func TestGateMessage(t *testing.T) {
	c := connect(t)
	tenant := c.tenant(t)
	// Without the controller, the conditions are what this test writes.
	c.dev(t, "stop", "nsinit-controller-manager")
	t.Cleanup(func() { c.dev(t, "start", "nsinit-controller-manager") })
	namespace := c.createNamespace(t, c.admin)
	name := namespace.Name
	for _, test := range []struct {
		name, message, want string
		status              corev1.ConditionStatus
	}{
		{"no condition", "", "nsinit has not recorded yet what it waits for; it can", ""},
		{"empty message", "", "nsinit has not recorded yet what it waits for; it can", corev1.ConditionTrue},
		{"condition", "waiting for somebody", "waiting for somebody; it can", corev1.ConditionTrue},
		{"condition of before", "waiting for nobody", "nsinit has not recorded yet what it waits for; it can", corev1.ConditionFalse},
		{"several lines", "waiting\nfor\nsomebody", "waiting for somebody; it can", corev1.ConditionTrue},
		{"long", strings.Repeat("ü\n", 20000), strings.Repeat("ü ", 512) + "...; it can", corev1.ConditionTrue},
	} {
		namespace.Status.Conditions = nil
		if test.status != "" {
			namespace.Status.Conditions = []corev1.NamespaceCondition{{Type: v1alpha1.ConditionInitializing, Status: test.status, Message: test.message}}
		}
		namespace.ResourceVersion = ""
		namespace.Labels[v1alpha1.LabelInitializing] = "" // closes the gate as any other value does
		if _, err := c.core.CoreV1().Namespaces().UpdateStatus(t.Context(), namespace, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, test.name, func(ctx context.Context) error {
			return refused(writeConfigMap(ctx, tenant, name), fmt.Sprintf("namespace %q is being initialized and cannot be written to yet: %s", name, test.want))
		})
	}
}

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
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const freezePolicy, serviceAccountOfKubernetes = "nsinit-freeze", "system:serviceaccount:kube-system:"

// unfreezeLater unfreezes a namespace when the test ends, so that the namespace can be deleted.
func unfreezeLater(t *testing.T, c *framework.Cluster, namespace string) {
	t.Cleanup(func() {
		_, _ = c.Kubectl("label", "namespace", namespace, v1alpha1.LabelFrozen+"-")
	})
}

// TestFreezeKeepsDependents: the garbage collector deletes nothing in a frozen namespace when the cluster-scoped owners of its
// objects are deleted, in the background or in the foreground. It deletes the objects when the namespace is unfrozen.
func TestFreezeKeepsDependents(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	namespace, other := c.CreateNamespace(t, c.Admin).Name, c.CreateNamespace(t, c.Admin)
	c.WaitReady(t, namespace)
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: other.Name, UID: other.UID}}
	for _, name := range []string{"background", "foreground"} {
		role, err := c.Core.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Core.RbacV1().ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
		})
		owners = append(owners, metav1.OwnerReference{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID, BlockOwnerDeletion: new(name == "foreground")})
	}
	configMaps := c.Core.CoreV1().ConfigMaps(namespace)
	for _, owner := range owners {
		if _, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: owner.Name, OwnerReferences: []metav1.OwnerReference{owner}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	unfreezeLater(t, c, namespace)
	c.MustPlugin(t, "freeze", namespace, "--reason=evidence")
	tenant := c.Tenant(t)
	framework.Eventually(t, "a tenant cannot write", func(ctx context.Context) error {
		return framework.RefusedBy(freezePolicy, framework.WriteConfigMap(ctx, tenant, namespace))
	})
	_, from := c.AuditSince(t, 0)
	for i, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		err := error(nil)
		if options := (metav1.DeleteOptions{PropagationPolicy: &policy}); i == 0 {
			err = c.Core.CoreV1().Namespaces().Delete(t.Context(), other.Name, options)
		} else {
			err = c.Core.RbacV1().ClusterRoles().Delete(t.Context(), owners[i].Name, options)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	framework.Eventually(t, "the garbage collector may not delete the dependents", func(ctx context.Context) error {
		refused := map[string]bool{}
		events, _ := c.AuditSince(t, from)
		for _, event := range events {
			if event.User.Username == serviceAccountOfKubernetes+"generic-garbage-collector" && event.Verb == "delete" && event.ObjectRef.Namespace == namespace {
				refused[event.ObjectRef.Name] = event.ResponseStatus.Code == http.StatusForbidden
			}
		}
		if len(refused) < len(owners) || slices.Contains(slices.Collect(maps.Values(refused)), false) {
			return fmt.Errorf("refused: %v", refused)
		}
		return nil
	})
	for _, owner := range owners {
		if live, err := configMaps.Get(t.Context(), owner.Name, metav1.GetOptions{}); err != nil || live.DeletionTimestamp != nil {
			t.Errorf("the ConfigMap of %s: %v, deleted at %v", owner.Name, err, live.DeletionTimestamp)
		}
	}
	c.MustPlugin(t, "unfreeze", namespace)
	for _, owner := range owners {
		framework.Eventually(t, "the garbage collector deletes the ConfigMap of "+owner.Name, gone(c, namespace, "configmap/"+owner.Name))
	}
}

// TestFreezeTerminating: what is left of a namespace that is being deleted stays while it is frozen. kubectl nsinit freeze says
// so, and the condition and why say what keeps it.
func TestFreezeTerminating(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	pods := c.Core.CoreV1().Pods(namespace)
	if _, err := c.Core.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "evidence"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Kubernetes deletes nothing else while a pod exists.
	if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Finalizers: []string{"e2e.example.com/hold"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.DeleteNamespace(t, namespace)
	framework.Eventually(t, "the pod is deleted", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "app", metav1.GetOptions{})
		if err == nil && pod.DeletionTimestamp == nil {
			err = errors.New("it is not")
		}
		return err
	})
	unfreezeLater(t, c, namespace)
	if out, said, code := c.Plugin(t, "freeze", namespace, "--reason=evidence"); code != 0 || !strings.Contains(said, "is being deleted: what is left of its content is kept until you unfreeze it") {
		t.Errorf("exit code %d: %s%s", code, out, said)
	}
	if _, err := pods.Patch(t.Context(), "app", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.WaitCondition(t, namespace, corev1.NamespaceDeletionContentFailure, string(corev1.ConditionTrue), freezePolicy, "keeps its content: evidence")
	finding := c.WaitWhy(t, namespace, diagnosis.NamespaceFrozen, diagnosis.Stuck)
	if !strings.Contains(finding.Message, "Its content is kept until it is unfrozen") {
		t.Errorf("why says %q", finding.Message)
	}
	if _, err := c.Kubectl("--namespace", namespace, "get", "configmap/evidence"); err != nil {
		t.Error(err)
	}
	c.MustPlugin(t, "unfreeze", namespace)
	c.WaitNoNamespace(t, namespace)
}

// frozenControllers returns which requests the freeze refuses to each controller of Kubernetes that writes into namespaces, as a
// verb and a resource. Every other request that its role permits passes; the roles of older versions permit more or less. A
// new controller needs a row: what it deletes is content, unless deleting it keeps running what runs.
func frozenControllers() map[string]string {
	return map[string]string{
		"attachdetach-controller":              "",
		"cronjob-controller":                   "create jobs, delete jobs, delete pods",
		"daemon-set-controller":                "delete controllerrevisions, delete pods",
		"deployment-controller":                "delete replicasets",
		"device-taint-eviction-controller":     "",
		"disruption-controller":                "",
		"endpoint-controller":                  "",
		"endpointslice-controller":             "",
		"endpointslicemirroring-controller":    "",
		"ephemeral-volume-controller":          "",
		"expand-controller":                    "",
		"generic-garbage-collector":            "delete everything",
		"horizontal-pod-autoscaler":            "",
		"job-controller":                       "delete pods",
		"legacy-service-account-token-cleaner": "delete secrets",
		"namespace-controller":                 "delete everything",
		"node-controller":                      "delete pods",
		"persistent-volume-binder":             "delete pods",
		"pod-garbage-collector":                "",
		"podcertificaterequestcleaner":         "delete podcertificaterequests",
		"podgroup-protection-controller":       "",
		"pvc-protection-controller":            "",
		"replicaset-controller":                "delete pods",
		"replication-controller":               "delete pods",
		"resource-claim-controller":            "delete pods, delete resourceclaims",
		"resourcequota-controller":             "",
		"root-ca-cert-publisher":               "",
		"selinux-warning-controller":           "",
		"service-account-controller":           "",
		"service-controller":                   "",
		"statefulset-controller":               "delete controllerrevisions, delete persistentvolumeclaims, delete pods",
		"storage-version-migrator-controller":  "",
		"taint-eviction-controller":            "",
		"ttl-after-finished-controller":        "delete jobs",
	}
}

// TestFreezeControllers tries as each controller of Kubernetes to create and delete objects in a frozen namespace.
func TestFreezeControllers(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	examples, cells := readExamples(t, c), []cell(nil)
	_, lists, err := c.Core.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if slices.Contains([]string{"pods", "pods/eviction", "configmaps", "secrets", "serviceaccounts", "endpoints", "persistentvolumeclaims", "controllerrevisions", "replicasets",
				"deployments", "jobs", "endpointslices", "resourceclaims", "podcertificaterequests", "leases"}, resource.Name) && !strings.Contains(list.GroupVersion, "alpha") {
				cells = append(cells, examples.cellsOf(t, list.GroupVersion, resource)...)
			}
		}
	}
	examples.fill(t, c, cells, namespace)
	unfreezeLater(t, c, namespace)
	c.MustPlugin(t, "freeze", namespace, "--reason=evidence")
	framework.Eventually(t, "no tenant can write", func(ctx context.Context) error {
		return framework.RefusedBy(freezePolicy, framework.WriteConfigMap(ctx, c.Tenant(t), namespace))
	})

	want := frozenControllers()
	bindings, err := c.Core.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/bootstrapping=rbac-defaults"})
	if err != nil {
		t.Fatal(err)
	}
	controllers, namespaced := 0, namespacedResources(t, c)
	for _, binding := range bindings.Items {
		name, isController := strings.CutPrefix(binding.Name, "system:controller:")
		if !isController {
			continue
		}
		role, err := c.Core.RbacV1().ClusterRoles().Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(role.Rules, namespaced.writtenBy) {
			continue
		}
		controllers++
		expected, decided := want[name]
		refused, passed := frozenFor(t, c, c.As(serviceAccountOfKubernetes+name, "system:serviceaccounts", "system:serviceaccounts:kube-system"), cells, namespace)
		if !slices.ContainsFunc(passed, func(request string) bool { return strings.HasPrefix(request, "delete ") }) && len(refused) > 10 {
			refused = []string{"delete everything"}
		}
		mayNot := strings.Split(expected, ", ")
		wrong := slices.DeleteFunc(refused, func(request string) bool { return slices.Contains(mayNot, request) })
		wrong = append(wrong, slices.DeleteFunc(passed, func(request string) bool { return !slices.Contains(mayNot, request) })...)
		if len(wrong) > 0 || !decided {
			t.Errorf("%q: decided %t; wrong: %q; want these to be refused: %q", name, decided, wrong, expected)
		}
	}
	if controllers < 20 {
		t.Errorf("%d controllers write into namespaces, so this proves nothing", controllers)
	}
	documented(t, c, want)

	everything := framework.Everything()
	for user, test := range map[string]struct {
		config *rest.Config
		passes []string
	}{
		"a node":                      {c.As("e2e-node", "system:nodes"), []string{"delete pods"}},
		"kube-scheduler":              {c.As("system:kube-scheduler"), []string{"delete pods"}},
		"kube-controller-manager":     {c.As("system:kube-controller-manager"), []string{"delete endpoints", "delete endpointslices", "delete pods"}},
		"a user who may initialize":   {c.As("e2e-initializes-frozen"), nil},
		"a user who may freeze, too,": {c.As("e2e-freezes-frozen"), nil},
	} {
		rules := []rbacv1.PolicyRule{everything, framework.Initialize()}
		if strings.Contains(user, "freeze") {
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbFreeze}})
		}
		c.User(t, test.config.Impersonate.UserName, rules...)
		_, passed := frozenFor(t, c, test.config, cells, namespace)
		deletes := slices.DeleteFunc(slices.Clone(passed), func(request string) bool { return !strings.HasPrefix(request, "delete ") })
		if strings.Contains(user, "freeze") {
			if len(deletes) < 10 {
				t.Errorf("%s deletes only %v", user, deletes)
			}
		} else if !slices.Equal(deletes, test.passes) {
			t.Errorf("%s does %v, want the deletions %v", user, passed, test.passes)
		}
		if !slices.Contains(passed, "create configmaps") || slices.Contains(passed, "create jobs") != (user != "kube-controller-manager") {
			t.Errorf("%s does only %v", user, passed)
		}
		if slices.Contains(passed, "create pods/eviction") != strings.Contains(user, "freeze") {
			t.Errorf("%s does %v", user, passed)
		}
	}
	// The garbage collector and the namespace controller, if all controllers are one user.
	manager := newGateClient(c, c.As("system:kube-controller-manager"))
	for options, body := range map[string]string{
		"preconditions":          `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"1"}}`,
		"the propagation policy": `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`,
	} {
		err := manager.try(t.Context(), cell{method: http.MethodDelete, path: "/api/v1/namespaces/{ns}/pods/there", body: body}, namespace, true)
		if err := framework.RefusedBy(freezePolicy, err, "keeps its content"); err != nil && !apierrors.IsConflict(err) {
			t.Errorf("kube-controller-manager deletes a pod with %s: %v", options, err)
		}
	}
}

// frozenFor tries to create and to delete objects as a dry run. It returns which requests the policy refuses, and which pass.
// It leaves out what RBAC refuses.
func frozenFor(t *testing.T, c *framework.Cluster, config *rest.Config, cells []cell, namespace string) (refused, passed []string) {
	t.Helper()
	client := newGateClient(c, config)
	for _, cell := range cells {
		request, _, _ := strings.Cut(cell.name, " (")
		if !strings.HasPrefix(request, "create ") && !strings.HasPrefix(request, "delete ") || strings.HasPrefix(request, "create by apply") || strings.HasPrefix(request, "delete a collection") {
			continue
		}
		switch err := client.try(t.Context(), cell, namespace, true); {
		case framework.RefusedBy(freezePolicy, err) == nil:
			refused = append(refused, request)
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "):
		case err == nil:
			passed = append(passed, request)
		default:
			t.Errorf("%s as %s: %v", request, config.Impersonate.UserName, err)
		}
	}
	slices.Sort(refused)
	slices.Sort(passed)
	return slices.Compact(refused), slices.Compact(passed)
}

// documented: docs/freeze.md names each controller to which a frozen namespace refuses something.
func documented(t *testing.T, c *framework.Cluster, refusals map[string]string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Root, "docs", framework.FreezeGuide))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n### What controllers can do in a frozen namespace\n")
	section, _, _ = strings.Cut(section, "\n### ")
	for controller, refused := range refusals {
		if named := strings.Contains(section, "`"+controller+"`"); refused != "" && !named {
			t.Errorf("docs/freeze.md does not say what is refused to %s in a frozen namespace", controller)
		}
	}
}

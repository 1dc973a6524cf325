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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

const guardCreate = "nsinit-guard-create"

// wantStamp returns what the stamp writes for a user.
func wantStamp(user string, groups ...string) map[string]string {
	return map[string]string{
		v1alpha1.LabelInitializing:         "true",
		v1alpha1.AnnotationCreatedBy:       user,
		v1alpha1.AnnotationCreatedByGroups: strings.Join(append(groups, "system:authenticated"), "\n"),
	}
}

func (c *cluster) deleteLater(t *testing.T, namespace string) {
	t.Cleanup(func() {
		_ = c.core.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
	})
}

// TestStamp: whatever a user sends, a new namespace is closed and carries its creator.
func TestStamp(t *testing.T) {
	c := connect(t)
	c.configure(t, named("hold.example.com")...)
	c.user(t, "e2e-creator", everything())
	client := kubernetes.NewForConfigOrDie(c.as("e2e-creator", "team-a", "team-b")).CoreV1().Namespaces()
	want := wantStamp("e2e-creator", "team-a", "team-b")
	for name, sent := range map[string]metav1.ObjectMeta{
		"nothing":                           {},
		"label":                             {Labels: map[string]string{v1alpha1.LabelInitializing: "true"}},
		"label, empty":                      {Labels: map[string]string{v1alpha1.LabelInitializing: ""}},
		"label, other":                      {Labels: map[string]string{v1alpha1.LabelInitializing: "false"}},
		"creator":                           {Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "kubernetes-admin"}},
		"creator, empty":                    {Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: ""}},
		"groups":                            {Annotations: map[string]string{v1alpha1.AnnotationCreatedByGroups: "system:masters"}},
		"forged name":                       {Labels: map[string]string{corev1.LabelMetadataName: "kube-system"}},
		"generated name":                    {GenerateName: "e2e-generated-"},
		"generated name, forged name":       {GenerateName: "e2e-generated-", Labels: map[string]string{corev1.LabelMetadataName: "kube-system"}},
		"generated name like an exempt one": {GenerateName: "kube-system"},
	} {
		t.Run(name, func(t *testing.T) {
			if sent.GenerateName == "" {
				sent.Name = uniqueName("ns")
			}
			for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
				namespace, err := client.Create(t.Context(), &corev1.Namespace{ObjectMeta: *sent.DeepCopy()}, metav1.CreateOptions{DryRun: dryRun})
				if err != nil {
					t.Fatalf("dry run %v: %v", dryRun, err)
				}
				if dryRun == nil {
					c.deleteLater(t, namespace.Name)
				}
				if diff := cmp.Diff(want, stampOf(namespace)); diff != "" {
					t.Errorf("dry run %v: the stamp (-want +got):\n%s", dryRun, diff)
				}
			}
		})
	}
	t.Run("server-side apply", func(t *testing.T) {
		name := uniqueName("ns")
		c.deleteLater(t, name)
		namespace, err := client.Patch(t.Context(), name, types.ApplyPatchType,
			fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"annotations":{"nsinit.dev/created-by":"root"}}}`, name),
			metav1.PatchOptions{FieldManager: "e2e"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, stampOf(namespace)); diff != "" {
			t.Errorf("the stamp (-want +got):\n%s", diff)
		}
	})
}

// TestStampIdentity: the creator is who the request acts as.
func TestStampIdentity(t *testing.T) {
	c := connect(t)
	c.configure(t, named("hold.example.com")...)
	c.user(t, "e2e-creator", everything())
	account, config := c.serviceAccount(t, everything(),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"users", "groups"}, Verbs: []string{"impersonate"}})
	impersonating := rest.CopyConfig(config)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "e2e-creator", Groups: []string{"team-c"}}
	for name, test := range map[string]struct {
		config *rest.Config
		want   map[string]string
	}{
		"service account": {config, wantStamp(account, "system:serviceaccounts", "system:serviceaccounts:default")},
		"impersonation":   {impersonating, wantStamp("e2e-creator", "team-c")},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := c.createNamespace(t, test.config)
			if diff := cmp.Diff(test.want, stampOf(namespace)); diff != "" {
				t.Errorf("the stamp (-want +got):\n%s", diff)
			}
			if err := refused(writeConfigMap(t.Context(), kubernetes.NewForConfigOrDie(test.config), namespace.Name)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRecordCannotBePreset: nobody prepares the record of a namespace, or takes it away.
func TestRecordCannotBePreset(t *testing.T) {
	c := connect(t)
	config := c.user(t, "e2e-creator", everything())
	client := versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceLifecycles()
	name := uniqueName("ns")
	if _, err := client.Create(t.Context(), &v1alpha1.NamespaceLifecycle{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "1"},
	}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("creating the record before the namespace: want NotFound, got %v", err)
	}
	namespace := c.held(t, config).Name
	if err := client.Delete(t.Context(), namespace, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting the record: want Forbidden, got %v", err)
	}
	record, err := client.Get(t.Context(), namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	record.Spec.Initializers = nil
	if _, err := client.Initialize(t.Context(), namespace, record, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("removing the initializer of somebody else: want Forbidden, got %v", err)
	}
	if record, err = client.Update(t.Context(), record, metav1.UpdateOptions{}); err != nil || record.Spec.Initializers == nil {
		t.Errorf("an update of the main resource: want it to keep spec.initializers, got %v, %v", record.Spec.Initializers, err)
	}
	if !c.isClosed(t, namespace) {
		t.Error("the gate has opened")
	}
}

// TestGuardCreate: the stamp is not trusted alone. A policy that undoes what it wrote, again
// and again, leads to a refusal.
func TestGuardCreate(t *testing.T) {
	c := connect(t)
	for name, test := range map[string]struct{ patch, says string }{
		"label":   {`[JSONPatch{op: "remove", path: "/metadata/labels/nsinit.dev~1initializing"}]`, "must carry the label nsinit.dev/initializing=true"},
		"value":   {`[JSONPatch{op: "replace", path: "/metadata/labels/nsinit.dev~1initializing", value: "later"}]`, "must carry the label nsinit.dev/initializing=true"},
		"creator": {`[JSONPatch{op: "replace", path: "/metadata/annotations/nsinit.dev~1created-by", value: "root"}]`, "must name its creator"},
		"groups":  {`[JSONPatch{op: "remove", path: "/metadata/annotations/nsinit.dev~1created-by-groups"}]`, "must name its creator"},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := uniqueName("undone")
			c.undoStamp(t, prefix, test.patch, admissionregistrationv1.IfNeededReinvocationPolicy)
			eventually(t, "a namespace whose stamp is undone is refused", func(ctx context.Context) error {
				_, err := c.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prefix}},
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return refusedBy(guardCreate, err, test.says)
			})
		})
	}
}

// TestStampAgain: the stamp acts again on what another policy made of it.
func TestStampAgain(t *testing.T) {
	c := connect(t)
	name := uniqueName("undone")
	c.undoStamp(t, name, `[JSONPatch{op: "add", path: "/metadata/annotations/acted", value: "yes"},
		JSONPatch{op: "replace", path: "/metadata/annotations/nsinit.dev~1created-by", value: "root"},
		JSONPatch{op: "remove", path: "/metadata/labels/nsinit.dev~1initializing"}]`, admissionregistrationv1.NeverReinvocationPolicy)
	eventually(t, "the other policy acts, and the stamp after it", func(ctx context.Context) error {
		namespace, err := c.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if namespace.Annotations["acted"] != "yes" {
			return errors.New("the other policy does not act yet")
		}
		if diff := cmp.Diff(wantStamp("kubernetes-admin", "system:masters"), stampOf(namespace)); diff != "" {
			return fmt.Errorf("the stamp (-want +got):\n%s", diff)
		}
		return nil
	})
}

// undoStamp makes a policy that changes new namespaces of a name after the stamp.
func (c *cluster) undoStamp(t *testing.T, name, patch string, again admissionregistrationv1.ReinvocationPolicyType) {
	t.Helper()
	ctx := context.Background()
	policies, bindings := c.core.AdmissionregistrationV1().MutatingAdmissionPolicies(), c.core.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	meta := metav1.ObjectMeta{Name: "z-" + name} // comes after the stamp
	if _, err := policies.Create(ctx, &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: again,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}},
				}}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "name", Expression: fmt.Sprintf("object.metadata.?name.orValue('') == %q", name)}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: patch},
			}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = policies.Delete(ctx, meta.Name, metav1.DeleteOptions{}) })
	if _, err := bindings.Create(ctx, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bindings.Delete(ctx, meta.Name, metav1.DeleteOptions{}) })
}

// TestExemptions: the list in the ConfigMap is what exempts, and only those who may open
// gates can write it.
func TestExemptions(t *testing.T) {
	c := connect(t)
	config := c.user(t, "e2e-creator", everything())
	client := kubernetes.NewForConfigOrDie(config)
	name := uniqueName("exempt")
	c.exempt(t, name)
	create := func(ctx context.Context, meta metav1.ObjectMeta, dryRun ...string) (*corev1.Namespace, error) {
		return client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{DryRun: dryRun})
	}
	eventually(t, "a namespace on the list is not stamped", func(ctx context.Context) error {
		namespace, err := create(ctx, metav1.ObjectMeta{Name: name}, metav1.DryRunAll)
		if err == nil && len(stampOf(namespace)) > 0 {
			err = fmt.Errorf("it carries %v", stampOf(namespace))
		}
		return err
	})
	for what, meta := range map[string]metav1.ObjectMeta{
		"the label":   {Labels: map[string]string{v1alpha1.LabelInitializing: ""}},
		"the creator": {Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "e2e-creator"}},
		"the groups":  {Annotations: map[string]string{v1alpha1.AnnotationCreatedByGroups: "team-a"}},
	} {
		meta.Name = name
		if _, err := create(t.Context(), meta); refusedBy(guardCreate, err, "exempt") != nil {
			t.Errorf("an exempt namespace with %s: %v", what, refusedBy(guardCreate, err, "exempt"))
		}
	}
	if _, err := create(t.Context(), metav1.ObjectMeta{Name: name}); err != nil {
		t.Fatal(err)
	}
	c.deleteLater(t, name)
	if err := writeConfigMap(t.Context(), client, name); err != nil {
		t.Errorf("a write into an exempt namespace: %v", err)
	}
}

// exempt puts a name on the list until the test ends.
func (c *cluster) exempt(t *testing.T, name string) {
	t.Helper()
	ctx := context.Background()
	configMaps := c.core.CoreV1().ConfigMaps(installNamespace)
	list, err := configMaps.Get(ctx, exemptions, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := list.Data["namespaces"]
	list.Data["namespaces"] = before + name + "\n"
	if _, err := configMaps.Update(ctx, list, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		list.Data["namespaces"], list.ResourceVersion = before, ""
		if _, err := configMaps.Update(ctx, list, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
}

const (
	installNamespace = "nsinit-system"
	exemptions       = "nsinit-exemptions"
)

// TestExemptionsGuarded: a right to write ConfigMaps is not enough to change the list.
func TestExemptionsGuarded(t *testing.T) {
	c := connect(t)
	client := kubernetes.NewForConfigOrDie(c.user(t, "e2e-creator", everything())).CoreV1().ConfigMaps(installNamespace)
	list, err := client.Get(t.Context(), exemptions, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list.Data["namespaces"] += "mine\n"
	for name, write := range map[string]func(ctx context.Context) error{
		"update": func(ctx context.Context) error {
			_, err := client.Update(ctx, list, metav1.UpdateOptions{})
			return err
		},
		"patch": func(ctx context.Context) error {
			_, err := client.Patch(ctx, exemptions, types.MergePatchType, []byte(`{"data":{"namespaces":"mine"}}`), metav1.PatchOptions{})
			return err
		},
		"delete": func(ctx context.Context) error { return client.Delete(ctx, exemptions, metav1.DeleteOptions{}) },
		"delete a collection": func(ctx context.Context) error {
			return client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + exemptions})
		},
	} {
		if err := refusedBy("nsinit-guard-exemptions", write(t.Context())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("another ConfigMap of the namespace: %v", err)
	}
}

// TestWithoutExemptions: without the list no namespace is created, and the refusal names
// it. What exists goes on, and the list can be brought back.
func TestWithoutExemptions(t *testing.T) {
	c := connect(t)
	configMaps := c.core.CoreV1().ConfigMaps(installNamespace)
	list, err := configMaps.Get(t.Context(), exemptions, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	restore := func(ctx context.Context) error {
		list.ResourceVersion, list.UID = "", ""
		_, err := configMaps.Create(ctx, list, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	t.Cleanup(func() {
		if err := restore(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := configMaps.Delete(t.Context(), exemptions, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, name string) error {
		_, err := c.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually(t, "a namespace is refused, and the refusal names the list", func(ctx context.Context) error {
		err := create(ctx, "refused")
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "configmap-"+exemptions) {
			return errors.Join(err, errors.New("want a refusal that names the ConfigMap"))
		}
		return nil
	})
	// The namespace that holds the list exists, so it is told apart by the answer.
	if err := create(t.Context(), installNamespace); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating the namespace that holds the list: want AlreadyExists, got %v", err)
	}
	value := "x"
	put := ways()["PUT namespaces"]
	if _, err := put(t.Context(), c.core.CoreV1().Namespaces(), "default", label("e2e", &value), []string{metav1.DryRunAll}); err != nil {
		t.Errorf("an update of a namespace: %v", err)
	}
	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "namespaces are created again", func(ctx context.Context) error { return create(ctx, "accepted") })
}

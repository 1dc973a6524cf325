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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	installed "github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const (
	tenant    = "e2e-creator"
	operator  = "e2e-operator"
	operators = "e2e-operators"
	prefix    = "e2e-tool-"
)

// TestExemptionsByPrefixAndCreator: prefixes, users and groups exempt namespaces. No user can become exempt without the permission
// to change the list, or to impersonate another user.
func TestExemptionsByPrefixAndCreator(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	c.Configure(t, framework.Initializers("hold.example.com")...)
	for _, user := range []string{tenant, operator, "\"" + tenant + "\""} {
		c.User(t, user, framework.Everything())
	}
	addExemptions(t, c, map[string]string{
		installed.KeyNamespaces:   "\n# " + tenant + "\n",
		installed.KeyNamePrefixes: "\n \n  " + prefix + "\r\n*\ne2e-*\n",
		installed.KeyUsers:        "\n" + operator + " \n\"" + tenant + "\"\n" + tenant + " # temporary\n#" + tenant + "\n*\n",
		installed.KeyGroups:       operators + "\n\nsystem:*\n# system:authenticated\n",
		installed.KeyOnlyGroups:   "\n",
	})
	as := func(user string, groups ...string) typedcorev1.NamespaceInterface {
		return kubernetes.NewForConfigOrDie(c.As(user, groups...)).CoreV1().Namespaces()
	}
	framework.Eventually(t, "the list is in force", func(ctx context.Context) error {
		namespace, err := as(operator).Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "e2e-exempt"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(stampOf(namespace)) > 0 {
			err = fmt.Errorf("it carries %v", stampOf(namespace))
		}
		return err
	})
	account, config := c.ServiceAccount(t, framework.Everything())
	for name, test := range map[string]struct {
		client typedcorev1.NamespaceInterface
		sent   metav1.ObjectMeta
		exempt bool
	}{
		"a prefix":                       {as(tenant), metav1.ObjectMeta{Name: framework.UniqueName(prefix + "x")}, true},
		"a generated name":               {as(tenant), metav1.ObjectMeta{GenerateName: prefix}, true},
		"a user":                         {as(operator), metav1.ObjectMeta{Name: framework.UniqueName("ns")}, true},
		"a user, generated name":         {as(operator), metav1.ObjectMeta{GenerateName: "e2e-generated-"}, true},
		"a group":                        {as(tenant, operators), metav1.ObjectMeta{Name: framework.UniqueName("ns")}, true},
		"nothing":                        {as(tenant), metav1.ObjectMeta{Name: framework.UniqueName("ns")}, false},
		"a service account":              {kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces(), metav1.ObjectMeta{Name: framework.UniqueName("ns")}, false},
		"another group":                  {as(tenant, operators+"2", "#"), metav1.ObjectMeta{Name: framework.UniqueName("ns")}, false},
		"two groups in one":              {as(tenant, "\""+operators+"\"", "system:*"), metav1.ObjectMeta{Name: framework.UniqueName("ns")}, false},
		"a forged generateName":          {as(tenant), metav1.ObjectMeta{Name: framework.UniqueName("ns"), GenerateName: prefix}, false},
		"a forged name":                  {as(tenant), metav1.ObjectMeta{Name: framework.UniqueName(prefix + "x"), GenerateName: "e2e-generated-"}, false},
		"a shorter generateName":         {as(tenant), metav1.ObjectMeta{GenerateName: strings.TrimSuffix(prefix, "-")}, false},
		"forged labels":                  {as(tenant), metav1.ObjectMeta{Name: framework.UniqueName("ns"), Labels: map[string]string{corev1.LabelMetadataName: "kube-system", v1alpha1.LabelInitializing: "false"}}, false},
		"forged annotations":             {as(tenant), metav1.ObjectMeta{Name: framework.UniqueName("ns"), Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: operator, v1alpha1.AnnotationCreatedByGroups: operators}}, false},
		"a user on a malformed line":     {as("\"" + tenant + "\""), metav1.ObjectMeta{Name: framework.UniqueName("ns")}, false},
		"a generated name, malformed":    {as(tenant), metav1.ObjectMeta{GenerateName: "e2e-"}, false},
		"a name like a prefix in a line": {as(tenant), metav1.ObjectMeta{GenerateName: "e2e-tool"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
				namespace, err := test.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: *test.sent.DeepCopy()}, metav1.CreateOptions{DryRun: dryRun})
				if err != nil {
					t.Fatalf("dry run %v: %v", dryRun, err)
				}
				if dryRun == nil {
					c.LeaveLater(t, namespace.Name)
				}
				checkExempt(t, namespace, test.exempt)
			}
		})
	}
	t.Run("server-side apply", func(t *testing.T) {
		apply := func(client typedcorev1.NamespaceInterface, name, metadata string) (*corev1.Namespace, error) {
			return client.Patch(t.Context(), name, types.ApplyPatchType,
				fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q%s}}`, name, metadata), metav1.PatchOptions{FieldManager: "e2e", DryRun: []string{metav1.DryRunAll}})
		}
		for _, test := range []struct {
			user, name, metadata string
			exempt               bool
		}{
			{tenant, "e2e-applied", "", false},
			{tenant, "e2e-applied", `,"generateName":"` + prefix + `"`, false},
			{tenant, "e2e-applied", `,"annotations":{"nsinit.dev/created-by":"` + operator + `"}`, false},
			{tenant, prefix + "applied", "", true},
			{operator, "e2e-applied", "", true},
		} {
			namespace, err := apply(as(test.user), test.name, test.metadata)
			if err != nil {
				t.Fatalf("%+v: %v", test, err)
			}
			checkExempt(t, namespace, test.exempt)
		}
	})
	t.Run("what an exempt user cannot forge", func(t *testing.T) {
		for _, key := range []string{v1alpha1.AnnotationCreatedBy, v1alpha1.AnnotationOnBehalfOf} {
			forged := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "e2e-forged", Annotations: map[string]string{key: "kubernetes-admin"}}}
			_, err := as(operator).Create(t.Context(), forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err := framework.RefusedBy(guardCreator, err, "create it without them"); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		if _, err := as(tenant).Update(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prefix + "put"}}, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a PUT of a new namespace: want NotFound, got %v", err)
		}
	})
	t.Run("impersonation", func(t *testing.T) {
		for _, identity := range []rest.ImpersonationConfig{{UserName: operator}, {UserName: account, Groups: []string{operators}}} {
			impersonating := rest.CopyConfig(config)
			impersonating.Impersonate = identity
			_, err := kubernetes.NewForConfigOrDie(impersonating).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "e2e-impersonated"}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot impersonate") {
				t.Errorf("impersonating %+v: want Forbidden, got %v", identity, err)
			}
		}
	})
	t.Run("the namespace of an exempt creator is ready and not initialized", func(t *testing.T) {
		name := framework.UniqueName("ns")
		if _, err := as(operator).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.LeaveLater(t, name)
		if err := framework.WriteConfigMap(t.Context(), kubernetes.NewForConfigOrDie(c.As(tenant)), name); err != nil {
			t.Errorf("a write into it: %v", err)
		}
		c.WaitReady(t, name)
		lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || len(lifecycle.Spec.Plan) != 0 {
			t.Errorf("its NamespaceLifecycle is %+v, %v", lifecycle, err)
		}
	})
}

// checkExempt checks whether a new namespace was stamped.
func checkExempt(t *testing.T, namespace *corev1.Namespace, exempt bool) {
	t.Helper()
	if stamp := stampOf(namespace); (stamp[v1alpha1.LabelInitializing] == "") != exempt || exempt && len(stamp) > 0 {
		t.Errorf("namespace %s, generateName %q: want exempt %t, the stamp is %v", namespace.Name, namespace.GenerateName, exempt, stamp)
	}
}

// TestExemptionsOnlyGroups: with onlyGroups, only namespaces that members create are closed. A malformed line exempts no
// namespace.
func TestExemptionsOnlyGroups(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	c.User(t, tenant, framework.Everything())
	for value, want := range map[string]struct{ tenants, members bool }{
		" platform \r\nother\n":    {true, false},
		"platform\n# tenants\n":    {true, false},
		"platform # and others\n":  {false, false},
		"- platform\nother\n":      {false, false},
		"\n \n# platform\n":        {false, false},
		"platform\ne2e\u200bops\n": {false, false},
	} {
		t.Run(value, func(t *testing.T) {
			addExemptions(t, c, map[string]string{installed.KeyOnlyGroups: value})
			framework.Eventually(t, "the list is in force", func(ctx context.Context) error {
				var errs []error
				for groups, exempt := range map[string]bool{"": want.tenants, "platform": want.members} {
					namespace, err := kubernetes.NewForConfigOrDie(c.As(tenant, strings.Fields(groups)...)).CoreV1().Namespaces().
						Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "e2e-only-groups"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					if err == nil && (len(stampOf(namespace)) == 0) != exempt {
						err = fmt.Errorf("created by a member of %q: want exempt %t, it carries %v", groups, exempt, stampOf(namespace))
					}
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		})
	}
}

// TestExemptionsChecked: the plugin explains what the policies do, for a name and a creator.
func TestExemptionsChecked(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	c.User(t, tenant, framework.Everything())
	addExemptions(t, c, map[string]string{installed.KeyNamePrefixes: "# tools\n" + prefix + "\n", installed.KeyUsers: operator + "\n- " + tenant + "\n", installed.KeyGroups: operators})
	for want, args := range map[string][]string{
		`created by user "e2e-creator" of groups "system:authenticated", is closed until it`: {"shop", "--creator=" + tenant},
		`line 2 of namePrefixes, "e2e-tool-"`:                                                {prefix + "x", "--creator=" + tenant},
		`line 1 of users, "e2e-operator"`:                                                    {"shop", "--creator=" + operator},
		`line 1 of groups, "e2e-operators"`:                                                  {"shop", "--creator=" + tenant, "--groups=other," + operators},
		`line 2 of users, "- e2e-creator": it is not`:                                        {"shop", "--creator=" + tenant},
		`"kubernetes-admin" of groups "system:masters", "sys`:                                {"shop"},
	} {
		if out := c.MustPlugin(t, append([]string{"check"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("%q: there is no %q in\n%s", args, want, out)
		}
	}
	if out, _, _ := c.Plugin(t, "check"); !strings.Contains(out, `nsinit-system/nsinit-exemptions: line 2 of users, "- e2e-creator": it is not the name of a user`) {
		t.Errorf("the malformed line is not reported:\n%s", out)
	}
	addExemptions(t, c, map[string]string{installed.KeyUsers: "kubernetes-admin\n"})
	framework.Eventually(t, "the caller is exempt", func(context.Context) error {
		if out, _, _ := c.Plugin(t, "check"); !strings.Contains(out, `a namespace that you create is not closed, because user "kubernetes-admin" is exempt by`) {
			return errors.New(out)
		}
		return nil
	})
}

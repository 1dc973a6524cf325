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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// createOnBehalfOf creates a namespace with the name of another user, and with as many other annotations as nsinit allows. It is not
// stored if dryRun says so.
func createOnBehalfOf(t *testing.T, c *framework.Cluster, config *rest.Config, user string, dryRun ...string) (*corev1.Namespace, error) {
	t.Helper()
	sent := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Name("ns"), Annotations: map[string]string{v1alpha1.AnnotationOnBehalfOf: user}}}
	addAnnotations(sent, "example.com/a", 32)
	namespace, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Create(t.Context(), sent, metav1.CreateOptions{DryRun: dryRun})
	if err == nil && dryRun == nil {
		c.LeaveLater(t, namespace.Name)
	}
	return namespace, err
}

func addAnnotations(namespace *corev1.Namespace, prefix string, count int) {
	for i := range count {
		namespace.Annotations[fmt.Sprint(prefix, i)] = ""
	}
}

// TestOnBehalfOf: a portal creates namespaces on behalf of the users for whom it has the verb, and of no others. Configurations,
// populations and the audit log show the user and the portal.
func TestOnBehalfOf(t *testing.T) {
	framework.DependsOnKubernetes(t)
	const user, initializer = "e2e \"alice\"\n${requester} é*,", "alice.on-behalf-of.example.com"
	c := framework.Connect(t)
	name, portal := c.ServiceAccount(t, framework.Everything(), rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.ResourceCreators},
		ResourceNames: []string{user}, Verbs: []string{v1alpha1.VerbImpersonate}})
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Configure(t, append(framework.Initializers(framework.PopulationInitializer),
		selecting(initializer, "creator", fmt.Sprintf(`creator == %q && requester == %q && creatorGroups == ["system:authenticated"]`, user, name)))...)
	c.Populate(t, "10-on-behalf-of", framework.ConfigMapManifest("who", "${creator} by ${requester}"))
	c.StartPopulation(t)
	_, from := c.AuditSince(t, 0)

	namespace, err := createOnBehalfOf(t, c, portal, user)
	if err != nil {
		t.Fatal(err)
	}
	want := wantStamp(name, "system:serviceaccounts", "system:serviceaccounts:default")
	unnamed := maps.Clone(want)
	want[v1alpha1.AnnotationOnBehalfOf] = user
	if diff := cmp.Diff(want, stampOf(namespace)); diff != "" {
		t.Errorf("the stamp (-want +got):\n%s", diff)
	}
	c.WaitCurrent(t, namespace.Name, initializer)
	c.RemoveFirst(t, namespace.Name)
	c.WaitReady(t, namespace.Name)
	waitValue(t, c, namespace.Name, "who", user+" by "+name)
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := c.Core.CoreV1().Namespaces().Get(t.Context(), namespace.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		addAnnotations(live, "example.com/b", 32)
		_, err = kubernetes.NewForConfigOrDie(portal).CoreV1().Namespaces().Update(t.Context(), live, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Errorf("as many annotations as nsinit allows later: %v", err)
	}
	if got := c.MustPlugin(t, "plan", namespace.Name, "--output=jsonpath={.creator}"); got != user {
		t.Errorf("plan names the creator %q", got)
	}
	framework.Eventually(t, "the audit log contains both", func(context.Context) error {
		events, _ := c.AuditSince(t, from)
		for _, event := range events {
			if event.Verb == "create" && event.ObjectRef.Resource == "namespaces" && event.User.Username == name && event.Annotations["nsinit-guard-creator/on-behalf-of"] == user {
				return nil
			}
		}
		return errors.New("no such event")
	})

	tenant := c.User(t, "e2e-replayer", framework.Everything())
	for _, test := range []struct {
		config *rest.Config
		user   string
		want   map[string]string
	}{
		{portal, "e2e-bob", unnamed},
		{tenant, user, wantStamp("e2e-replayer")},
	} {
		for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
			namespace, err := createOnBehalfOf(t, c, test.config, test.user, dryRun...)
			if err != nil {
				t.Fatalf("on behalf of %q, dry run %v: %v", test.user, dryRun, err)
			}
			if diff := cmp.Diff(test.want, stampOf(namespace)); diff != "" {
				t.Errorf("on behalf of %q, dry run %v: the stamp (-want +got):\n%s", test.user, dryRun, diff)
			}
		}
	}
	for invalid, printed := range map[string]string{"": `is "" (0 characters)`, "system:admin\n": `is "system:admin" (13 characters)`,
		strings.Repeat("é", 513): `is "` + strings.Repeat("é", 64) + `" (513 characters)`} {
		for as, config := range map[string]*rest.Config{"the portal": portal, "a tenant": tenant, "an administrator": c.Admin} {
			_, err := createOnBehalfOf(t, c, config, invalid)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.annotations[nsinit.dev/on-behalf-of] of namespace") ||
				!strings.Contains(err.Error(), printed) || !strings.Contains(err.Error(), "create the namespace without the annotation") {
				t.Errorf("%.20q by %s: %v", invalid, as, err)
			}
		}
	}

	// Another webhook names a user after the stamp.
	create := withWebhook(t, c, kubernetes.NewForConfigOrDie(tenant), `[{"op": "add", "path": "/metadata/annotations/nsinit.dev~1on-behalf-of", "value": "e2e-bob"}]`,
		admissionregistrationv1.IfNeededReinvocationPolicy)
	framework.Eventually(t, "the namespace is refused", func(ctx context.Context) error {
		_, err := create(ctx)
		return framework.RefusedBy(guardCreator, err, "nsinit.dev/on-behalf-of")
	})
}

// TestConstrainedImpersonation: with the documented roles, a portal creates namespaces as a user, and sends no other request as that
// user. The audit log shows the user and the portal.
func TestConstrainedImpersonation(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	if !c.StampsByPolicy(t) {
		t.Skip("before Kubernetes 1.36, constrained impersonation is an alpha feature or does not exist")
	}
	c.Configure(t, framework.Initializers("hold.example.com")...)
	alice := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "delete"}}
	c.User(t, "alice", alice)
	c.User(t, "carol", alice)
	portal, config := c.ServiceAccount(t, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}})
	account := portal[strings.LastIndex(portal, ":")+1:]
	c.ApplyInput(t, strings.NewReplacer("name: backstage", "name: "+account, "namespace: backstage", "namespace: default").Replace(
		c.DocumentedFile(t, framework.PortalsGuide, "Create namespaces as the user")))
	as := func(user string, groups ...string) kubernetes.Interface {
		impersonating := rest.CopyConfig(config)
		impersonating.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		return kubernetes.NewForConfigOrDie(impersonating)
	}
	create := func(client kubernetes.Interface) (*corev1.Namespace, error) {
		return client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Name("ns")}}, metav1.CreateOptions{})
	}
	_, from := c.AuditSince(t, 0)
	var namespace *corev1.Namespace
	framework.Eventually(t, "the portal creates a namespace as alice", func(context.Context) (err error) {
		namespace, err = create(as("alice", "team-a"))
		return err
	})
	c.LeaveLater(t, namespace.Name)
	if diff := cmp.Diff(wantStamp("alice", "team-a"), stampOf(namespace)); diff != "" {
		t.Errorf("the stamp (-want +got):\n%s", diff)
	}
	framework.Eventually(t, "the audit log contains both", func(context.Context) error {
		events, _ := c.AuditSince(t, from)
		for _, event := range events {
			if event.ObjectRef.Name == namespace.Name && event.User.Username == portal && event.ImpersonatedUser.Username == "alice" &&
				event.AuthenticationMetadata.ImpersonationConstraint == "impersonate:user-info" {
				return nil
			}
		}
		return errors.New("no such event")
	})

	for who, client := range map[string]kubernetes.Interface{"another user": as("carol"), "another group": as("alice", "team-b"), "system:masters": as("alice", "system:masters")} {
		if _, err := create(client); !apierrors.IsForbidden(err) {
			t.Errorf("a namespace of %s: want Forbidden, got %v", who, err)
		}
	}
	_, err := as("alice").CoreV1().Namespaces().Get(t.Context(), namespace.Name, metav1.GetOptions{})
	for what, err := range map[string]error{"get": err, "delete": as("alice").CoreV1().Namespaces().Delete(t.Context(), namespace.Name, metav1.DeleteOptions{})} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s as alice: want Forbidden, got %v", what, err)
		}
	}
}

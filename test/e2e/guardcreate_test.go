//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const guardCreate, guardCreator = "nsinit-guard-create", "nsinit-guard-creator"

// TestGuardCreate: a namespace is refused if another webhook or policy, which comes after the stamp, removes its
// label or annotations.
func TestGuardCreate(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	for name, test := range map[string]struct{ patch, says string }{
		"label":   {`[{"op": "remove", "path": "/metadata/labels/nsinit.dev~1initializing"}]`, "must carry the label nsinit.dev/initializing=true"},
		"value":   {`[{"op": "replace", "path": "/metadata/labels/nsinit.dev~1initializing", "value": "later"}]`, "must carry the label nsinit.dev/initializing=true"},
		"creator": {`[{"op": "replace", "path": "/metadata/annotations/nsinit.dev~1created-by", "value": "root"}]`, "must name its creator"},
		"groups":  {`[{"op": "remove", "path": "/metadata/annotations/nsinit.dev~1created-by-groups"}]`, "must name its creator"},
	} {
		t.Run(name, func(t *testing.T) {
			create := withWebhook(t, c, c.Core, test.patch, admissionregistrationv1.IfNeededReinvocationPolicy)
			framework.Eventually(t, "the namespace is refused", func(ctx context.Context) error {
				_, err := create(ctx)
				return framework.RefusedBy(guardCreate, err, test.says)
			})
		})
	}
}

// TestGuardNameReuse: only nsinit adds its finalizer of strict-name-reuse. Without the component, nsinit would never remove it.
func TestGuardNameReuse(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	tenant := kubernetes.NewForConfigOrDie(c.User(t, "e2e-writer", framework.Everything())).CoreV1().Namespaces()
	finalizers := []corev1.FinalizerName{v1alpha1.NameReuseFinalizer}
	for name, client := range map[string]typedcorev1.NamespaceInterface{c.Name("held"): tenant, c.Name("held"): c.Core.CoreV1().Namespaces()} {
		for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
			_, err := client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NamespaceSpec{Finalizers: finalizers}}, metav1.CreateOptions{DryRun: dryRun})
			if err := framework.RefusedBy(guardCreator, err, "nsinit.dev/strict-name-reuse"); err != nil {
				t.Errorf("%s, dry run %v: %v", name, dryRun, err)
			}
		}
	}
	namespace := c.CreateNamespace(t, c.Admin)
	framework.Eventually(t, "a tenant cannot add it later", func(ctx context.Context) error {
		live, err := tenant.Get(ctx, namespace.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		live.Spec.Finalizers = append(live.Spec.Finalizers, finalizers...)
		_, err = tenant.Finalize(ctx, live, metav1.UpdateOptions{})
		return framework.RefusedBy(guard, err, "nsinit.dev/strict-name-reuse")
	})
}

// TestStampAgain: the stamp acts again after a webhook has changed the namespace.
func TestStampAgain(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	create := withWebhook(t, c, c.Core, `[{"op": "add", "path": "/metadata/annotations/acted", "value": "yes"},
		{"op": "replace", "path": "/metadata/annotations/nsinit.dev~1created-by", "value": "root"},
		{"op": "remove", "path": "/metadata/labels/nsinit.dev~1initializing"}]`, admissionregistrationv1.NeverReinvocationPolicy)
	framework.Eventually(t, "the webhook acts, and the stamp after it", func(ctx context.Context) error {
		namespace, err := create(ctx)
		if err != nil {
			return err
		}
		if namespace.Annotations["acted"] != "yes" {
			return fmt.Errorf("the webhook does not act yet, annotations are %v", namespace.Annotations)
		}
		if diff := cmp.Diff(wantStamp("kubernetes-admin", "system:masters"), stampOf(namespace)); diff != "" {
			return fmt.Errorf("the stamp (-want +got):\n%s", diff)
		}
		return nil
	})
}

// withWebhook runs a mutating webhook, which comes after all mutating policies, and
// patches the one namespace that the returned function creates as a client, without storing it.
func withWebhook(t *testing.T, c *framework.Cluster, client kubernetes.Interface, patch string, again admissionregistrationv1.ReinvocationPolicyType) func(context.Context) (*corev1.Namespace, error) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		kind := admissionv1.PatchTypeJSONPatch
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: []byte(patch), PatchType: &kind}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)

	name, url := framework.UniqueName("webhook"), server.URL
	none := admissionregistrationv1.SideEffectClassNone
	webhooks := c.Core.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := webhooks.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "undo.e2e.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}},
			}},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "name", Expression: fmt.Sprintf("object.metadata.?name.orValue('') == %q", name)}},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			ReinvocationPolicy:      &again,
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = webhooks.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return func(ctx context.Context) (*corev1.Namespace, error) {
		return client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
}

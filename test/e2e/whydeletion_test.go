//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// missingWebhook reviews the deletion of ConfigMaps in a namespace, and its service does not exist.
func missingWebhook(namespace string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: missing-%[1]s}
webhooks:
- name: missing.e2e.example.com
  clientConfig: {service: {namespace: default, name: missing}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
`, namespace)
}

// TestWhyIfDeleted: why --if-deleted finds what would block or delay the deletion of an open namespace, and a deletion then
// does wait for it.
func TestWhyIfDeleted(t *testing.T) {
	c := framework.Connect(t)
	free := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, free)
	if text, _, code := c.Plugin(t, "why", free, "--if-deleted"); code != 0 || !strings.Contains(text, "A deletion would not be blocked.") {
		t.Errorf("exit code %d: %s", code, text)
	}

	c.Configure(t, v1alpha1.RegisteredInitializer{Name: framework.Participant, Finalizer: true})
	namespace, controller := c.CreateParticipated(t), framework.UniqueName("billing")
	if err := framework.WriteConfigMap(t.Context(), c.Core, namespace); err != nil {
		t.Fatal(err)
	}
	c.ApplyInput(t, stopped(controller))
	c.ApplyInput(t, missingWebhook(namespace))
	c.ApplyInput(t, brokenAPI)
	waitUndiscovered(t, c, "broken.example.com")
	if _, err := c.KubectlInput(`
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: held, finalizers: [`+framework.Holder+`]}}
`, "apply", "--server-side", "--namespace", namespace, "--field-manager="+controller); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Stuck APIUnavailable", "Stuck ContentFinalizer Dead", "Stuck WebhookUnavailable", "Waiting ContentFinalizer", "Waiting ParticipantPending Unknown",
	}
	framework.Eventually(t, "everything is found", func(context.Context) error {
		found, err := c.Why(t, namespace, "--if-deleted")
		if err != nil {
			return err
		}
		var got []string
		for _, f := range found.Findings {
			text := fmt.Sprintf("%s %s", f.State, f.Cause)
			if f.Controller != nil {
				text += " " + string(f.Controller.State)
			}
			got = append(got, text)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || !found.IfDeleted || found.Phase != diagnosis.Active {
			return fmt.Errorf("want %q, found %q: %s", want, got, framework.JSON(t, found))
		}
		return nil
	})
	text, _, code := c.Plugin(t, "why", namespace, "--if-deleted")
	for _, part := range []string{"A deletion would be blocked until a user acts.", "BLOCKS APIUnavailable", "DELAYS ParticipantPending",
		`persistentvolumeclaims/data has the finalizer "kubernetes.io/pvc-protection", which is removed by kube-controller-manager when no pod uses the claim`} {
		if code != 3 || !strings.Contains(text, part) {
			t.Errorf("exit code %d, %q is missing in:\n%s", code, part, text)
		}
	}
	if found, err := c.Why(t, namespace); err != nil || found.State != diagnosis.Healthy {
		t.Errorf("the namespace is changed: %s %v", framework.JSON(t, found), err)
	}

	c.DeleteNamespace(t, namespace)
	for _, cause := range []diagnosis.Cause{diagnosis.ParticipantPending, diagnosis.APIUnavailable, diagnosis.WebhookUnavailable} {
		c.WaitWhy(t, namespace, cause, diagnosis.Stuck, "--patience=1s")
	}
	for _, object := range []string{"apiservice/v1.broken.example.com", "validatingwebhookconfiguration/missing-" + namespace} {
		if _, err := c.Kubectl("delete", object); err != nil {
			t.Fatal(err)
		}
	}
	cure(t, c, c.WaitWhy(t, namespace, diagnosis.ContentFinalizer, diagnosis.Stuck, "--patience=1s"), "remove the finalizer")
	c.ReleaseParticipant(t, namespace, framework.Participant)
	c.WaitNoNamespace(t, namespace)
}

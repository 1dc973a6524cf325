//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestWhyAll: kubectl nsinit why --all shows a namespace that waits for an initializer, and no healthy one.
func TestWhyAll(t *testing.T) {
	c := framework.Connect(t)
	healthy := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, healthy)
	closed := c.CreateHeld(t, c.Admin).Name
	framework.Eventually(t, "it is shown", func(context.Context) error {
		out, errOut, code := c.Plugin(t, "why", "--all")
		for _, line := range []string{closed + ` +Initializing .*(Waiting|Stuck) +Initializer`, `(?m)^\d+ of \d+ namespaces are stuck, and \d+ wait`} {
			if code < 2 || !regexp.MustCompile(line).MatchString(out) || regexp.MustCompile(healthy+` `).MatchString(out) {
				return fmt.Errorf("exit code %d, want %s and not %s:\n%s%s", code, line, healthy, out, errOut)
			}
		}
		return nil
	})
	c.Release(t, closed)

	// The namespace waits for kube-controller-manager, which --patience expects for ten minutes.
	c.Dev(t, "stop", "kube-controller-manager")
	t.Cleanup(func() { c.Dev(t, "start", "kube-controller-manager") })
	c.DeleteNamespace(t, healthy)
	c.WaitWhy(t, healthy, diagnosis.NamespaceControllerAtWork, diagnosis.Waiting, "--patience=10m")
	c.Dev(t, "start", "kube-controller-manager")
	c.WaitNoNamespace(t, healthy)
}

// downWebhook reviews updates of Secrets in a namespace, and its service has no server, as that of a controller that is stopped.
func downWebhook(namespace string) string {
	return fmt.Sprintf(`
{apiVersion: v1, kind: Service, metadata: {name: down, namespace: %[1]s}, spec: {selector: {app: down}, ports: [{port: 443}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: down-%[1]s}
webhooks:
- name: down.e2e.example.com
  clientConfig: {service: {namespace: %[1]s, name: down}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
`, namespace)
}

// lostClaim was bound to a volume that does not exist any more.
func lostClaim(namespace string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: lost, namespace: %[1]s, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeName: lost-%[1]s}
`, namespace)
}

// TestWhyAllCluster: kubectl nsinit why --all finds what blocks deletions of the cluster before a namespace is deleted, and every
// object whose deletion takes too long, in open namespaces and without a namespace, also if a webhook refuses to remove its finalizer,
// and lost claims. Scripts that list the whole cluster find no
// other one.
func TestWhyAllCluster(t *testing.T) {
	c := framework.Connect(t)
	open, ending, controller := c.CreateNamespace(t, c.Admin).Name, c.CreateNamespace(t, c.Admin).Name, framework.UniqueName("billing")
	c.WaitReady(t, open)
	c.WaitReady(t, ending)
	c.ApplyInput(t, stopped(controller))
	held := `{apiVersion: v1, kind: Secret, metadata: {name: ` + controller + `, namespace: ` + open + `, finalizers: [` + framework.Holder + `]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: ` + controller + `, finalizers: [` + framework.Holder + `]}}
`
	if _, err := c.KubectlInput(held, "apply", "--server-side", "--field-manager="+controller); err != nil {
		t.Fatal(err)
	}
	if _, err := c.KubectlInput(held, "delete", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	holdBy(t, c, ending, controller, framework.Holder)
	c.DeleteNamespace(t, ending)
	c.ApplyInput(t, lostClaim(open))
	c.ApplyInput(t, downWebhook(open))
	c.ApplyInput(t, missingWebhook(open))
	c.ApplyInput(t, brokenAPI)
	waitUndiscovered(t, c, "broken.example.com")

	var list diagnosis.List
	found := func(findings []diagnosis.Finding, cause diagnosis.Cause, says string) bool {
		return slices.ContainsFunc(findings, func(f diagnosis.Finding) bool {
			return f.Cause == cause && f.State == diagnosis.Stuck && strings.Contains(framework.JSON(t, f), says)
		})
	}
	framework.Eventually(t, "everything is found", func(context.Context) error {
		out, errOut, code := c.Plugin(t, "why", "--all", "--patience=1s", "--output=json")
		list = diagnosis.List{}
		if err := json.Unmarshal([]byte(out), &list); err != nil || code != 3 {
			return fmt.Errorf("exit code %d: %s, %w", code, errOut, err)
		}
		for namespace, cause := range map[string]diagnosis.Cause{open: diagnosis.ContentFinalizer, ending: diagnosis.NamespaceFinalizer} {
			if !slices.ContainsFunc(list.Items, func(d *diagnosis.Diagnosis) bool {
				return d.Namespace == namespace && found(d.Findings, cause, `"state":"Dead"`)
			}) {
				return fmt.Errorf("%s of %s is missing in %s", cause, namespace, out)
			}
		}
		if !slices.ContainsFunc(list.Items, func(d *diagnosis.Diagnosis) bool {
			return d.Namespace == open && found(d.Findings, diagnosis.WebhookUnavailable, "the removal of finalizers from secrets/"+controller)
		}) {
			return fmt.Errorf("the webhook that refuses updates is missing in %s", out)
		}
		if !slices.ContainsFunc(list.Cluster, func(f diagnosis.Finding) bool {
			return f.Cause == diagnosis.ClaimLost && strings.Contains(f.Message, open)
		}) {
			return fmt.Errorf("the lost claim is missing in %s", framework.JSON(t, list.Cluster))
		}
		for says, cause := range map[string]diagnosis.Cause{
			"has no server that is ready": diagnosis.WebhookUnavailable, "v1.broken.example.com": diagnosis.APIUnavailable, "validatingwebhookconfiguration/missing-" + open: diagnosis.WebhookUnavailable,
			"clusterroles.rbac.authorization.k8s.io/" + controller: diagnosis.ContentFinalizer,
		} {
			if !found(list.Cluster, cause, says) {
				return fmt.Errorf("%s of %s is missing in %s", cause, says, framework.JSON(t, list.Cluster))
			}
		}
		return nil
	})
	framework.Eventually(t, "every deleted object is shown", func(context.Context) error {
		out, _, _ := c.Plugin(t, "why", "--all", "--patience=1s", "--output=json")
		// The discovery of one API fails, so kubectl api-resources does, too. A deleted configuration waits for namespaces, which
		// are shown.
		deleted, err := c.Shell(t, `kubectl get --all-namespaces --output=jsonpath='{range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name}{"\n"}{end}' \
  "$( (kubectl api-resources --verbs=list --output=name 2>/dev/null || true) | grep --invert-match namespaceinitializerconfigurations | paste --serial --delimiters=,)" 2>/dev/null`, nil)
		if err != nil {
			return err
		}
		if !strings.Contains(deleted, controller) {
			return fmt.Errorf("kubectl shows %q", deleted)
		}
		for name := range strings.FieldsSeq(deleted) {
			if !strings.Contains(out, name) {
				return fmt.Errorf("%s is deleted, and kubectl nsinit why --all does not show it", name)
			}
		}
		return nil
	})
	text, _, _ := c.Plugin(t, "why", "--all", "--patience=1s")
	for _, part := range []string{"In the cluster:", "STUCK WebhookUnavailable", open + "  "} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}

	c.WaitWhy(t, open, diagnosis.ClaimLost, diagnosis.Healthy)
	if _, err := c.Kubectl("delete", "validatingwebhookconfiguration", "down-"+open); err != nil {
		t.Fatal(err)
	}

	watched, watcher := watchWhy(t, c, "--all")
	lines := bufio.NewScanner(watched)
	readLine(t, lines, `^\d\d:\d\d:\d\d +<cluster> +- +Stuck +APIUnavailable +- .*broken.example.com`)
	if err := watcher.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, watched)
	if err := watcher.Wait(); watcher.ProcessState.ExitCode() != 3 {
		t.Errorf("the watch ends with %v, want exit code 3", err)
	}

	for _, f := range list.Cluster {
		if f.Cause == diagnosis.ContentFinalizer {
			cure(t, c, f, "remove the finalizer")
		}
	}
	applyFix(t, c, open, diagnosis.ContentFinalizer)
	for _, kind := range []string{"clusterrole", "secret"} {
		if out, err := c.Kubectl("--namespace", open, "get", kind, controller, "--ignore-not-found", "--output=name"); err != nil || out != "" {
			t.Errorf("%s still exists: %v", out, err)
		}
	}
	if found, err := c.Why(t, open); err != nil || len(found.Remaining) > 0 {
		t.Errorf("found %s %v", framework.JSON(t, found), err)
	}
	applyFix(t, c, ending, diagnosis.NamespaceFinalizer)
}

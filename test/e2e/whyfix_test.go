//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// fixes returns the remedies that kubectl nsinit why --fix can apply.
func fixes(t *testing.T, c *framework.Cluster, namespace string) []diagnosis.Fix {
	t.Helper()
	var list diagnosis.FixList
	out := c.MustPlugin(t, "why", namespace, "--fix", "--patience=1s", "--output=json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err, out)
	}
	return list.Items
}

// waitFix waits until a cause can be fixed.
func waitFix(t *testing.T, c *framework.Cluster, namespace string, cause diagnosis.Cause) diagnosis.Fix {
	t.Helper()
	var fix diagnosis.Fix
	framework.Eventually(t, fmt.Sprintf("%s of %s can be fixed", cause, namespace), func(context.Context) error {
		found := fixes(t, c, namespace)
		i := slices.IndexFunc(found, func(fix diagnosis.Fix) bool { return fix.Cause == cause })
		if i < 0 {
			return fmt.Errorf("found %s", framework.JSON(t, found))
		}
		fix = found[i]
		return nil
	})
	return fix
}

// withFix calls a check with the remedy for a cause, again if the state changes meanwhile.
func withFix(t *testing.T, c *framework.Cluster, namespace string, cause diagnosis.Cause, check func(fix diagnosis.Fix) error) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the remedy for %s of %s is checked", cause, namespace), func(context.Context) error {
		return check(waitFix(t, c, namespace, cause))
	})
}

// applyFix applies the remedy for a cause.
func applyFix(t *testing.T, c *framework.Cluster, namespace string, cause diagnosis.Cause) {
	t.Helper()
	withFix(t, c, namespace, cause, func(fix diagnosis.Fix) error {
		out, errOut, code := c.Plugin(t, "why", namespace, "--fix", "--patience=1s", "--confirm="+fix.Digest)
		if want := "namespace/" + namespace + ": applied: " + fix.Description + "\n"; code != 0 || out != want {
			return fmt.Errorf("exit code %d: %s%s", code, out, errOut)
		}
		return nil
	})
}

// TestWhyFix: a remedy is applied only with the digest of the present state, to the object that was diagnosed, and only
// while the controller is dead.
func TestWhyFix(t *testing.T) {
	c := framework.Share(t)
	namespace, controller := c.CreateNamespace(t, c.Admin).Name, framework.UniqueName("billing")
	c.ApplyInput(t, stopped(controller))
	create := func() {
		t.Helper()
		c.WaitReady(t, namespace)
		holdBy(t, c, namespace, controller, framework.Holder)
		c.DeleteNamespace(t, namespace)
		c.WaitCondition(t, namespace, corev1.NamespaceContentRemaining, "False/")
	}
	t.Cleanup(func() {
		_, _ = c.Kubectl("patch", "namespace", namespace, "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`)
	})
	isHeld := func() {
		t.Helper()
		if n, err := c.Core.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err != nil || !slices.Contains(n.Finalizers, framework.Holder) {
			t.Fatalf("the namespace is not held: %v %v", n, err)
		}
	}
	refuse := func(digest, says string) {
		t.Helper()
		c.RefusedPlugin(t, says, "why", namespace, "--fix", "--patience=1s", "--confirm="+digest)
		isHeld()
	}
	refuseFor := func(digest string) {
		t.Helper()
		withFix(t, c, namespace, diagnosis.NamespaceFinalizer, func(fix diagnosis.Fix) error {
			says := "nothing was changed. The digests are now: " + fix.Digest + " (NamespaceFinalizer)"
			return c.PluginRefuses(t, says, "why", namespace, "--fix", "--patience=1s", "--confirm="+digest)
		})
		isHeld()
	}

	create()
	var old diagnosis.Fix
	withFix(t, c, namespace, diagnosis.NamespaceFinalizer, func(fix diagnosis.Fix) error {
		old = fix
		text, errOut, _ := c.Plugin(t, "why", namespace, "--fix", "--patience=1s")
		for _, part := range []string{"nothing was changed", "PATCH /api/v1/namespaces/" + namespace, "Risk: what it has to clean up remains", "- dead: Deployment default/" + controller, "kubectl nsinit why " + namespace + " --fix --confirm=" + fix.Digest} {
			if !strings.Contains(text, part) {
				return fmt.Errorf("%q is missing in:\n%s%s", part, text, errOut)
			}
		}
		out, errOut, _ := c.Plugin(t, "why", namespace, "--fix", "--patience=1s", "--confirm="+fix.Digest, "--dry-run=server")
		if !strings.Contains(out, "applied (server dry run): remove the finalizer") {
			return fmt.Errorf("it says %s%s", out, errOut)
		}
		return nil
	})
	isHeld()
	if text, _, _ := c.Plugin(t, "why", namespace, "--patience=1s"); !strings.Contains(text, "This command can apply remedies for NamespaceFinalizer.") {
		t.Errorf("it says:\n%s", text)
	}
	refuseFor("0123456789abcdef")

	// A namespace of the same name, with the same finalizer: neither the digest nor the request is for it.
	if _, err := c.Kubectl("patch", "namespace", namespace, "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`); err != nil {
		t.Fatal(err)
	}
	c.WaitNoNamespace(t, namespace)
	if _, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create()
	refuseFor(old.Digest)
	request := old.Requests[0]
	err := c.Core.CoreV1().RESTClient().Verb(request.Verb).AbsPath(request.Path).SetHeader("Content-Type", request.ContentType).Body([]byte(request.Body)).Do(t.Context()).Error()
	if !apierrors.IsInvalid(err) {
		t.Errorf("the request for the former namespace ends with %v", err)
	}
	isHeld()

	// The controller is started again, and stopped.
	scale := func(replicas string) {
		t.Helper()
		if _, err := c.Kubectl("--namespace", "default", "scale", "deployment/"+controller, "--replicas="+replicas); err != nil {
			t.Fatal(err)
		}
	}
	fix := waitFix(t, c, namespace, diagnosis.NamespaceFinalizer)
	scale("1")
	refuse(fix.Digest, "No remedy can be applied now")
	scale("0")
	applyFix(t, c, namespace, diagnosis.NamespaceFinalizer)
	c.WaitNoNamespace(t, namespace)
}

// TestWhyFixContent: the finalizers of a dead controller are removed from objects, and not from spec.finalizers: another controller may have
// added them.
func TestWhyFixContent(t *testing.T) {
	c := framework.Connect(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true})
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, "one.example.com")
	c.MustPlugin(t, "skip", namespace, "one.example.com")
	c.WaitReady(t, namespace)

	controller := framework.UniqueName("billing")
	c.ApplyInput(t, stopped(controller))
	if _, err := c.KubectlInput("{apiVersion: v1, kind: Secret, metadata: {name: held, finalizers: [e2e.example.com/other, "+framework.Holder+"]}}",
		"apply", "--server-side", "--namespace", namespace, "--field-manager="+controller); err != nil {
		t.Fatal(err)
	}
	finalize(t, c, namespace, controller, "kubernetes", origin)
	c.DeleteNamespace(t, namespace)
	applyFix(t, c, namespace, diagnosis.ContentFinalizer) // one of two
	framework.Eventually(t, "the Secret is removed", func(ctx context.Context) error {
		_, err := c.Core.CoreV1().Secrets(namespace).Get(ctx, "held", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		applyFix(t, c, namespace, diagnosis.ContentFinalizer)
		return errors.New("it still exists")
	})
	// The administrator who skipped the initializer acted last, and may act as the participant, too.
	c.WaitWhy(t, namespace, diagnosis.SpecFinalizer, diagnosis.Stuck, "--patience=1s")
	if found := fixes(t, c, namespace); len(found) > 0 {
		t.Errorf("it proposes %s", framework.JSON(t, found))
	}
	finalize(t, c, namespace, controller, "kubernetes")
	c.ReleaseParticipant(t, namespace, "one.example.com")
	c.WaitNoNamespace(t, namespace)
}

// TestWhyFixPods: pods of a node that does not exist are removed.
func TestWhyFixPods(t *testing.T) {
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	node := "gone-" + namespace
	startPod(t, c, namespace, node)
	c.DeleteNamespace(t, namespace)
	c.WaitWhy(t, namespace, diagnosis.GracePeriod, diagnosis.Stuck, "--patience=1s")
	if found := fixes(t, c, namespace); len(found) > 0 {
		t.Errorf("the node exists, and it proposes %s", framework.JSON(t, found))
	}
	if err := c.Core.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	applyFix(t, c, namespace, diagnosis.GracePeriod)
	c.WaitNoNamespace(t, namespace)
}

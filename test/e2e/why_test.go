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
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// cure runs the command of the remedy with a description, again if another client changes the object meanwhile.
func cure(t *testing.T, c *framework.Cluster, finding diagnosis.Finding, description string) {
	t.Helper()
	for _, remedy := range finding.Remedies {
		if strings.Contains(remedy.Description, description) {
			framework.Eventually(t, remedy.Command, func(context.Context) error {
				out, err := c.Shell(t, remedy.Command, nil)
				if err != nil && !strings.Contains(out, "the object has been modified") {
					t.Fatalf("%s: %v\n%s", remedy.Command, err, out)
				}
				return err
			})
			return
		}
	}
	t.Fatalf("no remedy says %q: %s", description, framework.JSON(t, finding.Remedies))
}

// checkRemedies checks the order of the remedies: safe ones come first, and no command
// empties the finalizers of a namespace.
func checkRemedies(t *testing.T, finding diagnosis.Finding) {
	t.Helper()
	risky := false
	for _, remedy := range finding.Remedies {
		if risky && remedy.Risk == "" {
			t.Errorf("%q is safe, and comes after one that is not", remedy.Description)
		}
		risky = remedy.Risk != ""
		if strings.Contains(remedy.Command, "finalizers = []") || strings.Contains(remedy.Command, `finalizers -= ["kubernetes"]`) {
			t.Errorf("%q empties the finalizers", remedy.Command)
		}
	}
	if len(finding.Remedies) == 0 || finding.Remedies[0].Risk != "" {
		t.Errorf("nothing safe is offered: %s", framework.JSON(t, finding.Remedies))
	}
}

// wedge brings an open namespace into a state that needs help.
type wedge struct {
	make func(t *testing.T, c *framework.Cluster, namespace string)
	// alone means that it affects other namespaces, too.
	alone bool
	// says are the parts of the finding's message.
	says []string
	// shows are parts of the printed text.
	shows []string
	// cures are the remedies whose commands are run, in this order.
	cures []string
	// besides does what a person must do in addition to the printed commands.
	besides func(t *testing.T, c *framework.Cluster, namespace string)
}

func wedges() map[diagnosis.Cause]wedge {
	return map[diagnosis.Cause]wedge{
		diagnosis.APIUnavailable: {
			make: func(t *testing.T, c *framework.Cluster, _ string) {
				c.ApplyInput(t, brokenAPI)
				waitUndiscovered(t, c, "broken.example.com")
			},
			alone: true,
			says:  []string{"broken.example.com/v1", "APIService v1.broken.example.com, service default/missing", "ServiceNotFound"},
			cures: []string{"read why kube-apiserver cannot reach it"},
			besides: func(t *testing.T, c *framework.Cluster, namespace string) {
				applyFix(t, c, namespace, diagnosis.APIUnavailable)
			},
		},
		diagnosis.ContentFinalizer: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				c.ApplyInput(t, thingDefinition())
				createThing(t, c, namespace, "held", `finalizers: [`+framework.Holder+`], ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: 00000000-0000-0000-0000-000000000000}], `)
			},
			alone: true,
			says:  []string{"things.e2e.example.com/held has the finalizer", framework.Holder, `set by "kubectl"`},
			shows: []string{"What is left in it", "ConfigMap/owner"},
			cures: []string{"read the object", "remove the finalizer from each object"},
		},
		diagnosis.GracePeriod: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				startPod(t, c, namespace, "lost-"+namespace)
			},
			says:  []string{"pods/app", "is not confirmed", "which is not Ready"},
			cures: []string{"read the state of the object", "check whether the node exists", "do not wait"},
		},
		diagnosis.WebhookRefusesDeletion: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				refuseDeletions(t, c, namespace, refusingServer(t))
			},
			says:  []string{`"keep.e2e.example.com" of validatingwebhookconfiguration/keep-`, "configmaps/", "denied the request: keep it"},
			cures: []string{"see which server answers"},
			besides: func(t *testing.T, c *framework.Cluster, namespace string) { // as kubectl edit would
				if _, err := c.Core.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.Context(), "keep-"+namespace, types.JSONPatchType,
					[]byte(`[{"op":"replace","path":"/webhooks/0/namespaceSelector","value":{"matchLabels":{"kubernetes.io/metadata.name":"no-namespace"}}}]`), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			},
		},
		diagnosis.WebhookUnavailable: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				server := refusingServer(t)
				server.Close()
				refuseDeletions(t, c, namespace, server)
			},
			says:  []string{`"keep.e2e.example.com" of validatingwebhookconfiguration/keep-`, "does not answer", "connection refused"},
			cures: []string{"see which service it is", "remove its webhooks"},
		},
		diagnosis.PolicyRefusesDeletion: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				keepByPolicy(t, c, namespace, "false")
			},
			says:  []string{`ValidatingAdmissionPolicy "keep-`, "refuses the deletion of configmaps/", "backups need it"},
			cures: []string{"read the policy"},
			besides: func(t *testing.T, c *framework.Cluster, namespace string) {
				if err := c.Core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), "keep-"+namespace, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			},
		},
		diagnosis.DeletionRefused: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				c.ApplyInput(t, carelessWebhook(namespace))
				waitKept(t, c, namespace)
			},
			says: []string{"the deletion of configmaps/", "is refused", `expression '!("keep" in object.metadata.labels)' resulted in error: no such key: metadata`},
			besides: func(t *testing.T, c *framework.Cluster, namespace string) {
				if _, err := c.Kubectl("delete", "validatingwebhookconfiguration", "careless-"+namespace); err != nil {
					t.Fatal(err)
				}
			},
		},
		diagnosis.DiscoveryFailed: {
			make: func(t *testing.T, c *framework.Cluster, _ string) {
				c.ApplyInput(t, garbledAPI(t))
				waitUndiscovered(t, c, "garbled.example.com")
			},
			alone: true,
			says:  []string{"the resources of garbled.example.com/v1 cannot be discovered"},
			cures: []string{"read what its server answers", "see which server serves it"},
			besides: func(t *testing.T, c *framework.Cluster, _ string) {
				if _, err := c.Kubectl("delete", "apiservice", "v1.garbled.example.com"); err != nil {
					t.Fatal(err)
				}
			},
		},
		diagnosis.ContentDeletionFailed: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				keepByPolicy(t, c, namespace, "!request.userInfo.username.endsWith(':namespace-controller')")
			},
			says: []string{"although you could", "backups need it"},
			besides: func(t *testing.T, c *framework.Cluster, namespace string) {
				// The remedy retries as the namespace controller does.
				c.WaitWhy(t, namespace, diagnosis.PolicyRefusesDeletion, diagnosis.Stuck,
					"--as=system:serviceaccount:kube-system:namespace-controller", "--as-group=system:serviceaccounts", "--as-group=system:authenticated", "--as-group=system:masters")
				if err := c.Core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), "keep-"+namespace, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			},
		},
		diagnosis.ListFailed: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				c.ApplyInput(t, convertedDefinition)
				framework.Eventually(t, "converted resources are served", func(ctx context.Context) error {
					_, err := c.KubectlInput("apiVersion: converted.example.com/v1\nkind: Relic\nmetadata: {name: old}\n", "apply", "--server-side", "--namespace", namespace)
					return err
				})
				if out, err := c.Kubectl("patch", "customresourcedefinition", "relics.converted.example.com", "--type=merge", "--patch",
					`{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"default","name":"missing"}}}}}}`); err != nil {
					t.Fatal(err, out)
				}
			},
			alone: true,
			says:  []string{"relics.converted.example.com", "cannot be listed", "conversion webhook", `service "missing" not found`},
			cures: []string{"if a conversion webhook"},
			besides: func(t *testing.T, c *framework.Cluster, _ string) {
				if out, err := c.Kubectl("patch", "customresourcedefinition", "relics.converted.example.com", "--type=merge", "--patch", `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`); err != nil {
					t.Fatal(err, out)
				}
			},
		},
		diagnosis.NamespaceFinalizer: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				if out, err := c.Kubectl("patch", "namespace", namespace, "--type=merge", "--patch", `{"metadata":{"finalizers":["`+framework.Holder+`"]}}`); err != nil {
					t.Fatal(err, out)
				}
			},
			says:  []string{"metadata.finalizers has", framework.Holder, `set by "kubectl-patch"`},
			cures: []string{"read the namespace", "remove this finalizer"},
		},
		diagnosis.SpecFinalizer: {
			make: func(t *testing.T, c *framework.Cluster, namespace string) {
				setFinalizers(t, c, namespace, "kubernetes", origin)
			},
			says:  []string{"spec.finalizers has", origin},
			cures: []string{"remove this finalizer"},
		},
	}
}

// TestWhyStuck: each cause for which a namespace does not terminate is produced on the real
// control plane, found, and fixed by the printed commands.
func TestWhyStuck(t *testing.T) {
	c := framework.Connect(t)
	var together sync.WaitGroup
	for cause, w := range wedges() {
		if !w.alone {
			together.Go(func() { t.Run(string(cause), func(t *testing.T) { w.getStuck(t, c, cause) }) })
		}
	}
	together.Wait()
	for cause, w := range wedges() {
		if w.alone {
			t.Run(string(cause), func(t *testing.T) { w.getStuck(t, c, cause) })
		}
	}
}

// getStuck produces a cause in a namespace, and fixes it.
func (w *wedge) getStuck(t *testing.T, c *framework.Cluster, cause diagnosis.Cause) {
	t.Helper()
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	if err := framework.WriteConfigMap(t.Context(), c.Core, namespace); err != nil {
		t.Fatal(err)
	}
	w.make(t, c, namespace)
	c.DeleteNamespace(t, namespace)
	finding := c.WaitWhy(t, namespace, cause, diagnosis.Stuck, "--patience=2s")
	for _, part := range w.says {
		if !strings.Contains(finding.Message, part) {
			t.Errorf("%q does not say %q", finding.Message, part)
		}
	}
	checkRemedies(t, finding)
	text, _, code := c.Plugin(t, "why", namespace, "--patience=2s")
	if code != 3 || !strings.Contains(text, "stuck: a user has to act") || !strings.Contains(text, finding.Message[:20]) {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	for _, part := range w.shows {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
	for _, description := range w.cures {
		cure(t, c, finding, description)
	}
	if w.besides != nil {
		w.besides(t, c, namespace)
	}
	// kube-controller-manager waits longer after each failure, but retries when the namespace changes.
	framework.Eventually(t, "the namespace is removed", func(ctx context.Context) error {
		change := []byte(`{"metadata":{"annotations":{"e2e.example.com/cured":"` + framework.UniqueName("at") + `"}}}`)
		changed, err := c.Core.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, change, metav1.PatchOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("it still exists: %s", framework.JSON(t, changed.Status))
	})
	if found, err := c.Why(t, namespace); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("of a namespace that is gone it says %v %v", found, err)
	}
}

// TestWhyOrphans: an administrator empties spec.finalizers of a namespace with content in spite of the guard, as docs/why.md
// says. The orphaned content is found, and the remedies delete it.
func TestWhyOrphans(t *testing.T) {
	c := framework.Connect(t)
	c.ApplyInput(t, thingDefinition())
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	createThing(t, c, namespace, "held", `finalizers: [`+framework.Holder+`], `)
	c.DeleteNamespace(t, namespace)
	c.WaitCondition(t, namespace, corev1.NamespaceFinalizersRemaining, "True/SomeFinalizersRemain")
	framework.Eventually(t, "the finalizers are emptied", func(context.Context) error {
		live, err := c.Kubectl("get", "namespace", namespace, "--output=json")
		if err != nil {
			return err
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(live), &object); err != nil {
			return err
		}
		object["spec"] = map[string]any{}
		_, err = c.KubectlInput(framework.JSON(t, object), "replace", "--raw=/api/v1/namespaces/"+namespace+"/finalize", "--as=system:serviceaccount:kube-system:namespace-controller")
		return err
	})
	c.WaitNoNamespace(t, namespace)
	finding := c.WaitWhy(t, namespace, diagnosis.OrphanedContent, diagnosis.Stuck)
	if !strings.Contains(finding.Message, "things.e2e.example.com (1)") {
		t.Errorf("it says %q", finding.Message)
	}
	if out, _, code := c.Plugin(t, "why", "--all"); code != 3 || !regexp.MustCompile(namespace+` +Gone +Stuck +OrphanedContent`).MatchString(out) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	go func() { // its controller
		for ; t.Context().Err() == nil; time.Sleep(100 * time.Millisecond) {
			if _, err := c.Kubectl("--namespace", namespace, "patch", "thing/held", "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`); err == nil {
				return
			}
		}
	}()
	applyFix(t, c, namespace, diagnosis.OrphanedContent)
	c.WaitNoNamespace(t, namespace)
	if found, err := c.Why(t, namespace); err == nil {
		t.Errorf("something is left: %s", framework.JSON(t, found))
	}
}

// TestWhyNobodyEmpties: without kube-controller-manager, the content is not deleted.
func TestWhyNobodyEmpties(t *testing.T) {
	c := framework.Connect(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	c.Dev(t, "stop", "kube-controller-manager")
	t.Cleanup(func() { c.Dev(t, "start", "kube-controller-manager") })
	c.DeleteNamespace(t, namespace)
	finding := c.WaitWhy(t, namespace, diagnosis.NamespaceControllerSilent, diagnosis.Stuck, "--patience=2s")
	checkRemedies(t, finding)
	c.Dev(t, "start", "kube-controller-manager")
	c.WaitNoNamespace(t, namespace)
}

// TestEmptiedFinalizers: if a client emptied spec.finalizers before the deletion in spite of the guard, nsinit ensures
// that the namespace and its content are deleted.
func TestEmptiedFinalizers(t *testing.T) {
	c := framework.Share(t)
	plain := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, plain)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: framework.Participant, Finalizer: true})
	held := c.CreateParticipated(t)
	for _, namespace := range []string{plain, held} {
		if err := framework.WriteConfigMap(t.Context(), c.Core, namespace); err != nil {
			t.Fatal(err)
		}
		setFinalizers(t, c, namespace)
		c.DeleteNamespace(t, namespace)
		if namespace == held {
			c.ReleaseParticipant(t, held, framework.Participant)
		}
		c.WaitNoNamespace(t, namespace)
		if list, err := c.Core.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
			t.Errorf("left behind in %s: %v %v", namespace, list.Items, err)
		}
	}
}

// TestWhyInitializing: the pending initializer and the defects of nsinit are found.
func TestWhyInitializing(t *testing.T) {
	c := framework.Connect(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true}, v1alpha1.RegisteredInitializer{Name: "two.example.com"})
	namespace := c.CreateNamespace(t, c.Admin).Name
	framework.Eventually(t, "the initializer reports", func(ctx context.Context) error {
		lifecycle := c.WaitCurrent(t, namespace, "one.example.com")
		for i := range lifecycle.Status.Initializers {
			if lifecycle.Status.Initializers[i].Name == "one.example.com" {
				lifecycle.Status.Initializers[i].Message = "the quota server is slow"
			}
		}
		_, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().UpdateStatus(ctx, lifecycle, metav1.UpdateOptions{})
		return err
	})
	says := func(finding diagnosis.Finding, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(finding.Message, part) {
				t.Errorf("%q does not say %q", finding.Message, part)
			}
		}
		checkRemedies(t, finding)
	}
	var turn diagnosis.Finding
	framework.Eventually(t, "the turn is stuck once it is stalled", func(ctx context.Context) error {
		lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := diagnosis.Waiting
		if helper.IsStalled(lifecycle, "one.example.com") {
			want = diagnosis.Stuck
		}
		found, err := c.Why(t, namespace)
		if err != nil || len(found.Findings) == 0 || found.Findings[0].Cause != diagnosis.InitializerPending || found.Findings[0].State != want {
			return errors.Join(err, fmt.Errorf("want %s, found %s", want, framework.JSON(t, found)))
		}
		turn = found.Findings[0]
		return nil
	})
	says(turn, `"one.example.com" (1 of 2)`, "the quota server is slow", "after it: two.example.com")
	c.User(t, "e2e-why", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	framework.Eventually(t, "a tenant sees the conditions of the namespace", func(context.Context) error {
		found, err := c.Why(t, namespace, "--as=e2e-why")
		if err == nil && (found.State != diagnosis.Waiting && found.State != diagnosis.Stuck || len(found.NotExamined) == 0 || !strings.Contains(found.Findings[0].Message, "one.example.com")) {
			err = fmt.Errorf("found %s", framework.JSON(t, found))
		}
		return err
	})

	// nsinit's controllers do not run.
	c.Dev(t, "stop", "nsinit-controller-manager")
	t.Cleanup(func() { c.Dev(t, "start", "nsinit-controller-manager") })
	late := c.CreateNamespace(t, c.Admin).Name
	says(c.WaitWhy(t, late, diagnosis.NsinitControllerDown, diagnosis.Stuck), "nsinit-controller-manager does not run", "Lease nsinit-system/nsinit-controller-manager")
	says(c.WaitWhy(t, late, diagnosis.LifecycleMissing, diagnosis.Stuck, "--patience=1s"), "has not created the NamespaceLifecycle yet")
	c.Dev(t, "start", "nsinit-controller-manager")

	// The turn of the initializer takes too long.
	finding := c.WaitWhy(t, namespace, diagnosis.InitializerPending, diagnosis.Stuck)
	cure(t, c, finding, "skip it in this namespace")
	c.WaitCurrent(t, namespace, "two.example.com")
	c.RemoveFirst(t, namespace)
	c.WaitReady(t, namespace)

	// The deletion waits for the participant.
	c.DeleteNamespace(t, namespace)
	says(c.WaitWhy(t, namespace, diagnosis.ParticipantPending, diagnosis.Waiting, "--patience=10m"), `participant "one.example.com"`, "the quota server is slow")
	if _, err := c.Kubectl("patch", "namespace", namespace, "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`); err != nil {
		t.Fatal(err)
	}
	c.WaitNoNamespace(t, namespace)
	says(c.WaitWhy(t, namespace, diagnosis.ParticipantPending, diagnosis.Stuck, "--patience=1s"), "the namespace does not exist any more", `participant "one.example.com"`)
	if _, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	finding = c.WaitWhy(t, namespace, diagnosis.FormerIncarnation, diagnosis.Stuck, "--patience=1s")
	says(finding, "the former namespace of its name", `participant "one.example.com"`)
	cure(t, c, finding, "act in its place")
	c.WaitCurrent(t, namespace, "one.example.com")
}

// TestWhyFailed: a namespace whose initialization failed stays closed if it is protected from deletion.
func TestWhyFailed(t *testing.T) {
	c := framework.Connect(t)
	applyArtifact(t, c, "policies", "deletion-protection.yaml")
	c.Configure(t, framework.Initializers("one.example.com")...)
	namespace := c.CreateNamespace(t, c.Admin).Name
	t.Cleanup(func() { _, _ = c.Kubectl("annotate", "namespace", namespace, protection+"-") })
	c.WaitCurrent(t, namespace, "one.example.com")
	if out, err := c.Kubectl("annotate", "namespace", namespace, protection+"="); err != nil {
		t.Fatal(err, out)
	}
	framework.Eventually(t, "the namespace is protected", func(ctx context.Context) error {
		return framework.RefusedBy("nsinit-deletion-protection", deleteDry(ctx, c.Core, namespace))
	})
	c.Fail(t, namespace, "no such cost centre")
	finding := c.WaitWhy(t, namespace, diagnosis.InitializationFailed, diagnosis.Stuck, "--patience=1s")
	if !strings.Contains(finding.Message, "no such cost centre") {
		t.Errorf("it says %q", finding.Message)
	}
	refusal := c.WaitWhy(t, namespace, diagnosis.DeletionProtected, diagnosis.Stuck, "--patience=1s")
	if !strings.Contains(refusal.Message, "is protected from deletion") {
		t.Errorf("it says %q", refusal.Message)
	}
	if out, err := c.Kubectl("annotate", "namespace", namespace, protection+"-"); err != nil {
		t.Fatal(err, out)
	}
	c.WaitNoNamespace(t, namespace)
}

// TestWhyNsinit: nsinit's API is unavailable, is not registered any more, or refuses requests.
func TestWhyNsinit(t *testing.T) {
	c := framework.Connect(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true})
	create := func() string { return c.CreateNamespace(t, c.Admin).Name }
	open, fixed, closed, unrelated := create(), create(), create(), create()
	for _, namespace := range []string{open, fixed, unrelated} {
		c.WaitCurrent(t, namespace, "one.example.com")
		c.RemoveFirst(t, namespace)
		c.WaitReady(t, namespace)
	}
	c.WaitCurrent(t, closed, "one.example.com")
	remove := func(namespace string) {
		t.Helper()
		c.DeleteNamespace(t, namespace)
	}

	c.Dev(t, "stop", "nsinit-apiserver")
	t.Cleanup(func() { c.Dev(t, "start", "nsinit-apiserver") })
	waitUndiscovered(t, c, v1alpha1.SchemeGroupVersion.Group)
	remove(unrelated)
	c.WaitCondition(t, unrelated, corev1.NamespaceDeletionDiscoveryFailure, "True/DiscoveryFailed", "nsinit.dev/v1alpha1")
	for _, namespace := range []string{unrelated, closed} {
		finding := c.WaitWhy(t, namespace, diagnosis.NsinitUnavailable, diagnosis.Stuck)
		if !strings.Contains(finding.Message, "the API of nsinit") || !strings.Contains(finding.Message, "APIService v1alpha1.nsinit.dev, service nsinit-system/nsinit-apiserver") {
			t.Errorf("it says %q", finding.Message)
		}
		checkRemedies(t, finding)
	}
	c.WaitWhy(t, "default", diagnosis.NsinitUnavailable, diagnosis.Healthy)
	c.Dev(t, "start", "nsinit-apiserver")
	c.WaitServing(t)
	c.ReleaseParticipant(t, unrelated, "one.example.com")
	c.WaitNoNamespace(t, unrelated)

	// The APIService was deleted without the steps in docs/uninstall.md.
	registration, err := c.Kubectl("get", "apiservice", "v1alpha1.nsinit.dev", "--output=json")
	if err != nil {
		t.Fatal(err)
	}
	again := func() {
		var object map[string]any
		if err := json.Unmarshal([]byte(registration), &object); err != nil {
			t.Fatal(err)
		}
		delete(object, "status")
		object["metadata"] = map[string]any{"name": "v1alpha1.nsinit.dev"}
		if _, err := c.KubectlInput(framework.JSON(t, object), "apply", "--server-side", "--force-conflicts"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(again)
	if _, err := c.Kubectl("delete", "apiservice", "v1alpha1.nsinit.dev"); err != nil {
		t.Fatal(err)
	}
	remove(open)
	remove(fixed)
	for _, namespace := range []string{open, closed} {
		finding := c.WaitWhy(t, namespace, diagnosis.NsinitUnavailable, diagnosis.Stuck)
		if !strings.Contains(finding.Message, "is not registered") {
			t.Errorf("it says %q", finding.Message)
		}
		checkRemedies(t, finding)
	}
	if found := fixes(t, c, fixed); len(found) > 0 {
		t.Errorf("nsinit-controller-manager runs, and it proposes %s", framework.JSON(t, found))
	}
	c.Dev(t, "stop", "nsinit-controller-manager")
	t.Cleanup(func() { c.Dev(t, "start", "nsinit-controller-manager") })
	c.WaitWhy(t, fixed, diagnosis.NsinitUnavailable, diagnosis.Stuck)
	if found := fixes(t, c, fixed); len(found) > 0 {
		t.Errorf("the policies of nsinit exist, and it proposes %s", framework.JSON(t, found))
	}
	// Without a policy that uses the list of exemptions, kube-apiserver would not see its changes until it is restarted. So this one stays.
	if out, err := c.KubectlInput(followingExemptions, "apply", "--server-side"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := c.Kubectl("delete", "validatingadmissionpolicy", "nsinit-guard-create"); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if out, err := c.Kubectl("apply", "--server-side", "--force-conflicts", "-f", filepath.Join(c.Root, "artifacts", "policies", "guard-create.yaml")); err != nil {
			t.Error(err, out)
		}
	})
	held := c.WaitWhy(t, open, diagnosis.NsinitUninstalled, diagnosis.Stuck)
	shut := c.WaitWhy(t, closed, diagnosis.NsinitUninstalled, diagnosis.Stuck)
	checkRemedies(t, held)
	checkRemedies(t, shut)
	cure(t, c, held, "remove nsinit's finalizer")
	c.WaitNoNamespace(t, open)
	applyFix(t, c, fixed, diagnosis.NsinitUninstalled)
	c.WaitNoNamespace(t, fixed)
	cure(t, c, shut, "open the namespace as it is")
	framework.Eventually(t, "a tenant writes", func(ctx context.Context) error { return framework.WriteConfigMap(ctx, c.Tenant(t), closed) })
	again()
	c.WaitServing(t)
}

// followingExemptions is a policy that matches no request.
const followingExemptions = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-follows-exemptions}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [e2e.example.com], apiVersions: [v1], operations: [CREATE], resources: [none]}]}
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: e2e-follows-exemptions}
spec:
  policyName: e2e-follows-exemptions
  validationActions: [Deny]
  paramRef: {name: nsinit-exemptions, namespace: nsinit-system, parameterNotFoundAction: Allow}
`

// TestWhyWithoutNsinit: the command works on a cluster without nsinit. There, namespaces whose finalizers were empty
// before they were deleted stay terminating.
func TestWhyWithoutNsinit(t *testing.T) {
	framework.Environment(t)
	c := framework.Another(t, "--only-kube")
	namespaces := c.Core.CoreV1().Namespaces()
	create := func(name string, finalizers ...string) {
		t.Helper()
		if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the namespace has content", func(ctx context.Context) error {
			_, err := c.Core.CoreV1().ConfigMaps(name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			return err
		})
	}
	remove := func(name string) {
		t.Helper()
		if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("plain", framework.Holder)
	if found, err := c.Why(t, "plain"); err != nil || found.State != diagnosis.Healthy || len(found.NotExamined) > 0 {
		t.Errorf("it says %v %v", found, err)
	}
	remove("plain")
	cure(t, c, c.WaitWhy(t, "plain", diagnosis.NamespaceFinalizer, diagnosis.Stuck, "--patience=1s"), "remove this finalizer")
	c.WaitNoNamespace(t, "plain")

	for _, name := range []string{"full", "fixed", "empty"} {
		create(name)
		setFinalizers(t, c, name)
		remove(name)
	}
	emptied := func(name, first string) {
		t.Helper()
		finding := c.WaitWhy(t, name, diagnosis.FinalizersEmptied, diagnosis.Stuck)
		if !strings.Contains(finding.Message, "second DELETE") || !strings.HasPrefix(finding.Remedies[0].Description, first) {
			t.Errorf("it says %s", framework.JSON(t, finding))
		}
		checkRemedies(t, finding)
		cure(t, c, finding, first)
		c.WaitNoNamespace(t, name)
		if found, err := c.Why(t, name); err == nil {
			t.Errorf("something is left: %s", framework.JSON(t, found))
		}
	}
	emptied("full", `put the finalizer "kubernetes" back`)
	applyFix(t, c, "fixed", diagnosis.FinalizersEmptied)
	c.WaitNoNamespace(t, "fixed")
	for _, remove := range []func(context.Context, metav1.DeleteOptions, metav1.ListOptions) error{
		c.Core.CoreV1().ConfigMaps("empty").DeleteCollection, c.Core.CoreV1().ServiceAccounts("empty").DeleteCollection,
	} {
		if err := remove(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	emptied("empty", "delete the namespace again")
}

// convertedDefinition has an object that is stored in another version than that of lists.
const convertedDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: relics.converted.example.com}
spec:
  group: converted.example.com
  scope: Namespaced
  names: {kind: Relic, plural: relics, singular: relic}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// waitUndiscovered waits until the discovery of a group fails.
func waitUndiscovered(t *testing.T, c *framework.Cluster, group string) {
	t.Helper()
	framework.Eventually(t, "discovery of "+group+" fails", func(context.Context) error {
		if _, err := c.Core.Discovery().ServerPreferredNamespacedResources(); err == nil || !strings.Contains(err.Error(), group) {
			return fmt.Errorf("discovery says %w", errors.Join(err, errors.New("(no error)")))
		}
		return nil
	})
}

func createThing(t *testing.T, c *framework.Cluster, namespace, name, metadata string) {
	t.Helper()
	framework.Eventually(t, "a custom resource is created", func(context.Context) error {
		_, err := c.KubectlInput("apiVersion: e2e.example.com/v1\nkind: Thing\nmetadata: {"+metadata+"name: "+name+"}\n", "apply", "--server-side", "--namespace", namespace)
		return err
	})
}

// startPod starts a pod on a node without a kubelet.
func startPod(t *testing.T, c *framework.Cluster, namespace, node string) {
	t.Helper()
	if _, err := c.Core.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Core.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	grace := int64(1)
	framework.Eventually(t, "a pod is created", func(ctx context.Context) error {
		_, err := c.Core.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "app"},
			Spec:       corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		}, metav1.CreateOptions{})
		return err
	})
}

// setFinalizers sets spec.finalizers of a namespace, as a client that the guard does not stop.
func setFinalizers(t *testing.T, c *framework.Cluster, name string, finalizers ...corev1.FinalizerName) {
	t.Helper()
	finalize(t, c, name, "", finalizers...)
}

// finalize sets spec.finalizers of a namespace as a field manager.
func finalize(t *testing.T, c *framework.Cluster, name, manager string, finalizers ...corev1.FinalizerName) {
	t.Helper()
	framework.Eventually(t, "the finalizers are set", func(ctx context.Context) error {
		namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		namespace.Spec.Finalizers = finalizers
		client := kubernetes.NewForConfigOrDie(c.As("system:serviceaccount:kube-system:namespace-controller"))
		_, err = client.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{FieldManager: manager})
		return err
	})
}

// refusingServer is an admission webhook that refuses every request.
func refusingServer(t *testing.T) *httptest.Server {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "keep it"}}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return server
}

// refuseDeletions registers a webhook for the deletion of ConfigMaps in a namespace until the test ends.
func refuseDeletions(t *testing.T, c *framework.Cluster, namespace string, server *httptest.Server) {
	t.Helper()
	name, none := "keep-"+namespace, admissionregistrationv1.SideEffectClassNone
	webhooks := c.Core.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := webhooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "keep.e2e.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = webhooks.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	waitKept(t, c, namespace)
}

// carelessWebhook reviews the deletion of ConfigMaps in a namespace on a condition that fails: a deletion has no new object.
func carelessWebhook(namespace string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: careless-%[1]s}
webhooks:
- name: careless.e2e.example.com
  clientConfig: {service: {namespace: default, name: missing}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  matchConditions: [{name: unmarked, expression: '!("keep" in object.metadata.labels)'}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
`, namespace)
}

// garbledAPI is an API that is available, and whose server answers discovery requests with something else.
func garbledAPI(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/apis/garbled.example.com/v1" {
			http.NotFound(w, request)
			return
		}
		_, _ = fmt.Fprintln(w, "It works!")
	}))
	t.Cleanup(server.Close)
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: garbled, namespace: default}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.garbled.example.com}
spec:
  group: garbled.example.com
  version: v1
  groupPriorityMinimum: 1
  versionPriority: 1
  insecureSkipTLSVerify: true
  service: {namespace: default, name: garbled, port: %d}
`, server.Listener.Addr().(*net.TCPAddr).Port)
}

// keepByPolicy creates a policy that refuses the deletion of ConfigMaps in a namespace unless an expression is true, until
// the test ends.
func keepByPolicy(t *testing.T, c *framework.Cluster, namespace, expression string) {
	t.Helper()
	name := "keep-" + namespace
	c.ApplyInput(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  validations: [{expression: "%[3]s || request.userInfo.username == 'backup'", message: backups need it}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, name, namespace, expression))
	waitKept(t, c, namespace)
}

// waitKept waits until the namespace controller could not delete the ConfigMaps in a namespace.
func waitKept(t *testing.T, c *framework.Cluster, namespace string) {
	t.Helper()
	client := c.Core.CoreV1()
	config := c.As("system:serviceaccount:kube-system:namespace-controller", "system:masters")
	controller := kubernetes.NewForConfigOrDie(config).CoreV1()
	framework.Eventually(t, "deletions are refused", func(ctx context.Context) error {
		list, err := client.ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(list.Items) == 0 {
			return errors.Join(err, errors.New("there is no ConfigMap"))
		}
		if err := controller.ConfigMaps(namespace).Delete(ctx, list.Items[0].Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return errors.New("they are not")
		}
		return nil
	})
}

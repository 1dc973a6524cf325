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
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// clusterAdmission are the policies and webhooks of a cluster that select nsinit's kinds.
type clusterAdmission struct {
	*framework.Cluster
}

// dryCreate returns what the creation of a configuration returns, as a dry run that is not repeated.
func dryCreate(ctx context.Context, config *rest.Config, name string) (*v1alpha1.NamespaceInitializerConfiguration, error) {
	created := &v1alpha1.NamespaceInitializerConfiguration{}
	err := versioned.NewForConfigOrDie(config).NsinitV1alpha1().RESTClient().Post().Resource("namespaceinitializerconfigurations").
		Param("dryRun", metav1.DryRunAll).MaxRetries(0).
		Body(&v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: framework.Initializers(name + ".example.com")}).
		Do(ctx).Into(created)
	return created, err
}

// waitRefused waits until the creation of a configuration is refused with a message that contains all parts.
func (a clusterAdmission) waitRefused(t *testing.T, config *rest.Config, name string, parts ...string) {
	t.Helper()
	framework.Eventually(t, "a configuration is refused", func(ctx context.Context) error {
		_, err := dryCreate(ctx, config, name)
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				return fmt.Errorf("it does not say %q: %w", part, errors.Join(err, errors.New("(no other error)")))
			}
		}
		t.Logf("refused: %v", err)
		return nil
	})
}

// waitCreated waits until a configuration can be created, and checks what was created.
func (a clusterAdmission) waitCreated(t *testing.T, config *rest.Config, name string, check func(*v1alpha1.NamespaceInitializerConfiguration) error) {
	t.Helper()
	framework.Eventually(t, "a configuration is created", func(ctx context.Context) error {
		created, err := dryCreate(ctx, config, name)
		if err != nil {
			return err
		}
		return check(created)
	})
}

// namespaces creates, opens and deletes a namespace with every part of nsinit, while a configuration with an initializer that
// takes part in deletions, and a population, exist.
func (a clusterAdmission) namespaces(t *testing.T) {
	t.Helper()
	namespace := a.CreateNamespace(t, a.Admin).Name
	a.WaitCurrent(t, namespace, framework.Participant)
	a.RemoveFirst(t, namespace)
	a.WaitReady(t, namespace)
	if _, err := a.Kubectl("get", "configmap", "inside", "--namespace", namespace); err != nil {
		t.Error(err)
	}
	a.remove(t, namespace)
}

// remove deletes a namespace and acts as its participant.
func (a clusterAdmission) remove(t *testing.T, namespace string) {
	t.Helper()
	a.DeleteNamespace(t, namespace)
	a.WaitTerminating(t, namespace)
	a.ReleaseParticipant(t, namespace, framework.Participant)
	a.WaitNoNamespace(t, namespace)
}

// TestClusterAdmission: the policies and webhooks of the cluster apply to configurations and populations, with their messages,
// their parameters and their changes, in each replica. They do not apply to what namespaces need.
func TestClusterAdmission(t *testing.T) {
	framework.DependsOnKubernetes(t)
	a := clusterAdmission{framework.Connect(t)}
	a.GrantPopulation(t, framework.ConfigMapRule())
	a.Populate(t, "inside", framework.ConfigMapManifest("inside", "x"))
	a.Configure(t, v1alpha1.RegisteredInitializer{Name: framework.PopulationInitializer},
		v1alpha1.RegisteredInitializer{Name: framework.Participant, Finalizer: true})
	a.ApplyInput(t, strings.Join(lockedObjects(), "---\n"))
	t.Run("replicas", a.replicas)
	t.Run("every write", a.everyWrite)
	t.Run("parameters", a.parameters)
	t.Run("mutating policy", a.mutatingPolicy)
	t.Run("webhooks", a.webhooks)
	t.Run("foreign webhooks block no namespace", a.dead)
	t.Run("missing rights block no namespace", a.missingRights)
}

// aboutClusterAdmission is the heading of the section of HardenGuide with an example.
const aboutClusterAdmission = "Policies and webhooks for nsinit's kinds"

const refuseByName = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-names}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["nsinit.dev"], apiVersions: ["*"], operations: ["CREATE", "UPDATE"], resources: ["namespaceinitializerconfigurations"]}
  validations:
  - expression: "!object.metadata.name.startsWith('bad-')"
    message: names that start with bad- are reserved
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: e2e-names}
spec: {policyName: e2e-names, validationActions: [Deny]}
`

// second runs another nsinit-apiserver on the same storage until the test ends. It uses the kube-apiserver at a URL. second
// returns the configuration of an administrator's client.
func (a clusterAdmission) second(t *testing.T, kubeAPIServer string) *rest.Config {
	t.Helper()
	second := a.Direct(t)
	port := framework.FreePort(t)
	second.Host = "https://127.0.0.1:" + port
	var args []string
	for _, arg := range a.Arguments(t, "nsinit-apiserver") {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "--secure-port":
			arg = name + "=" + port
		case "--embedded-etcd-dir":
			arg = "--etcd-servers=unix://" + filepath.Join(a.Dir, "nsinit-etcd", "client.sock")
		case "--kubeconfig":
			config, err := clientcmd.LoadFromFile(value)
			if err != nil {
				t.Fatal(err)
			}
			for _, cluster := range config.Clusters {
				cluster.Server = kubeAPIServer
			}
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if err := clientcmd.WriteToFile(*config, file); err != nil {
				t.Fatal(err)
			}
			arg = name + "=" + file
		}
		args = append(args, arg)
	}
	a.Run(t, "nsinit-apiserver", args...)
	return second
}

// replicas: a second replica evaluates a policy, too. Creations, dry runs and applies are refused.
func (a clusterAdmission) replicas(t *testing.T) {
	second := a.second(t, a.Admin.Host)
	a.ApplyInput(t, a.DocumentedFile(t, framework.HardenGuide, aboutClusterAdmission))
	const message = "names that start with 0 to 4 are those of the platform team"
	for _, config := range []*rest.Config{a.Direct(t), second, a.Admin} {
		a.waitRefused(t, config, "0-bad", "ValidatingAdmissionPolicy 'configuration-names' with binding 'configuration-names' denied request: "+message)
		a.waitCreated(t, config, "good-name", func(*v1alpha1.NamespaceInitializerConfiguration) error { return nil })
	}
	const bad = "apiVersion: nsinit.dev/v1alpha1\nkind: NamespaceInitializerConfiguration\nmetadata: {name: 0-bad}\ninitializers: [{name: bad.example.com}]\n"
	for _, command := range [][]string{{"create"}, {"apply"}, {"apply", "--server-side"}, {"apply", "--server-side", "--dry-run=server"}} {
		if out, err := a.KubectlInput(bad, command...); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("kubectl %s: %s%v", strings.Join(command, " "), out, err)
		}
	}
}

// lockedObjects are a configuration and a population that select no namespace.
func lockedObjects() []string {
	return []string{`
apiVersion: nsinit.dev/v1alpha1
kind: NamespaceInitializerConfiguration
metadata: {name: e2e-locked, labels: {e2e: locked}}
initializers: [{name: locked.example.com, matchConditions: [{name: never, expression: "false"}]}]
`, `
apiVersion: nsinit.dev/v1alpha1
kind: NamespacePopulation
metadata: {name: e2e-locked, labels: {e2e: locked}}
spec:
  namespaceSelector: {matchLabels: {e2e: no-namespace}}
  manifests: [{name: m, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: locked}}}]
`}
}

// everyWrite: a policy applies to each way to write a configuration or a population.
func (a clusterAdmission) everyWrite(t *testing.T) {
	a.ApplyInput(t, strings.NewReplacer("e2e-names", "e2e-locked", `["CREATE", "UPDATE"]`, `["*"]`, `["namespaceinitializerconfigurations"]`, `["namespaceinitializerconfigurations", "namespacepopulations"]`,
		"!object.metadata.name.startsWith('bad-')", "(object == null ? oldObject : object).metadata.?labels['e2e'] != optional.of('locked')",
		"names that start with bad- are reserved", "it is locked").Replace(refuseByName))
	a.refusesWrites(t, "it is locked")
}

// refusesWrites waits until each way to write the lockedObjects is refused with a message.
func (a clusterAdmission) refusesWrites(t *testing.T, message string) {
	t.Helper()
	for i, resource := range []string{"namespaceinitializerconfigurations", "namespacepopulations"} {
		object := lockedObjects()[i]
		another := strings.Replace(object, "e2e-locked", "e2e-locked-2", 1)
		for name, write := range map[string]func() (string, error){
			"create": func() (string, error) { return a.KubectlInput(another, "create", "--dry-run=server") },
			"update": func() (string, error) { return a.KubectlInput(object, "replace", "--dry-run=server") },
			"apply":  func() (string, error) { return a.KubectlInput(object, "apply", "--server-side", "--dry-run=server") },
			"patch": func() (string, error) {
				return a.Kubectl("patch", resource, "e2e-locked", "--type=merge", `--patch={"metadata":{"annotations":{"a":"b"}}}`, "--dry-run=server")
			},
			"delete": func() (string, error) { return a.Kubectl("delete", resource, "e2e-locked", "--dry-run=server") },
			"deletecollection": func() (string, error) {
				return a.Kubectl("delete", "--raw", "/apis/nsinit.dev/v1alpha1/"+resource+"?dryRun=All&labelSelector=e2e%3Dlocked")
			},
		} {
			if name == "deletecollection" && resource == "namespaceinitializerconfigurations" {
				continue // they are deleted one by one
			}
			framework.Eventually(t, name+" of "+resource+" is refused", func(context.Context) error {
				if out, err := write(); err == nil || !strings.Contains(err.Error(), message) {
					return fmt.Errorf("it does not say %q: %s%w", message, out, errors.Join(err, errors.New("(no other error)")))
				}
				return nil
			})
		}
	}
}

// parameters: a policy reads its parameters with the rights that nsinit-apiserver got for them, and the message says which
// are missing. The parameters are followed again after the policy was deleted and created.
func (a clusterAdmission) parameters(t *testing.T) {
	const parameter = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: e2e-prefix, namespace: default}\ndata: {prefix: %s}\n"
	apply := func(prefix string) {
		t.Helper()
		if _, err := a.KubectlInput(fmt.Sprintf(parameter, prefix), "apply", "--server-side"); err != nil {
			t.Fatal(err)
		}
	}
	apply("no-")
	t.Cleanup(func() {
		_, _ = a.Kubectl("delete", "configmap", "e2e-prefix", "--namespace=default")
		_, _ = a.Kubectl("delete", "clusterrole,clusterrolebinding", "nsinit-parameters")
	})
	policy := strings.NewReplacer("name: e2e-names}", "name: e2e-parameters}",
		"spec:\n  matchConstraints", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n  matchConstraints",
		"'bad-'", "params.data.prefix", "names that start with bad- are reserved", "the prefix is reserved",
		"policyName: e2e-names,", "policyName: e2e-parameters, paramRef: {name: e2e-prefix, namespace: default, parameterNotFoundAction: Deny},",
	).Replace(refuseByName)
	t.Run("are missing", func(t *testing.T) {
		a.ApplyInput(t, policy)
		a.waitRefused(t, a.Admin, "yes-name", "paramKind kind", "allow the service account nsinit-system/nsinit-apiserver to get, list and watch this kind")
		if out, err := a.Shell(t, a.Documented(t, framework.HardenGuide, aboutClusterAdmission)[0], nil); err != nil {
			t.Fatal(out, err)
		}
		a.waitRefused(t, a.Admin, "no-name", "the prefix is reserved")
		a.waitCreated(t, a.Admin, "yes-name", func(*v1alpha1.NamespaceInitializerConfiguration) error { return nil })
	})
	t.Run("are followed again", func(t *testing.T) {
		a.waitCreated(t, a.Admin, "no-name", func(*v1alpha1.NamespaceInitializerConfiguration) error { return nil }) // the policy is gone
		a.ApplyInput(t, policy)
		a.waitRefused(t, a.Admin, "no-name", "the prefix is reserved")
		apply("yes-")
		a.waitRefused(t, a.Admin, "yes-name", "the prefix is reserved")
	})
}

const labelByPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: e2e-label}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: ["nsinit.dev"], apiVersions: ["*"], operations: ["CREATE"], resources: ["*"]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"e2e.example.com/policy": request.userInfo.username}}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: e2e-label}
spec: {policyName: e2e-label}
`

// mutatingPolicy: a MutatingAdmissionPolicy sets a label. On a cluster without them, configurations are written.
func (a clusterAdmission) mutatingPolicy(t *testing.T) {
	user := a.User(t, "e2e-label-user", framework.Everything(), rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName},
		Resources: []string{v1alpha1.ResourceInitializers}, Verbs: []string{v1alpha1.VerbInitialize}})
	if !a.StampsByPolicy(t) {
		a.waitCreated(t, user, "unlabelled", func(*v1alpha1.NamespaceInitializerConfiguration) error { return nil })
		a.betaPolicy(t)
		return
	}
	a.ApplyInput(t, labelByPolicy)
	a.waitCreated(t, user, "labelled", labelledBy("e2e-label-user"))
}

// betaPolicy: the administrator of a cluster with Kubernetes 1.34 or 1.35 turned MutatingAdmissionPolicies on.
func (a clusterAdmission) betaPolicy(t *testing.T) {
	const version = "admissionregistration.k8s.io/v1beta1"
	server := runKubeAPIServer(t, a.Cluster, "--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config="+version+"=true")
	second := a.second(t, server.Host)
	manifests := strings.ReplaceAll(labelByPolicy, "admissionregistration.k8s.io/v1", version)
	if _, err := a.KubectlInput(manifests, "apply", "--server-side", "--server="+server.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.KubectlInput(manifests, "delete", "--server="+server.Host) })
	a.waitCreated(t, second, "labelled", labelledBy("kubernetes-admin"))
}

// labelledBy checks the label of labelByPolicy.
func labelledBy(user string) func(*v1alpha1.NamespaceInitializerConfiguration) error {
	return func(created *v1alpha1.NamespaceInitializerConfiguration) error {
		if created.Labels["e2e.example.com/policy"] != user {
			return fmt.Errorf("labels %v", created.Labels)
		}
		return nil
	}
}

// webhooks: a mutating webhook sets a label, and a validating one refuses a name.
func (a clusterAdmission) webhooks(t *testing.T) {
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		switch {
		case r.URL.Path == "/mutate":
			review.Response.Patch, review.Response.PatchType = []byte(`[{"op":"add","path":"/metadata/labels","value":{"hooked":"yes"}}]`), ptr.To(admissionv1.PatchTypeJSONPatch)
		case review.Request.Name == "refused-name":
			review.Response.Allowed, review.Response.Result = false, &metav1.Status{Message: "this name is refused"}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(hook.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	for kind, path := range map[string]string{"MutatingWebhookConfiguration": "/mutate", "ValidatingWebhookConfiguration": "/validate"} {
		config, err := json.Marshal(map[string]any{"url": hook.URL + path, "caBundle": ca})
		if err != nil {
			t.Fatal(err)
		}
		a.ApplyInput(t, webhookConfiguration(kind, "namespaceinitializerconfigurations", string(config)))
	}
	a.waitRefused(t, a.Admin, "refused-name", `admission webhook "hook.e2e.example.com" denied the request: this name is refused`)
	a.waitCreated(t, a.Admin, "hooked", func(created *v1alpha1.NamespaceInitializerConfiguration) error {
		if created.Labels["hooked"] != "yes" {
			return fmt.Errorf("labels %v", created.Labels)
		}
		return nil
	})
}

// webhookConfiguration returns a webhook that fails closed, for resources of nsinit.
func webhookConfiguration(kind, resources, clientConfig string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata: {name: e2e-hook}
webhooks:
- name: hook.e2e.example.com
  clientConfig: %s
  rules: [{apiGroups: ["nsinit.dev"], apiVersions: ["*"], operations: ["*"], resources: [%q]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 1
`, kind, clientConfig, resources)
}

// dead: webhooks that do not answer and a policy that refuses everything refuse configurations, and no namespace.
func (a clusterAdmission) dead(t *testing.T) {
	configuration := a.Configure(t, v1alpha1.RegisteredInitializer{Name: "late.example.com", Activation: ptr.To(v1alpha1.ActivationWhenServed)})
	t.Cleanup(func() { // before the configuration is deleted
		a.waitCreated(t, a.Admin, "any", func(*v1alpha1.NamespaceInitializerConfiguration) error { return nil })
	})
	const service = `{service: {namespace: nsinit-system, name: dead}}`
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		t.Run(kind, func(t *testing.T) {
			a.ApplyInput(t, webhookConfiguration(kind, "*/*", service))
			a.waitRefused(t, a.Admin, "any", `failed calling webhook "hook.e2e.example.com"`, "https://dead.nsinit-system.svc:443")
		})
	}
	a.ApplyInput(t, webhookConfiguration("MutatingWebhookConfiguration", "*/*", service))
	a.ApplyInput(t, webhookConfiguration("ValidatingWebhookConfiguration", "*/*", service))
	a.ApplyInput(t, strings.NewReplacer("e2e-names", "e2e-nothing", `["CREATE", "UPDATE"]`, `["*"]`, `["namespaceinitializerconfigurations"]`, `["*/*"]`,
		"!object.metadata.name.startsWith('bad-')", "false", "names that start with bad- are reserved", "nothing is allowed").Replace(refuseByName))
	a.refusesWrites(t, `failed calling webhook "hook.e2e.example.com"`)

	a.StartPopulation(t)
	a.namespaces(t)
	if err := a.Available(t.Context(), t); err != nil {
		t.Error(err)
	}
	// A report adds the initializer to the plans of later namespaces.
	if out, err := a.Kubectl("patch", "nsic", configuration.Name, "--subresource=status", "--type=merge", "--patch",
		`{"status":{"initializers":[{"name":"late.example.com","reportTime":"2026-01-01T00:00:00.000000Z"}]}}`); err != nil {
		t.Errorf("a report: %s%v", out, err)
	}
	late := a.CreateNamespace(t, a.Admin).Name
	framework.Eventually(t, "the plan has the served initializer", func(ctx context.Context) error {
		lifecycle, err := a.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, late, metav1.GetOptions{})
		if err == nil && !strings.Contains(framework.JSON(t, lifecycle.Spec.Plan), "late.example.com") {
			err = fmt.Errorf("the plan is %s", framework.JSON(t, lifecycle.Spec.Plan))
		}
		return err
	})
	a.remove(t, late)
}

// missingRights: a server that may not read policies refuses configurations and says why. Namespaces open and are deleted, and
// the API stays available.
func (a clusterAdmission) missingRights(t *testing.T) {
	roles := a.Core.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "nsinit:apiserver", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	less := role.DeepCopy()
	for i := range less.Rules {
		if less.Rules[i].APIGroups[0] == "admissionregistration.k8s.io" {
			less.Rules[i].Resources = []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
		}
	}
	if _, err := roles.Update(t.Context(), less, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if _, err := a.Kubectl("apply", "--server-side", "--force-conflicts", "-f", filepath.Join(a.Root, "artifacts", "deploy", "base", "apiserver.yaml")); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	a.Dev(t, "stop", "nsinit-apiserver")
	a.Dev(t, "start", "nsinit-apiserver")
	a.WaitServing(t)
	a.waitRefused(t, a.Admin, "any", `namespaceinitializerconfigurations "any" cannot be written`, "admissionpolic",
		`User "system:serviceaccount:nsinit-system:nsinit-apiserver" cannot list resource`, "ClusterRole nsinit:apiserver")
	if _, err := dryCreate(t.Context(), a.Admin, "any"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("it is not refused as unavailable: %v", err)
	}
	a.StartPopulation(t)
	a.namespaces(t)
	if err := a.Available(t.Context(), t); err != nil {
		t.Error(err)
	}
	restore()
	a.waitCreated(t, a.Admin, "any", func(*v1alpha1.NamespaceInitializerConfiguration) error { return nil })
}

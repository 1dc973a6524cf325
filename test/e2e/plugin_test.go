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
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// matches compares what was printed, line by line, with regular expressions.
func matches(t *testing.T, printed string, lines ...string) {
	t.Helper()
	pattern := "^" + strings.Join(lines, "\n") + "\n$"
	if !regexp.MustCompile(pattern).MatchString(printed) {
		t.Errorf("printed:\n%s\nwant:\n%s", printed, strings.Join(lines, "\n"))
	}
}

// TestPluginCreate: it returns when the namespace is open, and shows each initializer.
func TestPluginCreate(t *testing.T) {
	c := framework.Share(t)
	c.Configure(t, framework.Initializers("one.example.com", "two.example.com")...)
	c.User(t, "e2e-create", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"}})
	remove := func(name string) {
		t.Helper()
		if err := c.Core.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}

	// No initializer acts yet.
	name := c.Name("create")
	stdout, stderr, code := c.Plugin(t, "create", name, "--timeout=8s")
	if code != 1 || stdout != "namespace/"+name+" created\n" || !strings.Contains(stderr, `is not open yet: waiting for initializer "one.example.com" (1 of 2)`) ||
		!regexp.MustCompile(` \(\ds\)\n`).MatchString(stderr) || !strings.Contains(stderr, "see: kubectl nsinit why "+name) {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	c.RefusedPlugin(t, "already exists", "create", name)
	if stdout, stderr, code := c.Plugin(t, "wait", name, "--timeout=1s"); code != 1 || stdout != "" || !strings.Contains(stderr, "is not open yet") { // after progress, or not
		t.Errorf("wait: exit code %d\n%s%s", code, stdout, stderr)
	}
	remove(name)
	c.MustPlugin(t, "wait", name, "--for=gone")
	c.RefusedPlugin(t, "does not exist", "wait", name)

	c.ActAs(t, "one.example.com", "two.example.com")
	name = c.Name("create")
	matches(t, c.MustPlugin(t, "create", name, "--labels=team=a,stage=test"), "namespace/"+name+" created",
		`initializer.nsinit.dev/one.example.com done after [0-9.]+m?s`, `initializer.nsinit.dev/two.example.com done after [0-9.]+m?s`, "namespace/"+name+" is open after [0-9.]+m?s")
	tenant := c.Tenant(t)
	framework.WaitWrite(t, tenant, name)
	if namespace, err := c.Core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil || namespace.Labels["team"] != "a" || namespace.Labels["stage"] != "test" {
		t.Errorf("labels are %v, %v", namespace.Labels, err)
	}
	remove(name)

	// A user who may only create and get sees the conditions of the namespace.
	name = c.Name("create")
	out := c.MustPlugin(t, "create", name, "--as=e2e-create")
	if !strings.HasPrefix(out, "namespace/"+name+" created\n") || !strings.Contains(out, "namespace/"+name+" is open after ") {
		t.Errorf("printed:\n%s", out)
	}
	remove(name)

	// With output for programs.
	name = c.Name("create")
	if out := c.MustPlugin(t, "create", name, "--output=jsonpath={.metadata.labels}"); strings.Contains(out, v1alpha1.LabelInitializing) || !strings.Contains(out, name) {
		t.Errorf("printed:\n%s", out)
	}
	remove(name)
	name = c.Name("create")
	matches(t, c.MustPlugin(t, "create", name, "--dry-run=server"), "namespace/"+name+` created \(server dry run\)`)
	c.RefusedPlugin(t, "does not exist", "wait", name)
	matches(t, c.MustPlugin(t, "create", name, "--wait=false", "-o", "name"), "namespace/"+name)
	remove(name)
}

// TestPluginCreateFails: an initialization that fails is an error, with its reason.
func TestPluginCreateFails(t *testing.T) {
	c := framework.Share(t)
	c.Configure(t, framework.Initializers("one.example.com")...)
	name := c.Name("create")
	go func() {
		lifecycles := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
		for ; t.Context().Err() == nil; time.Sleep(50 * time.Millisecond) {
			lifecycle, err := lifecycles.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || len(helper.Acting(lifecycle)) == 0 {
				continue
			}
			// A finalizer keeps the namespace, so that the failure can be seen.
			_, _ = c.Kubectl("patch", "namespace", name, "--type=merge", "--patch", `{"metadata":{"finalizers":["`+framework.Holder+`"]}}`)
			lifecycle.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no such cost centre"}
			if _, err := lifecycles.Initialize(t.Context(), name, lifecycle, metav1.UpdateOptions{}); err == nil {
				return
			}
		}
	}()
	stdout, stderr, code := c.Plugin(t, "create", name)
	if code != 1 || !strings.Contains(stderr, `the initialization of namespace "`+name+`" failed`) || !strings.Contains(stderr, "no such cost centre") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	c.Release(t, name)
	c.WaitNoNamespace(t, name)
}

// TestPluginActs: done, skip and finalize act on the initializer whose turn it is, with its own permission.
func TestPluginActs(t *testing.T) {
	c := framework.Share(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true}, v1alpha1.RegisteredInitializer{Name: "two.example.com"})
	c.User(t, "e2e-one", rbacv1.PolicyRule{APIGroups: []string{"nsinit.dev"}, Resources: []string{"initializers"}, ResourceNames: []string{"one.example.com"}, Verbs: []string{"initialize", "finalize"}},
		rbacv1.PolicyRule{APIGroups: []string{"nsinit.dev"}, Resources: []string{"namespacelifecycles", "namespacelifecycles/initialize", "namespacelifecycles/finalize"}, Verbs: []string{"get", "update"}}, framework.Initialize())
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, "one.example.com")

	c.RefusedPlugin(t, `it is not the turn of initializer "two.example.com"`, "done", namespace, "two.example.com")
	c.RefusedPlugin(t, `does not wait for initializer "none.example.com", but for one.example.com, two.example.com`, "skip", namespace, "none.example.com")
	c.RefusedPlugin(t, "is not being deleted", "finalize", namespace, "one.example.com")
	c.RefusedPlugin(t, `invalid argument "client" for "--dry-run" flag: must be "none" or "server"`, "done", namespace, "one.example.com", "--dry-run=client")
	c.RefusedPlugin(t, "does not exist", "done", "no-such-namespace", "one.example.com")
	if out := c.MustPlugin(t, "status"); !strings.Contains(out, namespace) || !strings.Contains(out, "one.example.com") {
		t.Errorf("status:\n%s", out)
	}
	matches(t, c.MustPlugin(t, "done", namespace, "one.example.com", "--dry-run=server"), `initializer.nsinit.dev/one.example.com done in namespace `+namespace+` \(server dry run\)`)
	c.WaitCurrent(t, namespace, "one.example.com")
	framework.Eventually(t, "its holder may act", func(context.Context) error {
		if _, stderr, code := c.Plugin(t, "done", namespace, "one.example.com", "--as=e2e-one"); code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	c.RefusedPlugin(t, "to print the roles to grant, run kubectl nsinit rbac two.example.com --user=USER", "skip", namespace, "two.example.com", "--as=e2e-one")
	matches(t, c.MustPlugin(t, "skip", namespace, "two.example.com"), `initializer.nsinit.dev/two.example.com skipped in namespace `+namespace)
	c.WaitReady(t, namespace)
	if out := c.MustPlugin(t, "status", namespace); !strings.Contains(out, "Namespace "+namespace+": Active") || !regexp.MustCompile(`two.example.com +Skipped`).MatchString(out) {
		t.Errorf("status:\n%s", out)
	}
	matches(t, c.MustPlugin(t, "skip", namespace, "two.example.com"), `initializer.nsinit.dev/two.example.com already skipped in namespace `+namespace)
	c.RefusedPlugin(t, "waits for no initializer", "done", namespace, "two.example.com")

	c.DeleteNamespace(t, namespace)
	c.WaitTerminating(t, namespace)
	c.RefusedPlugin(t, `does not wait for participant "two.example.com", but for one.example.com`, "finalize", namespace, "two.example.com")
	matches(t, c.MustPlugin(t, "done", namespace, "one.example.com"), `initializer.nsinit.dev/one.example.com already done in namespace `+namespace)
	c.RefusedPlugin(t, "every initializer's turn is over", "skip", namespace, "one.example.com")
	matches(t, c.MustPlugin(t, "finalize", namespace, "one.example.com", "--as=e2e-one"), `initializer.nsinit.dev/one.example.com released in namespace `+namespace)
	matches(t, c.MustPlugin(t, "wait", namespace, "--for=gone"), "namespace/"+namespace+" is gone")
	matches(t, c.MustPlugin(t, "finalize", namespace, "one.example.com"), `nothing waits for one.example.com: namespace "`+namespace+`" does not exist`)
}

// TestPluginRBAC: the printed permissions suffice for an initializer, and grant no more.
func TestPluginRBAC(t *testing.T) {
	c := framework.Share(t)
	c.RefusedPlugin(t, "give one of --service-account=NAMESPACE:NAME and --user=NAME", "rbac", "one.example.com")
	c.RefusedPlugin(t, "--service-account=default: give NAMESPACE:NAME", "rbac", "one.example.com", "--service-account=default")
	c.RefusedPlugin(t, `initializer "one"`, "rbac", "one", "--user=jane")
	c.ApplyInput(t, c.MustPlugin(t, "rbac", "one.example.com", "--service-account=default:e2e-one", "--finalizer", "--configuration=e2e-one"))
	const user = "system:serviceaccount:default:e2e-one"
	config := c.As(user, "system:serviceaccounts")
	for question, want := range map[string]string{
		"initialize initializers.nsinit.dev/one.example.com":           "yes",
		"finalize initializers.nsinit.dev/one.example.com":             "yes",
		"initialize initializers.nsinit.dev/two.example.com":           "no",
		"initialize namespaces":                                        "yes",
		"open namespaces":                                              "no",
		"create namespaceinitializerconfigurations.nsinit.dev":         "yes",
		"update namespaceinitializerconfigurations.nsinit.dev/e2e-one": "yes",
		"update namespaceinitializerconfigurations.nsinit.dev/other":   "no",
		"create configmaps":                                            "no",
	} {
		framework.Eventually(t, question, func(context.Context) error {
			verb, resource, _ := strings.Cut(question, " ")
			out, _ := c.Kubectl("auth", "can-i", verb, resource, "--all-namespaces", "--as="+config.Impersonate.UserName)
			if strings.TrimSpace(out) != want {
				return fmt.Errorf("the answer is %q, want %q", out, want)
			}
			return nil
		})
	}
}

// TestPluginStatusOfTenant: a user who may not read NamespaceLifecycles sees the conditions of the namespace.
func TestPluginStatusOfTenant(t *testing.T) {
	c := framework.Share(t)
	c.Configure(t, framework.Initializers("one.example.com")...)
	c.User(t, "e2e-getter", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, "one.example.com")
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, "True/InitializersPending")
	if out := c.MustPlugin(t, "status", namespace, "--as=e2e-getter"); !strings.Contains(out, "Namespace "+namespace+": "+string(v1alpha1.LifecycleInitializing)) || !strings.Contains(out, `Initializing=True, Ready=False: waiting for initializer "one.example.com"`) {
		t.Errorf("status:\n%s", out)
	}
	c.RefusedPlugin(t, `User "e2e-getter" cannot list resource "namespacelifecycles"`, "status", "--as=e2e-getter")
	c.RefusedPlugin(t, "kubectl nsinit rbac --view --user=USER", "status", namespace, "--as=e2e-getter", "-o", "yaml")
	c.ApplyInput(t, c.MustPlugin(t, "rbac", "--view", "--user=e2e-getter"))
	framework.Eventually(t, "the permission that rbac prints suffices", func(context.Context) error {
		if stdout, stderr, code := c.Plugin(t, "status", "--as=e2e-getter", "-o", "name"); code != 0 || !strings.Contains(stdout, "namespacelifecycle.nsinit.dev/"+namespace+"\n") {
			return errors.New(stdout + stderr)
		}
		return nil
	})
}

// TestPluginVersion: every user can read the version of the server.
func TestPluginVersion(t *testing.T) {
	c := framework.Share(t)
	out := c.MustPlugin(t, "version", "--as=e2e-none")
	matches(t, out, `Client Version: (v[0-9].*)`, `Server Version: (v[0-9].*)`)
	if client, server, _ := strings.Cut(out, "\n"); strings.TrimPrefix(client, "Client") != strings.TrimPrefix(strings.TrimSpace(server), "Server") {
		t.Errorf("printed:\n%s", out)
	}
	matches(t, c.MustPlugin(t, "version", "--client", `--output=jsonpath={.serverVersion}{.clientVersion.gitVersion}{"\n"}`), `v[0-9].*`)
}

// TestPluginCheck: each problem of an installation is found, with a remedy.
func TestPluginCheck(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	type result struct{ Check, State, Message, Remedy string }
	check := func() ([]result, int) {
		t.Helper()
		stdout, stderr, code := c.Plugin(t, "check", "--output=json")
		var found struct{ Items []result }
		if err := json.Unmarshal([]byte(stdout), &found); err != nil {
			t.Fatalf("%v\n%s%s", err, stdout, stderr)
		}
		return found.Items, code
	}
	finds := func(check string, results []result, state, says string) error {
		for _, r := range results {
			if r.Check == check && r.State == state && strings.Contains(r.Message, says) && (r.Remedy != "" || state == "OK") {
				return nil
			}
		}
		return fmt.Errorf("%s is not %s: %q in %+v", check, state, says, results)
	}
	waits := func(check_, state, says string, want int) {
		t.Helper()
		framework.Eventually(t, check_+" is found to be "+state, func(context.Context) error {
			results, code := check()
			if code != want {
				return fmt.Errorf("the exit code is %d: %+v", code, results)
			}
			return finds(check_, results, state, says)
		})
	}

	// Its certificate is not in a Secret here, which is a warning.
	waits("Certificate", "Warning", "stored elsewhere", 2)
	results, _ := check()
	const delivered = "objects match this version of the plugin"
	for check, says := range map[string]string{"Kubernetes": "v1.", "APIService": "available", "CA": "valid until", "Lifecycles": "are served", "Objects": "can be listed", "Controllers": "holds Lease",
		"Exemptions": "nsinit-exemptions", "Storage": "nsinit-storage", "StorageSpace": "accepts new objects", "Policies": delivered, "InForce": "2 objects match", "Gate": "a new namespace is closed"} {
		if err := finds(check, results, "OK", says); err != nil {
			t.Error(err)
		}
	}
	// The webhook is not installed here.
	if err := finds("EarlyWrites", results, "Warning", "MutatingWebhookConfiguration nsinit-early-writes is missing"); err != nil {
		t.Error(err)
	}
	if text, _, _ := c.Plugin(t, "check"); !strings.Contains(text, "CHECK") || !strings.Contains(text, "remedy: check the certificate") {
		t.Errorf("printed:\n%s", text)
	}

	// A policy is weakened, and another one is deleted.
	policies := filepath.Join(c.Dir, "policies") // as they were applied
	again := func() {
		if out, err := c.Kubectl("apply", "--server-side", "--force-conflicts", "-k", policies); err != nil {
			t.Error(err, out)
		}
	}
	t.Cleanup(again)
	if out, err := c.Kubectl("patch", "validatingadmissionpolicy", "nsinit-gate", "--type=merge", "--patch", `{"spec":{"failurePolicy":"Ignore"}}`); err != nil {
		t.Fatal(err, out)
	}
	waits("Policies", "Problem", "ValidatingAdmissionPolicy nsinit-gate differs from that of the plugin", 3)
	again()
	waits("Policies", "OK", delivered, 2)
	if out, err := c.Kubectl("delete", "validatingadmissionpolicy", gateOfNamesakes); err != nil {
		t.Fatal(err, out)
	}
	waits("Policies", "Problem", "ValidatingAdmissionPolicy "+gateOfNamesakes+" is missing", 3)
	again()
	waits("Policies", "OK", delivered, 2)

	c.Dev(t, "stop", "nsinit-controller-manager")
	t.Cleanup(func() { c.Dev(t, "start", "nsinit-controller-manager") })
	// A test before this one can have killed the holder: the Lease then keeps its name, also when this instance is stopped.
	waits("Controllers", "Problem", "nsinit-controller-manager does not run", 3)
	c.Dev(t, "start", "nsinit-controller-manager")
	waits("Controllers", "OK", "holds Lease", 2)

	// A user without permissions sees which checks were skipped.
	c.User(t, "e2e-none", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	if out, _, code := c.Plugin(t, "check", "--as=e2e-none"); code != 2 || !strings.Contains(out, "not checked") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// TestPluginCompletion: kubectl itself completes the plugin's commands, flags and arguments.
func TestPluginCompletion(t *testing.T) {
	c := framework.Share(t)
	c.Configure(t, framework.Initializers("one.example.com", "two.example.com")...)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, "one.example.com")
	for line, want := range map[string]string{
		"pre":                        "preview",
		"wait --for g":               "gone",
		"check --output ":            "yaml",
		"check --pr":                 "--pre",
		"create new --time":          "--timeout",
		"why " + namespace[:4]:       namespace,
		"preview " + namespace[:4]:   namespace,
		"skip " + namespace + " one": "one.example.com",
	} {
		words := strings.Split(line, " ")
		command := exec.CommandContext(t.Context(), filepath.Join(framework.BinDir(), "kubectl"), append([]string{"__complete", "nsinit"}, words...)...)
		command.Env = c.Environ()
		out, err := command.Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("kubectl nsinit %s: %v, %q is missing in:\n%s", line, err, want, out)
		}
	}
}

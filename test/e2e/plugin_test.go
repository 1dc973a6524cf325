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
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// mustPlugin runs the plugin, which has to succeed.
func (c *cluster) mustPlugin(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := c.plugin(t, args...)
	if code != 0 {
		t.Fatalf("kubectl nsinit %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// refusedPlugin runs the plugin, which has to fail, say so, and print nothing.
func (c *cluster) refusedPlugin(t *testing.T, says string, args ...string) {
	t.Helper()
	stdout, stderr, code := c.plugin(t, args...)
	if code != 1 || !strings.HasPrefix(stderr, "error: ") || !strings.Contains(stderr, says) || stdout != "" {
		t.Errorf("kubectl nsinit %s: exit code %d, want it to say %q\n%s%s", strings.Join(args, " "), code, says, stdout, stderr)
	}
}

// matches compares what was printed, line by line, with regular expressions.
func matches(t *testing.T, printed string, lines ...string) {
	t.Helper()
	pattern := "^" + strings.Join(lines, "\n") + "\n$"
	if !regexp.MustCompile(pattern).MatchString(printed) {
		t.Errorf("printed:\n%s\nwant:\n%s", printed, strings.Join(lines, "\n"))
	}
}

// TestPluginCreate: it returns when the namespace can be written to, and tells what happened.
func TestPluginCreate(t *testing.T) {
	c := connect(t)
	c.configure(t, named("one.example.com", "two.example.com")...)
	c.user(t, "e2e-creator", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"}})
	remove := func(name string) {
		t.Helper()
		if err := c.core.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}

	// Nobody acts yet.
	name := uniqueName("create")
	stdout, stderr, code := c.plugin(t, "create", name, "--timeout=2s")
	if code != 1 || stdout != "namespace/"+name+" created\n" || !strings.Contains(stderr, `is not open yet: waiting for initializer "one.example.com" (1 of 2)`) ||
		!strings.Contains(stderr, " (1s)\n") || !strings.Contains(stderr, "see: kubectl nsinit why "+name) {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	c.refusedPlugin(t, "already exists", "create", name)
	c.refusedPlugin(t, "is not open yet", "wait", name, "--timeout=1s")
	remove(name)
	c.mustPlugin(t, "wait", name, "--for=gone")
	c.refusedPlugin(t, "not found", "wait", name)

	c.actAs(t, "one.example.com", "two.example.com")
	name = uniqueName("create")
	matches(t, c.mustPlugin(t, "create", name, "--labels=team=a,stage=test"), "namespace/"+name+" created",
		`initializer.nsinit.dev/one.example.com done after [0-9.]+m?s`, `initializer.nsinit.dev/two.example.com done after [0-9.]+m?s`, "namespace/"+name+" is open after [0-9.]+m?s")
	if err := writeConfigMap(t.Context(), c.tenant(t), name); err != nil {
		t.Errorf("it is not open: %v", err)
	}
	if namespace, err := c.core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil || namespace.Labels["team"] != "a" || namespace.Labels["stage"] != "test" {
		t.Errorf("labels are %v, %v", namespace.Labels, err)
	}
	remove(name)

	// Who may only create and get is told what the namespace itself says.
	name = uniqueName("create")
	out := c.mustPlugin(t, "create", name, "--as=e2e-creator")
	if !strings.HasPrefix(out, "namespace/"+name+" created\n") || !strings.Contains(out, "namespace/"+name+" is open after ") {
		t.Errorf("printed:\n%s", out)
	}
	remove(name)

	// For programs.
	name = uniqueName("create")
	if out := c.mustPlugin(t, "create", name, "--output=jsonpath={.metadata.labels}"); strings.Contains(out, v1alpha1.LabelInitializing) || !strings.Contains(out, name) {
		t.Errorf("printed:\n%s", out)
	}
	remove(name)
	name = uniqueName("create")
	matches(t, c.mustPlugin(t, "create", name, "--dry-run=server"), "namespace/"+name+` created \(server dry run\)`)
	c.refusedPlugin(t, "not found", "wait", name)
	matches(t, c.mustPlugin(t, "create", name, "--wait=false", "-o", "name"), "namespace/"+name)
	remove(name)
}

// TestPluginCreateFails: an initialization that fails is an error, with its reason.
func TestPluginCreateFails(t *testing.T) {
	c := connect(t)
	c.configure(t, named("one.example.com")...)
	name := uniqueName("create")
	go func() {
		records := c.nsinit.NsinitV1alpha1().NamespaceLifecycles()
		for ; t.Context().Err() == nil; time.Sleep(50 * time.Millisecond) {
			record, err := records.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || record.Status.CurrentInitializer == "" {
				continue
			}
			// Held, so that the failure can be seen.
			_, _ = c.kubectl("patch", "namespace", name, "--type=merge", "--patch", `{"metadata":{"finalizers":["`+holder+`"]}}`)
			record.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no such cost centre"}
			if _, err := records.Initialize(t.Context(), name, record, metav1.UpdateOptions{}); err == nil {
				return
			}
		}
	}()
	stdout, stderr, code := c.plugin(t, "create", name)
	if code != 1 || !strings.Contains(stderr, `the initialization of namespace "`+name+`" failed`) || !strings.Contains(stderr, "no such cost centre") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	c.release(t, name)
	c.waitNoNamespace(t, name)
}

// TestPluginActs: done, skip and finalize act on the one whose turn it is, by its own right.
func TestPluginActs(t *testing.T) {
	c := connect(t)
	c.configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true}, v1alpha1.RegisteredInitializer{Name: "two.example.com"})
	c.user(t, "e2e-one", rbacv1.PolicyRule{APIGroups: []string{"nsinit.dev"}, Resources: []string{"initializers"}, ResourceNames: []string{"one.example.com"}, Verbs: []string{"initialize", "finalize"}},
		rbacv1.PolicyRule{APIGroups: []string{"nsinit.dev"}, Resources: []string{"namespacelifecycles", "namespacelifecycles/initialize", "namespacelifecycles/finalize"}, Verbs: []string{"get", "update"}}, initialize())
	namespace := c.createNamespace(t, c.admin).Name
	c.waitCurrent(t, namespace, "one.example.com")

	c.refusedPlugin(t, `it is not the turn of initializer "two.example.com"`, "done", namespace, "two.example.com")
	c.refusedPlugin(t, `does not wait for initializer "none.example.com", but for one.example.com, two.example.com`, "skip", namespace, "none.example.com")
	c.refusedPlugin(t, "is not being deleted", "finalize", namespace, "one.example.com")
	c.refusedPlugin(t, `--dry-run=client: give "none" or "server"`, "done", namespace, "one.example.com", "--dry-run=client")
	c.refusedPlugin(t, "not found", "done", "no-such-namespace", "one.example.com")
	if out := c.mustPlugin(t, "status"); !strings.Contains(out, namespace) || !strings.Contains(out, "one.example.com") {
		t.Errorf("status:\n%s", out)
	}
	matches(t, c.mustPlugin(t, "done", namespace, "one.example.com", "--dry-run=server"), `initializer.nsinit.dev/one.example.com done in namespace `+namespace+` \(server dry run\)`)
	c.waitCurrent(t, namespace, "one.example.com")
	eventually(t, "its holder may act", func(context.Context) error {
		if _, stderr, code := c.plugin(t, "done", namespace, "one.example.com", "--as=e2e-one"); code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	c.refusedPlugin(t, "to print the roles to grant, run kubectl nsinit rbac two.example.com --user=USER", "skip", namespace, "two.example.com", "--as=e2e-one")
	matches(t, c.mustPlugin(t, "skip", namespace, "two.example.com"), `initializer.nsinit.dev/two.example.com skipped in namespace `+namespace)
	c.waitReady(t, namespace)
	if out := c.mustPlugin(t, "status", namespace); !strings.Contains(out, "Namespace "+namespace+": Active") || !regexp.MustCompile(`two.example.com +Skipped`).MatchString(out) {
		t.Errorf("status:\n%s", out)
	}
	c.refusedPlugin(t, "waits for no initializer", "skip", namespace, "two.example.com")

	if err := c.core.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitTerminating(t, namespace)
	c.refusedPlugin(t, `does not wait for participant "two.example.com", but for one.example.com`, "finalize", namespace, "two.example.com")
	c.refusedPlugin(t, "every initializer's turn is over", "done", namespace, "one.example.com")
	matches(t, c.mustPlugin(t, "finalize", namespace, "one.example.com", "--as=e2e-one"), `initializer.nsinit.dev/one.example.com released in namespace `+namespace)
	matches(t, c.mustPlugin(t, "wait", namespace, "--for=gone"), "namespace/"+namespace+" is gone")
}

// TestPluginRBAC: what it prints is what an initializer needs, no more.
func TestPluginRBAC(t *testing.T) {
	c := connect(t)
	c.refusedPlugin(t, "give one of --service-account=NAMESPACE:NAME and --user=NAME", "rbac", "one.example.com")
	c.refusedPlugin(t, "--service-account=default: give NAMESPACE:NAME", "rbac", "one.example.com", "--service-account=default")
	c.refusedPlugin(t, `initializer "one"`, "rbac", "one", "--user=jane")
	c.applyInput(t, c.mustPlugin(t, "rbac", "one.example.com", "--service-account=default:e2e-one", "--finalizer", "--configuration=e2e-one"))
	const user = "system:serviceaccount:default:e2e-one"
	config := c.as(user, "system:serviceaccounts")
	for question, want := range map[string]string{
		"initialize initializers.nsinit.dev/one.example.com":                 "yes",
		"finalize initializers.nsinit.dev/one.example.com":                   "yes",
		"initialize initializers.nsinit.dev/two.example.com":                 "no",
		"initialize namespaces":                                              "yes",
		"open namespaces":                                                    "no",
		"create namespaceinitializerconfigurations.nsinit.dev":               "yes",
		"update namespaceinitializerconfigurations.nsinit.dev/e2e-one":       "yes",
		"update namespaceinitializerconfigurations.nsinit.dev/somebody-else": "no",
		"create configmaps":                                                  "no",
	} {
		eventually(t, question, func(context.Context) error {
			verb, resource, _ := strings.Cut(question, " ")
			out, _ := c.kubectl("auth", "can-i", verb, resource, "--all-namespaces", "--as="+config.Impersonate.UserName)
			if strings.TrimSpace(out) != want {
				return fmt.Errorf("the answer is %q, want %q", out, want)
			}
			return nil
		})
	}
}

// TestPluginStatusOfTenant: who may not read records is shown what the namespace says.
func TestPluginStatusOfTenant(t *testing.T) {
	c := connect(t)
	c.configure(t, named("one.example.com")...)
	c.user(t, "e2e-getter", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	namespace := c.createNamespace(t, c.admin).Name
	c.waitCurrent(t, namespace, "one.example.com")
	c.waitCondition(t, namespace, v1alpha1.ConditionInitializing, "True/InitializersPending")
	if out := c.mustPlugin(t, "status", namespace, "--as=e2e-getter"); !strings.Contains(out, "Namespace "+namespace+": "+string(v1alpha1.LifecycleInitializing)) || !strings.Contains(out, `Initializing=True: waiting for initializer "one.example.com"`) {
		t.Errorf("status:\n%s", out)
	}
	c.refusedPlugin(t, "forbidden", "status", "--as=e2e-getter")
}

// TestPluginCheck: what is wrong with an installation is found, with what helps.
func TestPluginCheck(t *testing.T) {
	c := connect(t)
	type result struct{ Check, State, Message, Remedy string }
	check := func() ([]result, int) {
		t.Helper()
		stdout, stderr, code := c.plugin(t, "check", "--output=json")
		var results []result
		if err := json.Unmarshal([]byte(stdout), &results); err != nil {
			t.Fatalf("%v\n%s%s", err, stdout, stderr)
		}
		return results, code
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
		eventually(t, check_+" is found to be "+state, func(context.Context) error {
			results, code := check()
			if code != want {
				return fmt.Errorf("the exit code is %d: %+v", code, results)
			}
			return finds(check_, results, state, says)
		})
	}

	// Its certificate is not in a Secret here, which is a warning.
	waits("Certificate", "Warning", "somewhere else", 2)
	results, _ := check()
	delivered := "as delivered (14)"
	if !c.stampsByPolicy(t) {
		delivered = "as delivered (10)"
	}
	for check, says := range map[string]string{"Kubernetes": "v1.", "APIService": "available", "CA": "valid until", "Records": "tells", "Objects": "can be listed", "Controllers": "acts",
		"Exemptions": "nsinit-exemptions", "Storage": "nsinit-storage", "StorageSpace": "takes new objects", "Policies": delivered, "Gate": "a new namespace is closed"} {
		if err := finds(check, results, "OK", says); err != nil {
			t.Error(err)
		}
	}
	// The webhook is not installed here.
	if err := finds("EarlyWrites", results, "Warning", "MutatingWebhookConfiguration nsinit-early-writes is missing"); err != nil {
		t.Error(err)
	}
	if text, _, _ := c.plugin(t, "check"); !strings.Contains(text, "CHECK") || !strings.Contains(text, "helps: look at the certificate") {
		t.Errorf("printed:\n%s", text)
	}

	// Somebody weakens a policy, and takes another one's binding away.
	policies := filepath.Join(c.dir, "policies") // as they were applied
	again := func() {
		if out, err := c.kubectl("apply", "--server-side", "--force-conflicts", "-k", policies); err != nil {
			t.Error(err, out)
		}
	}
	t.Cleanup(again)
	if out, err := c.kubectl("patch", "validatingadmissionpolicy", "nsinit-gate", "--type=merge", "--patch", `{"spec":{"failurePolicy":"Ignore"}}`); err != nil {
		t.Fatal(err, out)
	}
	waits("Policies", "Problem", "ValidatingAdmissionPolicy nsinit-gate was changed", 3)
	again()
	waits("Policies", "OK", delivered, 2)
	if out, err := c.kubectl("delete", "validatingadmissionpolicy", gateOfNamesakes); err != nil {
		t.Fatal(err, out)
	}
	waits("Policies", "Problem", "ValidatingAdmissionPolicy "+gateOfNamesakes+" is missing", 3)
	again()
	waits("Policies", "OK", delivered, 2)

	c.dev(t, "stop", "nsinit-controller-manager")
	t.Cleanup(func() { c.dev(t, "start", "nsinit-controller-manager") })
	waits("Controllers", "Problem", "nobody holds the Lease", 3)
	c.dev(t, "start", "nsinit-controller-manager")
	waits("Controllers", "OK", "acts", 2)

	// Who may nothing is told what could not be looked at.
	c.user(t, "e2e-nobody", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	if out, _, code := c.plugin(t, "check", "--as=e2e-nobody"); code != 2 || !strings.Contains(out, "not checked") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// TestPluginCompletion: kubectl itself completes the plugin's commands, flags and arguments.
func TestPluginCompletion(t *testing.T) {
	c := connect(t)
	c.configure(t, named("one.example.com", "two.example.com")...)
	namespace := c.createNamespace(t, c.admin).Name
	c.waitCurrent(t, namespace, "one.example.com")
	for line, want := range map[string]string{
		"pre":                        "preview",
		"wait --for g":               "gone",
		"check --output ":            "yaml",
		"create new --time":          "--timeout",
		"why " + namespace[:4]:       namespace,
		"preview " + namespace[:4]:   namespace,
		"skip " + namespace + " one": "one.example.com",
	} {
		words := strings.Split(line, " ")
		command := exec.CommandContext(t.Context(), filepath.Join(c.root, "_output", "bin", "kubectl"), append([]string{"__complete", "nsinit"}, words...)...)
		command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig(), "HOME="+c.dir, "PATH="+filepath.Join(c.root, "_output", "bin")+":"+os.Getenv("PATH"))
		out, err := command.Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("kubectl nsinit %s: %v, %q is missing in:\n%s", line, err, want, out)
		}
	}
}

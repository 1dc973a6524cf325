//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// servedTest is a configuration with an initializer on the SDK, and one that reports by kubectl.
type servedTest struct {
	*framework.Cluster
	configuration string
}

const shellInitializer = "shell.example.com"

// TestServed: each initializer shows whether a program serves it, and activation: WhenServed applies from the first report on. A remedy
// skips an initializer whose program does not report any more and has no pods.
func TestServed(t *testing.T) {
	c := framework.Connect(t)
	c.GrantPopulation(t, framework.ConfigMapRule())
	c.Populate(t, "served", framework.ConfigMapManifest("inside", "x"))
	s := servedTest{c, framework.UniqueName("served")}
	s.apply(t)
	s.waitServed(t, "0/2")

	before := c.CreateNamespace(t, c.Admin).Name
	if lifecycle := c.WaitCurrent(t, before, framework.PopulationInitializer); len(lifecycle.Spec.Plan) != 1 {
		t.Errorf("the plan before the first report is %s", framework.JSON(t, lifecycle.Spec.Plan))
	}
	c.WaitWhy(t, before, diagnosis.InitializerNotServed, diagnosis.Waiting)
	program := c.StartPopulation(t)
	c.WaitReady(t, before)
	s.waitServed(t, "1/2")
	if entry := s.entry(t, framework.PopulationInitializer); entry.Reporter != framework.PopulationUser {
		t.Errorf("the entry is %s", framework.JSON(t, entry))
	}

	s.reportByShell(t)
	s.waitServed(t, "2/2")
	after := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, after, shellInitializer)
	if finding := c.WaitWhy(t, after, diagnosis.InitializerSlow, diagnosis.Stuck); !strings.Contains(finding.Message, `the program of initializer "shell.example.com" runs: user "`) {
		t.Errorf("it says %s", finding.Message)
	}
	if found := fixes(t, c, after); len(found) > 0 {
		t.Errorf("it has reported, and it proposes %s", framework.JSON(t, found))
	}
	c.RemoveFirst(t, after)
	c.WaitReady(t, after)
	s.reportAsOthers(t)

	if err := program.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	s.waitServed(t, "0/2")
	t.Logf("not served %s after SIGKILL", time.Since(killed).Round(time.Second))
	waiting := c.CreateNamespace(t, c.Admin).Name
	if finding := c.WaitWhy(t, waiting, diagnosis.InitializerNotServed, diagnosis.Stuck); !strings.Contains(finding.Message, `no program serves initializer "policy-population.nsinit.dev": user "system:serviceaccount:nsinit-system:policy-population" last reported `) {
		t.Errorf("it says %s", finding.Message)
	}
	if out, _, _ := c.Plugin(t, "check"); !strings.Contains(out, `initializer "policy-population.nsinit.dev" of configuration "`+s.configuration+`" is not served: user `) {
		t.Errorf("check says\n%s", out)
	}
	applyFix(t, c, waiting, diagnosis.InitializerPending)
	// The shell was served once, so the namespace waits for it.
	if lifecycle := c.WaitCurrent(t, waiting, shellInitializer); !slices.Contains(lifecycle.Spec.Skipped, framework.PopulationInitializer) {
		t.Errorf("the skip is not recorded: %s", framework.JSON(t, lifecycle))
	}
	c.StartPopulation(t)
	s.waitServed(t, "1/2")
}

// apply registers the initializers by kubectl until the test ends, and checks the warnings.
func (s servedTest) apply(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if out, err := s.Kubectl("delete", "nsic", s.configuration, "--wait=false"); err != nil {
			t.Error(out, err)
		}
	})
	out, err := s.Shell(t, `kubectl apply -f - <<EOF
apiVersion: nsinit.dev/v1alpha1
kind: NamespaceInitializerConfiguration
metadata: {name: CONFIGURATION}
initializers:
- {name: policy-population.nsinit.dev}
- {name: shell.example.com, activation: WhenServed}
EOF`, map[string]string{"CONFIGURATION": s.configuration})
	if err != nil {
		t.Fatal(out, err)
	}
	for _, want := range []string{
		`Warning: initializers[0] "policy-population.nsinit.dev" is not served yet: new namespaces wait for it without limit, because it has no failurePolicy; if its program runs, it reports within 20s, otherwise start it, or set activation: WhenServed`,
		`Warning: initializers[1] "shell.example.com" has no effect yet: no program has reported that it serves it (activation: WhenServed); start the program`,
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("kubectl apply says\n%s\nwithout %s", out, want)
		}
	}
}

// waitServed waits until the column SERVED has a value.
func (s servedTest) waitServed(t *testing.T, want string) {
	t.Helper()
	framework.Eventually(t, want+" are served", func(context.Context) error {
		out, err := s.Kubectl("get", "nsic", s.configuration)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		column := slices.Index(strings.Fields(lines[0]), "SERVED")
		if column < 0 || len(lines) != 2 || strings.Fields(lines[1])[column] != want {
			return fmt.Errorf("kubectl get nsic says\n%s", out)
		}
		return nil
	})
}

func (s servedTest) entry(t *testing.T, name string) *v1alpha1.RegisteredInitializerStatus {
	t.Helper()
	c, err := s.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(t.Context(), s.configuration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	entry := helper.RegistrationStatus(c, name)
	if entry == nil {
		t.Fatalf("%s has no entry in %s", name, framework.JSON(t, c.Status))
	}
	return entry
}

// reportByShell runs the documented commands of an initializer without the SDK: kubectl, and curl as in a pod.
func (s servedTest) reportByShell(t *testing.T) {
	t.Helper()
	_, pod := s.ServiceAccount(t, shellRights()...)
	words := map[string]string{
		"CONFIGURATION": s.configuration, "log-index.example.com": shellInitializer, "https://kubernetes.default.svc": s.Admin.Host,
		"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt": filepath.Join(s.Dir, "pki", "ca.crt"), "$(cat /var/run/secrets/kubernetes.io/serviceaccount/token)": pod.BearerToken,
	}
	var last *metav1.MicroTime
	for _, commands := range s.Documented(t, "protocol.md", "Report that the initializer is served") {
		out, err := s.Shell(t, commands, words)
		if err != nil {
			t.Fatal(out, err)
		}
		entry := s.entry(t, shellInitializer)
		if !meta.IsStatusConditionTrue(entry.Conditions, v1alpha1.ConditionServed) || last != nil && !last.Before(entry.ReportTime) {
			t.Errorf("%s\n%s, and the entry is %s", commands, out, framework.JSON(t, entry))
		}
		last = entry.ReportTime
	}
	if entry := s.entry(t, framework.PopulationInitializer); entry.ReportTime == nil {
		t.Error("the report of the other initializer is lost")
	}
}

// shellRights are what kubectl nsinit rbac grants for reports of shellInitializer.
func shellRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.ResourceInitializers}, ResourceNames: []string{shellInitializer}, Verbs: []string{v1alpha1.VerbInitialize}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"namespaceinitializerconfigurations/status"}, Verbs: []string{"patch"}},
	}
}

// reportAsOthers: a user with the rights that kubectl nsinit rbac prints reports for its own name only. A JSON merge patch,
// which replaces the list, keeps the entries of others.
func (s servedTest) reportAsOthers(t *testing.T) {
	t.Helper()
	config := s.User(t, framework.UniqueName("shell"), shellRights()...)
	client := versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceInitializerConfigurations()
	report := func(name string) error {
		patch := fmt.Appendf(nil, `{"status":{"initializers":[{"name":%q,"reportTime":%q}]}}`, name, time.Now().UTC().Format(metav1.RFC3339Micro))
		_, err := client.Patch(t.Context(), s.configuration, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}
	framework.Eventually(t, "the report", func(context.Context) error { return report(shellInitializer) })
	if entry := s.entry(t, framework.PopulationInitializer); entry.ReportTime == nil {
		t.Error("the report of the other initializer is lost")
	}
	if err := report(framework.PopulationInitializer); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `cannot report that "policy-population.nsinit.dev" is served`) {
		t.Errorf("a report for another initializer: %v", err)
	}
}

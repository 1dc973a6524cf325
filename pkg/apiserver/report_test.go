/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

type registration = *v1alpha1.NamespaceInitializerConfiguration

// asReporter lets a user write the status of configurations, and act under some names.
func asReporter(core *testserver.CoreAPI, user string, names ...string) {
	rules := []testserver.Rule{{Verb: "*", Group: "nsinit.dev", Resource: "namespaceinitializerconfigurations/status", Name: "*"}}
	for _, name := range names {
		rules = append(rules, testserver.Rule{Verb: "initialize", Group: "nsinit.dev", Resource: "initializers", Name: name})
	}
	core.Allow(user, rules...)
}

// report changes the entries of some initializers as their programs do, with a clock that is ahead.
func report(names ...string) func(registration) {
	return func(c registration) {
		for _, name := range names {
			entryOf(c, name).ReportTime = new(metav1.NewMicroTime(time.Now().Add(time.Hour)))
		}
	}
}

// entryOf returns the entry of an initializer, and adds it if it is missing.
func entryOf(c registration, name string) *v1alpha1.RegisteredInitializerStatus {
	if entry := helper.RegistrationStatus(c, name); entry != nil {
		return entry
	}
	c.Status.Initializers = append(c.Status.Initializers, v1alpha1.RegisteredInitializerStatus{Name: name})
	return &c.Status.Initializers[len(c.Status.Initializers)-1]
}

// TestReportAuthority shows who may write what of the status of a configuration, by PUT, by each kind of
// patch and by server-side apply.
func TestReportAuthority(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	asReporter(server.Core, "hook-a", "a.example.com")
	asReporter(server.Core, "hook-ab", "a.example.com", "b.example.com")
	asReporter(server.Core, "writer")
	asReporter(server.Core, "opener")
	server.Core.Allow("opener", append(server.Core.Rules("opener"), testserver.Rule{Verb: "open", Group: "", Resource: "namespaces", Name: "*"})...)
	server.Core.Allow("no-writer", testserver.Rule{Verb: "initialize", Group: "nsinit.dev", Resource: "initializers", Name: "a.example.com"})
	served := func(name string, status metav1.ConditionStatus) func(registration) {
		return func(c registration) {
			meta.SetStatusCondition(&entryOf(c, name).Conditions, metav1.Condition{
				Type: v1alpha1.ConditionServed, Status: status, Reason: v1alpha1.ReasonReportOverdue, LastTransitionTime: metav1.Now()})
		}
	}
	tests := map[string]struct {
		user    string
		change  func(registration)
		allowed bool
	}{
		"a reports":                       {"hook-a", report("a.example.com"), true},
		"a reports for b":                 {"hook-a", report("b.example.com"), false},
		"a reports for itself and b":      {"hook-a", report("a.example.com", "b.example.com"), false},
		"one that is both reports both":   {"hook-ab", report("a.example.com", "b.example.com"), true},
		"a writer without a name reports": {"writer", report("a.example.com"), false},
		"a name without write access":     {"no-writer", report("a.example.com"), false},
		"the privileged reports for a":    {"opener", report("a.example.com"), false},
		"a says that it is served":        {"hook-a", served("a.example.com", metav1.ConditionTrue), false},
		"a says that b is not served":     {"hook-a", served("b.example.com", metav1.ConditionFalse), false},
		"a reports, and says that b is not served": {"hook-a", func(c registration) {
			report("a.example.com")(c)
			served("b.example.com", metav1.ConditionFalse)(c)
		}, false},
		"a changes the count":          {"hook-a", func(c registration) { c.Status.PendingNamespaces = 7 }, false},
		"a changes the conditions":     {"hook-a", func(c registration) { c.Status.Conditions = []metav1.Condition{{Type: "Drained", Status: "True"}} }, false},
		"the privileged does":          {"opener", func(c registration) { c.Status.Conditions = []metav1.Condition{{Type: "Drained", Status: "True"}} }, true},
		"the privileged changes entry": {"opener", served("a.example.com", metav1.ConditionFalse), true},
		"nothing changes":              {"writer", func(registration) {}, true},
	}
	verbs := append(testserver.Verbs("status"), string(types.ApplyPatchType))
	for name, test := range tests {
		for _, verb := range verbs {
			t.Run(fmt.Sprintf("%s by %s", name, verb), func(t *testing.T) {
				old := server.MustConfigure(t, testserver.Configuration(uniqueName(), "a.example.com", "b.example.com"))
				sent := old.DeepCopy()
				test.change(sent)
				err := testserver.Write(server.Client(t, test.user).NsinitV1alpha1().RESTClient(), verb, "namespaceinitializerconfigurations", "status", old, sent)
				switch {
				case test.allowed && err != nil:
					t.Errorf("refused: %v", err)
				case !test.allowed && !apierrors.IsForbidden(err):
					t.Errorf("want a refusal, got %v", err)
				}
			})
		}
	}
}

// TestReport: the server decides the time, the reporter and the condition of a report, and a report
// changes nothing else.
func TestReport(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	asReporter(server.Core, "hook-a", "a.example.com")
	for _, verb := range append(testserver.Verbs("status"), string(types.ApplyPatchType)) {
		t.Run(verb, func(t *testing.T) {
			old := server.MustConfigure(t, testserver.Configuration(uniqueName(), "a.example.com", "b.example.com"))
			sent := old.DeepCopy()
			report("a.example.com")(sent)
			entry := entryOf(sent, "a.example.com")
			entry.Reporter = "another user"
			entry.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: metav1.ConditionFalse}, {Type: "Other", Status: metav1.ConditionTrue}}
			if err := testserver.Write(server.Client(t, "hook-a").NsinitV1alpha1().RESTClient(), verb, "namespaceinitializerconfigurations", "status", old, sent); err != nil {
				t.Fatal(err)
			}
			got, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().Get(t.Context(), old.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Generation != old.Generation || len(got.Status.Initializers) != 1 {
				t.Errorf("generation %d, entries %v", got.Generation, got.Status.Initializers)
			}
			entry = entryOf(got, "a.example.com")
			if entry.ReportTime == nil || time.Since(entry.ReportTime.Time).Abs() > time.Minute || entry.Reporter != "hook-a" {
				t.Errorf("reported at %s by %q", entry.ReportTime, entry.Reporter)
			}
			if len(entry.Conditions) != 1 || entry.Conditions[0].Status != metav1.ConditionTrue || entry.Conditions[0].Reason != v1alpha1.ReasonReported {
				t.Errorf("the conditions are %v", entry.Conditions)
			}
		})
	}
}

// TestReportsTogether: programs that report at the same time, each with its own entry only, lose no
// report. The patch replaces the list.
func TestReportsTogether(t *testing.T) {
	t.Parallel()
	const reporters = 8
	server := testserver.Start(t)
	var names []string
	for i := range reporters {
		names = append(names, fmt.Sprintf("%c.example.com", 'a'+i))
		asReporter(server.Core, names[i], names[i])
	}
	stored := server.MustConfigure(t, testserver.Configuration("c", names...))
	var group sync.WaitGroup
	for _, name := range names {
		configurations := server.Client(t, name).NsinitV1alpha1().NamespaceInitializerConfigurations()
		group.Go(func() {
			for range 5 {
				patch := fmt.Appendf(nil, `{"status":{"initializers":[{"name":%q,"reportTime":%q}]}}`, name, time.Now().UTC().Format(metav1.RFC3339Micro))
				// On a busy machine, a request can time out.
				if err := retry.OnError(retry.DefaultRetry, apierrors.IsTimeout, func() error {
					_, err := configurations.Patch(t.Context(), "c", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	got, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if entry := helper.RegistrationStatus(got, name); entry == nil || entry.Reporter != name {
			t.Errorf("the entry of %s is %v", name, entry)
		}
	}
	if got.Generation != stored.Generation {
		t.Errorf("the generation is %d", got.Generation)
	}
}

// TestReportsFollowRegistrations: an initializer that is removed and registered again was never reported.
func TestReportsFollowRegistrations(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	configurations := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations()
	stored := server.MustConfigure(t, testserver.Configuration("c", "a.example.com", "b.example.com"))
	report("b.example.com", "a.example.com")(stored)
	stored, err := configurations.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
	check := func(want ...string) {
		t.Helper()
		var got []string
		if err == nil {
			for _, entry := range stored.Status.Initializers {
				got = append(got, entry.Name)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("entries of %v, want %v (%v)", got, want, err)
		}
	}
	check("a.example.com", "b.example.com")
	all := stored.DeepCopy().Initializers
	stored.Initializers = all[1:]
	stored, err = configurations.Update(t.Context(), stored, metav1.UpdateOptions{})
	check("b.example.com")
	stored.Initializers = all
	stored, err = configurations.Update(t.Context(), stored, metav1.UpdateOptions{})
	check("b.example.com")
	stored.Status.Initializers = nil
	stored, err = configurations.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
	check("b.example.com")
	if stored.Status.Initializers[0].Reporter != "admin" {
		t.Errorf("the reporter is %q", stored.Status.Initializers[0].Reporter)
	}
}

// TestReportRefused: the refusal names the entry, the missing permission and the command that prints it.
func TestReportRefused(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	asReporter(server.Core, "hook")
	stored := server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	report("a.example.com")(stored)
	_, err := server.Client(t, "hook").NsinitV1alpha1().NamespaceInitializerConfigurations().UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
	want := `status.initializers: cannot report that "a.example.com" is served: user "hook" needs verb "initialize" on initializers.nsinit.dev "a.example.com", granted cluster-wide`
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !strings.Contains(status.Error(), want) || !strings.Contains(status.Error(), "kubectl nsinit rbac a.example.com --user=USER") {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestLongPatches: the time to merge a strategic merge patch grows with the square of its length, so a long one is refused
// before it is merged. Names outside the plan are refused, whatever the type of the patch: managedFields do not keep them.
func TestLongPatches(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	server.MustLifecycle(t, "long")
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	patch := func(kind types.PatchType, count int) error {
		entries := []any{map[string]any{"name": "a.example.com", "message": "reported"}}
		for i := range count {
			entries = append(entries, map[string]any{"name": fmt.Sprintf("unknown-%d.example.com", i), "message": "x"})
		}
		_, err := client.Patch(t.Context(), "long", kind, testserver.MustJSON(map[string]any{"apiVersion": "nsinit.dev/v1alpha1", "kind": "NamespaceLifecycle",
			"status": map[string]any{"initializers": entries}}), metav1.PatchOptions{FieldManager: "test"}, "status")
		return err
	}
	if err := patch(types.StrategicMergePatchType, 2000); !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "at most 65536 bytes") {
		t.Errorf("a long patch: %v", err)
	}
	if err := patch(types.StrategicMergePatchType+";a=1;a=2", 2000); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("a long patch with parameters: %v", err)
	}
	for _, kind := range []types.PatchType{types.StrategicMergePatchType, types.MergePatchType, types.ApplyYAMLPatchType} {
		if err := patch(kind, 1); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "status.initializers") {
			t.Errorf("%s with a name outside the plan: %v", kind, err)
		}
		if err := patch(kind, 0); err != nil {
			t.Errorf("%s of the own entry: %v", kind, err)
		}
	}
	record, err := client.Get(t.Context(), "long", metav1.GetOptions{})
	if err != nil || strings.Contains(string(testserver.MustJSON(record)), "unknown-") {
		t.Errorf("%v, %v", err, record)
	}
}

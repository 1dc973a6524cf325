/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const (
	hostile  = "no \x1b[31mquota\u202e\u009b\nleft"
	harmless = "no ?[31mquota??\nleft"
)

// TestMessagesArePrintable: what an initializer says cannot change what a terminal shows, by
// whatever verb it comes. The longest message is taken, too, and a failure with a longer one.
func TestMessagesArePrintable(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	record := server.MustLifecycle(t, "messages")
	message := func() string { return record.Status.Initializers[0].Message }

	record.Status.Initializers[0].Message = hostile
	record, err := client.UpdateStatus(t.Context(), record, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if message() != harmless {
		t.Errorf("PUT: %q", message())
	}
	record, err = client.Patch(t.Context(), "messages", types.MergePatchType,
		testserver.MustJSON(map[string]any{"status": map[string]any{"initializers": []any{map[string]any{"name": "a.example.com", "message": "x" + hostile}}}}), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if message() != "x"+harmless {
		t.Errorf("PATCH: %q", message())
	}
	record.Status.Initializers[0].Message = strings.Repeat("\x1b", 4096)
	if record, err = client.UpdateStatus(t.Context(), record, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if message() != strings.Repeat("?", 4096) {
		t.Errorf("the longest: %q", message())
	}

	record.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: hostile + strings.Repeat("x", 4096)}
	if record, err = client.Initialize(t.Context(), "messages", record, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := harmless + strings.Repeat("x", 4096-len(harmless)-len("...")) + "..."
	if got := record.Spec.Initializers.Result.Message; got != want || message() != want {
		t.Errorf("the result: %q, %q", got, message())
	}
	for _, condition := range record.Status.Conditions {
		if strings.Contains(condition.Message, "\x1b") || !strings.Contains(condition.Message, harmless) {
			t.Errorf("condition %s: %q", condition.Type, condition.Message)
		}
	}
}

// TestWrongNames: what is wrong with the name or the UID of a record is reported, and is no reason
// to try again.
func TestWrongNames(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.Core.SetNamespace(testserver.Namespace("names", "right", true))
	client := server.Client(t, "admin").NsinitV1alpha1()
	generated := testserver.Lifecycle("", "right")
	generated.GenerateName = "names-"
	_, err := client.NamespaceLifecycles().Create(t.Context(), generated, metav1.CreateOptions{})
	if _, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsInvalid(err) || retry || !strings.Contains(err.Error(), "metadata.name: Required value") {
		t.Errorf("a generated name: %v", err)
	}
	record, err := client.NamespaceLifecycles().Create(t.Context(), testserver.Lifecycle("names", "right"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	record.Spec.NamespaceUID = "wrong"
	_, err = client.NamespaceLifecycles().Update(t.Context(), record, metav1.UpdateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `spec.namespaceUID: Invalid value: "wrong": field is immutable`) {
		t.Errorf("another UID: %v", err)
	}
	populated, err := client.PopulatedNamespaces().Create(t.Context(), &v1alpha1.PopulatedNamespace{
		ObjectMeta: metav1.ObjectMeta{Name: "names"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "right"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	populated.Spec.NamespaceUID = "wrong"
	_, err = client.PopulatedNamespaces().Update(t.Context(), populated, metav1.UpdateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `spec.namespaceUID: Invalid value: "wrong": field is immutable`) {
		t.Errorf("another UID of a populated namespace: %v", err)
	}
}

// warnings collects the warnings of responses.
type warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// TestIneffectiveInitializers: every write of a configuration returns a warning about an initializer that another
// configuration registers first.
func TestIneffectiveInitializers(t *testing.T) {
	server := testserver.Start(t)
	var got warnings
	config := server.Config("admin")
	config.WarningHandler = &got
	client := server.ClientFor(t, config).NsinitV1alpha1().NamespaceInitializerConfigurations()
	warned := func(verb string, err error, want ...string) {
		t.Helper()
		got = slices.DeleteFunc(got, func(text string) bool { return strings.Contains(text, "is not served") })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: warnings %q, want %q, error %v", verb, got, want, err)
		}
		got = nil
	}
	const message = `initializers[1] "a.example.com" has no effect because configuration "10" registers it first: remove or rename it`
	_, err := client.Create(t.Context(), testserver.Configuration("10", "a.example.com"), metav1.CreateOptions{})
	warned("POST", err)
	second, err := client.Create(t.Context(), testserver.Configuration("20", "b.example.com", "a.example.com"), metav1.CreateOptions{})
	warned("POST", err, message)
	second.Initializers[1].Finalizer = true
	second, err = client.Update(t.Context(), second, metav1.UpdateOptions{})
	warned("PUT", err, message)
	_, err = client.Patch(t.Context(), second.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	warned("PATCH", err, message)
	_, err = client.UpdateStatus(t.Context(), second, metav1.UpdateOptions{})
	warned("status", err)
	second.Initializers = second.Initializers[:1]
	_, err = client.Update(t.Context(), second, metav1.UpdateOptions{})
	warned("without it", err)
}

// TestFailByUpdate: an initializer that is added with failurePolicy Fail is refused, by whatever
// verb it comes; one that is known may take it, and stays what it is in every other write.
func TestFailByUpdate(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations()
	configuration := server.MustConfigure(t, testserver.Configuration("fail", "a.example.com"))
	fail := v1alpha1.Fail
	refused := func(verb string, err error) {
		t.Helper()
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `initializers[1].failurePolicy: Forbidden: Fail would fail every new namespace until initializer "b.example.com" runs`) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	added := configuration.DeepCopy()
	added.Initializers = append(added.Initializers, v1alpha1.RegisteredInitializer{Name: "b.example.com", FailurePolicy: &fail})
	_, err := client.Update(t.Context(), added, metav1.UpdateOptions{})
	refused("PUT", err)
	both := `{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespaceInitializerConfiguration","initializers":[{"name":"a.example.com"},{"name":"b.example.com","failurePolicy":"Fail"}]}`
	for kind, patch := range map[types.PatchType]string{
		types.MergePatchType: both, types.ApplyYAMLPatchType: both,
		types.JSONPatchType: `[{"op":"add","path":"/initializers/1","value":{"name":"b.example.com","failurePolicy":"Fail"}}]`,
	} {
		_, err := client.Patch(t.Context(), "fail", kind, []byte(patch), metav1.PatchOptions{FieldManager: "test", Force: force(kind)})
		refused(string(kind), err)
	}

	configuration.Initializers[0].FailurePolicy = &fail
	if configuration, err = client.Update(t.Context(), configuration, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	configuration.Labels = map[string]string{"a": "b"}
	if configuration, err = client.Update(t.Context(), configuration, metav1.UpdateOptions{}); err != nil {
		t.Errorf("an update of another field: %v", err)
	}
	configuration.Status.PendingNamespaces = 1
	if _, err = client.UpdateStatus(t.Context(), configuration, metav1.UpdateOptions{}); err != nil {
		t.Errorf("an update of the status: %v", err)
	}
}

// force is set for server-side apply only.
func force(kind types.PatchType) *bool {
	if kind != types.ApplyYAMLPatchType {
		return nil
	}
	yes := true
	return &yes
}

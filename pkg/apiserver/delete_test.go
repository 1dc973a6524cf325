/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestDeleteInTwoSteps: a record becomes Terminating first, and leaves with the last of
// its finalizers.
func TestDeleteInTwoSteps(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	var record *v1alpha1.NamespaceLifecycle
	server.MustLifecycle(t, "two-steps")

	other := types.UID("other")
	if err := client.Delete(ctx, "two-steps", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("deletion with another UID: %v, want a conflict", err)
	}
	if err := client.Delete(ctx, "two-steps", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if record, _ = client.Get(ctx, "two-steps", metav1.GetOptions{}); record.DeletionTimestamp != nil {
		t.Fatal("a dry run deleted the record")
	}
	for range 2 { // the second request changes nothing
		if err := client.Delete(ctx, "two-steps", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		var err error
		if record, err = client.Get(ctx, "two-steps", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if record.DeletionTimestamp == nil || record.Status.Phase != v1alpha1.LifecycleTerminating || currentOf(record) != "" {
			t.Fatalf("after the deletion: %v, phase %q, current %q", record.DeletionTimestamp, record.Status.Phase, currentOf(record))
		}
	}
	record.Spec.Finalizers = nil
	if _, err := client.Finalize(ctx, "two-steps", record, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(ctx, "two-steps", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the last finalizer left, the record is still there: %v", err)
	}
}

// TestDeleteWithoutFinalizers: where the finalizers left before the deletion, it takes a
// second request, as for core namespaces.
func TestDeleteWithoutFinalizers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.Start(t)
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations()
	configuration := server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	configuration.Spec.Finalizers = nil
	if _, err := client.Finalize(ctx, "c", configuration, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if now, err := client.Get(ctx, "c", metav1.GetOptions{}); err != nil || now.Status.Phase != v1alpha1.ConfigurationTerminating {
		t.Fatalf("after the first request: %v %v", now, err)
	}
	if err := client.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(ctx, "c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the second request: %v", err)
	}
}

// TestMetadataFinalizersHold: a record leaves only when metadata.finalizers are empty, too.
func TestMetadataFinalizersHold(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.Start(t)
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations()
	configuration := testserver.Configuration("c", "a.example.com")
	configuration.Finalizers = []string{"example.com/held"}
	server.MustConfigure(t, configuration)
	if err := client.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	configuration, err := client.Get(ctx, "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	configuration.Spec.Finalizers = nil
	if configuration, err = client.Finalize(ctx, "c", configuration, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(ctx, "c", metav1.GetOptions{}); err != nil {
		t.Fatalf("it left although metadata.finalizers held it: %v", err)
	}
	configuration.Finalizers = nil
	if _, err := client.Update(ctx, configuration, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(ctx, "c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestFinalizeAuthority shows who may change spec.finalizers, by each verb.
func TestFinalizeAuthority(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	configuration := testserver.Configuration("c", "a.example.com", "b.example.com")
	for i := range configuration.Initializers {
		configuration.Initializers[i].Finalizer = true
	}
	server.MustConfigure(t, configuration)
	asInitializer(server.Core, "hook-a", "a.example.com")
	drop := func(name v1alpha1.FinalizerName) func(*v1alpha1.NamespaceLifecycle) {
		return func(r *v1alpha1.NamespaceLifecycle) {
			var kept []v1alpha1.FinalizerName
			for _, finalizer := range r.Spec.Finalizers {
				if finalizer != name {
					kept = append(kept, finalizer)
				}
			}
			r.Spec.Finalizers = kept
		}
	}
	add := func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Finalizers = append(r.Spec.Finalizers, "x.example.com") }
	tests := map[string]attempt{
		"a drops itself":            {"hook-a", drop("a.example.com"), true},
		"a drops b":                 {"hook-a", drop("b.example.com"), false},
		"a drops kubernetes":        {"hook-a", drop("kubernetes"), false},
		"a adds a name":             {"hook-a", add, false},
		"the privileged add a name": {"admin", add, true},
	}
	checkAuthority(t, server, "finalize", tests)
}

// TestPostFinalize: a POST is bound to the object that the URL names, in the incarnation
// and the version that the body carries, and takes no field of others.
func TestPostFinalize(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	client := server.Client(t, "admin").NsinitV1alpha1()
	post := func(name string, body *v1alpha1.NamespaceLifecycle) error {
		return client.RESTClient().Post().Resource("namespacelifecycles").Name(name).SubResource("finalize").
			Body(body).Do(ctx).Error()
	}
	record := server.MustLifecycle(t, "posted")
	another := record.DeepCopy()
	another.Name = "another"
	if err := post("posted", another); !apierrors.IsBadRequest(err) {
		t.Errorf("a body with another name: %v, want a bad request", err)
	}
	foreign := record.DeepCopy()
	foreign.UID = "foreign"
	if err := post("posted", foreign); !apierrors.IsConflict(err) {
		t.Errorf("a body with a foreign UID: %v, want a conflict", err)
	}
	stale := record.DeepCopy()
	stale.ResourceVersion = "1"
	if err := post("posted", stale); !apierrors.IsConflict(err) {
		t.Errorf("a body with a stale resourceVersion: %v, want a conflict", err)
	}
	if err := post("missing", testserver.Lifecycle("missing", "u")); !apierrors.IsNotFound(err) {
		t.Errorf("an object that does not exist: %v, want not found", err)
	}
	before := fmt.Sprint(record.ManagedFields)
	record.Spec.Finalizers = nil
	if err := post("posted", record); err != nil {
		t.Fatal(err)
	}
	now, err := client.NamespaceLifecycles().Get(ctx, "posted", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(now.Spec.Finalizers) != 0 {
		t.Errorf("the finalizers are still %v", now.Spec.Finalizers)
	}
	if after := fmt.Sprint(now.ManagedFields); after != before {
		t.Errorf("managedFields changed from\n%s\nto\n%s", before, after)
	}
}

// TestLifecyclesOfLiveNamespacesStay: only the privileged delete them.
func TestLifecyclesOfLiveNamespacesStay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.Start(t)
	server.Core.Allow("user", testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles", Name: "*"})
	client := server.Client(t, "user").NsinitV1alpha1().NamespaceLifecycles()

	record := server.MustLifecycle(t, "lives")
	if err := client.Delete(ctx, "lives", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the record of a live namespace: %v, want a refusal", err)
	}
	server.Core.SetNamespace(testserver.Namespace("lives", record.Spec.NamespaceUID+"-2", true))
	if err := client.Delete(ctx, "lives", metav1.DeleteOptions{}); err != nil {
		t.Errorf("the record of a former namespace: %v", err)
	}
	server.MustLifecycle(t, "gone")
	server.Core.DeleteNamespace("gone")
	if err := client.Delete(ctx, "gone", metav1.DeleteOptions{}); err != nil {
		t.Errorf("the record of a namespace that is gone: %v", err)
	}
}

// TestImmortalLifecycles: the record of an immortal namespace that has a plan cannot be deleted by
// any client. One without a plan, as of a namespace that was open before, can.
func TestImmortalLifecycles(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	server.Core.SetNamespace(testserver.Namespace(metav1.NamespacePublic, "open", false))
	if _, err := client.Create(t.Context(), testserver.Lifecycle(metav1.NamespacePublic, "open"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(t.Context(), metav1.NamespacePublic, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("a record without a plan: %v", err)
	}
	leaving, err := client.Get(t.Context(), metav1.NamespacePublic, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leaving.Spec.Finalizers = nil
	if _, err := client.Finalize(t.Context(), metav1.NamespacePublic, leaving, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	for _, name := range []string{metav1.NamespacePublic, "another"} {
		server.MustLifecycle(t, name)
		err := client.Delete(t.Context(), name, metav1.DeleteOptions{})
		if (name == metav1.NamespacePublic) != apierrors.IsForbidden(err) || name == "another" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

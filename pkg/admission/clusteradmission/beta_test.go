/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// betaServer serves MutatingAdmissionPolicies in v1beta1, if it serves them. A watch of the policies has one event.
func betaServer(t *testing.T, served bool) *rest.Config {
	t.Helper()
	named := func(name string) *admissionregistrationv1beta1.MutatingAdmissionPolicy {
		p := &admissionregistrationv1beta1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "2"}}
		p.APIVersion, p.Kind = admissionregistrationv1beta1.SchemeGroupVersion.String(), "MutatingAdmissionPolicy"
		p.Spec.Mutations = []admissionregistrationv1beta1.Mutation{{JSONPatch: &admissionregistrationv1beta1.JSONPatch{Expression: "[]"}}}
		return p
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource, found := strings.CutPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io/v1beta1/")
		query := r.URL.Query()
		switch policies := resource == "mutatingadmissionpolicies"; {
		case !served || !found:
			http.NotFound(w, r)
		case query.Get("sendInitialEvents") != "":
			http.Error(w, "watch lists are not served here", http.StatusBadRequest)
		case query.Get("watch") != "":
			w.Header().Set("Content-Type", "application/json")
			if policies {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": named("created")})
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			items, kind := []any{}, "MutatingAdmissionPolicyBindingList"
			if policies {
				items, kind = []any{named("listed")}, "MutatingAdmissionPolicyList"
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": admissionregistrationv1beta1.SchemeGroupVersion.String(), "kind": kind,
				"metadata": map[string]any{"resourceVersion": "1"}, "items": items})
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections() // watches
		server.Close()
	})
	return &rest.Config{Host: server.URL}
}

// TestBeta: a cluster that serves mutating policies in v1beta1 only has them, those of the list and later ones. With neither
// version, the kind is not served.
func TestBeta(t *testing.T) {
	for name, served := range map[string]bool{"served": true, "not served": false} {
		t.Run(name, func(t *testing.T) {
			config := betaServer(t, served)
			beta, err := newBeta(config)
			if err != nil {
				t.Fatal(err)
			}
			namespaces := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			namespaces.Core().V1().Namespaces().Informer()
			r, err := newRegistrations(kubernetes.NewForConfigOrDie(config), beta, namespaces)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			for _, factory := range []informers.SharedInformerFactory{r.informers, namespaces} {
				factory.StartWithContext(ctx)
				t.Cleanup(factory.Shutdown)
			}
			t.Cleanup(cancel)
			waitFor := func(what string, condition func() bool) {
				t.Helper()
				if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return condition(), nil }); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			waitFor("ready", func() bool {
				ready, err := r.Ready(mutatingpolicy.PluginName)
				return err == nil && ready == served
			})
			for _, policy := range []string{"listed", "created"} {
				if !served {
					break
				}
				waitFor(policy, func() bool {
					p, err := r.informers.Admissionregistration().V1().MutatingAdmissionPolicies().Lister().Get(policy)
					return err == nil && p.Spec.Mutations[0].JSONPatch.Expression == "[]"
				})
			}
		})
	}
}

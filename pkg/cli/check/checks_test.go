/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/client-go/kubernetes/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/pkg/installation"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

// certificate returns one in PEM that expires after some time.
func certificate(t *testing.T, now time.Time, left time.Duration) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(left)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestCertificate: the first one to expire counts.
func TestCertificate(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	long := certificate(t, now, 365*24*time.Hour)
	for name, test := range map[string]struct {
		data  []byte
		state State
		says  string
	}{
		"long":         {long, OK, "valid until 2027-11-21T12:00:00Z"},
		"soon":         {append(long, certificate(t, now, 13*24*time.Hour)...), Warning, "expires in 312h0m0s, at 2026-12-04T12:00:00Z"},
		"expired":      {certificate(t, now, -time.Hour), Problem, "expired at 2026-11-21T11:00:00Z"},
		"none":         {nil, Problem, "does not contain any valid RSA or ECDSA certificates"},
		"not a proper": {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), Problem, "malformed certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			i := &inspection{now: now}
			i.certificate("CA", "here", renewal, test.data)
			if got := i.results[0]; got.State != test.state || !strings.HasPrefix(got.Message, "here: ") || !strings.Contains(got.Message, test.says) || (got.Remedy == "") != (test.state == OK) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestInstallation: check reports what kubectl nsinit why would report.
func TestInstallation(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	service := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1alpha1.nsinit.dev"}, Spec: apiregistrationv1.APIServiceSpec{
		Group: "nsinit.dev", Version: "v1alpha1", Service: &apiregistrationv1.ServiceReference{Namespace: "nsinit-system", Name: "nsinit-apiserver"}, CABundle: certificate(t, now, 365*24*time.Hour)}}
	available := service.DeepCopy()
	available.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue}}
	lease := func(renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: "nsinit-controller-manager"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("m-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now.Add(-renewed)}}}
	}
	for name, test := range map[string]struct {
		core, apis []runtime.Object
		want       []string
	}{
		"works":         {[]runtime.Object{lease(time.Second)}, []runtime.Object{available}, []string{"APIService OK", "Lifecycles OK", "Controllers OK", "CA OK"}},
		"down":          {[]runtime.Object{lease(time.Minute)}, []runtime.Object{service}, []string{"APIService Problem", "Lifecycles OK", "Controllers Problem", "CA OK"}},
		"not installed": {nil, nil, []string{"APIService Problem", "Lifecycles OK", "Controllers Problem"}},
	} {
		t.Run(name, func(t *testing.T) {
			clients := diagnosis.NewClients(fake.NewClientset(test.core...), nsinitfake.NewClientset(), aggregatorfake.NewClientset(test.apis...), nil)
			i := &inspection{now: now, Clients: &cmdutil.Clients{Clients: clients}}
			i.installation(t.Context())
			var got []string
			for _, result := range i.results {
				got = append(got, result.Check+" "+string(result.State))
				if (result.Remedy == "") != (result.State == OK) || result.Message == "" {
					t.Errorf("got %+v", result)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDelivered: the plugin knows every policy that is delivered, and its binding; the stamp is one
// where Kubernetes can have it.
func TestDelivered(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		objects, err := cmdutil.ReadManifests(installation.DefaultNamespace, artifacts.Policies(stamp)...)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for _, object := range objects {
			kinds[object.GetKind()]++
		}
		want := map[string]int{"ValidatingAdmissionPolicy": 11, "ValidatingAdmissionPolicyBinding": 11}
		if stamp {
			want["MutatingAdmissionPolicy"], want["MutatingAdmissionPolicyBinding"] = 2, 2
		}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestNormal: white space in expressions says nothing, everything else does.
func TestNormal(t *testing.T) {
	one := map[string]any{"a": []any{"x ==\n  'y'\n", int64(1)}, "b": map[string]any{"c": true}}
	two := map[string]any{"a": []any{"x == 'y'", int64(1)}, "b": map[string]any{"c": true}}
	if diff := diff.Diff(normal(one), normal(two)); diff != "" {
		t.Error(diff)
	}
	two["b"] = map[string]any{"c": false}
	if got := firstDifference(diff.Diff(normal(one), normal(two))); !strings.Contains(got, "true") || !strings.Contains(got, "false") {
		t.Errorf("the difference is %q", got)
	}
}

// TestUndecodable: a list that failed names the objects that cannot be decoded.
func TestUndecodable(t *testing.T) {
	failed := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonStoreReadError, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
		{Type: metav1.CauseTypeUnexpectedServerResponse, Field: "/registry/a", Message: "StorageError: corrupt object, Key: /registry/a, AdditionalErrorMsg: object not decodable"},
		{Type: metav1.CauseTypeTooMany, Message: "too many errors"},
	}}}}
	if diff := cmp.Diff(map[string]string{"/registry/a": "object not decodable"}, undecodable(fmt.Errorf("wrapped: %w", failed))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := undecodable(apierrors.NewServiceUnavailable("")); len(got) != 0 {
		t.Errorf("another error names %v", got)
	}
	if got, want := deleteCommand("namespacelifecycles", "a"), "kubectl delete --raw '/apis/nsinit.dev/v1alpha1/namespacelifecycles/a?ignoreStoreReadErrorWithClusterBreakingPotential=true'"; got != want {
		t.Errorf("the command is %s", got)
	}
}

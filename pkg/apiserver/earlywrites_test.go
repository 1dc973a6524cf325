/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
)

// TestEarlyWrites: the endpoint answers admission reviews of authorized users with "retry later", admits
// nothing, and refuses other users.
func TestEarlyWrites(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	const endpoint = "/apis/nsinit.dev/v1alpha1/admissionreviews/early-writes"
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","namespace":"shop","name":"x","resource":{"version":"v1","resource":"configmaps"}}}`
	post := func(user, path, body string) ([]byte, error) {
		return s.Client(t, user).NsinitV1alpha1().RESTClient().Post().AbsPath(path).
			SetHeader("Content-Type", "application/json").Body([]byte(body)).MaxRetries(0).DoRaw(context.Background())
	}

	data, err := post("admin", endpoint, review)
	if err != nil {
		t.Fatal(err)
	}
	var answered admissionv1.AdmissionReview
	if err := json.Unmarshal(data, &answered); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if r := answered.Response; r == nil || r.Allowed || r.UID != "u" || r.Result.Code != 429 || r.Result.Details.RetryAfterSeconds != 1 || answered.Kind != "AdmissionReview" ||
		answered.APIVersion != "admission.k8s.io/v1" {
		t.Errorf("answered %s", data)
	}

	for name, body := range map[string]string{
		"no JSON": "x", "another kind": `{"apiVersion":"v1","kind":"Pod"}`, "another version": strings.Replace(review, "/v1\"", "/v1beta1\"", 1),
		"no request": `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
	} {
		if data, err := post("admin", endpoint, body); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v %s", name, err, data)
		}
	}
	if data, err := post("admin", strings.TrimSuffix(endpoint, "early-writes")+"other", review); !apierrors.IsNotFound(err) {
		t.Errorf("another name: %v %s", err, data)
	}
	if data, err := post("stranger", endpoint, review); !apierrors.IsForbidden(err) {
		t.Errorf("a user without permissions: %v %s", err, data)
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package webhook

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func request(namespace string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		UID: "u", Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Object:   runtime.RawExtension{Raw: []byte(namespace)},
		UserInfo: authenticationv1.UserInfo{Username: "tenant", Groups: []string{"system:authenticated", "team", "two\nlines"}},
	}
}

func listed() (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{Data: map[string]string{"namespaces": "kube-system\nexempt\n\n", "namePrefixes": "\nkube-\n", "users": "operator\n\"quoted\"\n", "groups": "operators\n"}}, nil
}

// TestStamp: a new namespace gets the label and its creator, which overwrite the values of the client.
func TestStamp(t *testing.T) {
	stamped := func(metadata string) string {
		return `{"metadata":{` + metadata + `"labels":{%L"nsinit.dev/initializing":"true"},"annotations":{%A"nsinit.dev/created-by":"tenant","nsinit.dev/created-by-groups":"system:authenticated\nteam"}}}`
	}
	for name, test := range map[string]struct{ sent, want string }{
		"with a name alone":           {`{"metadata":{"name":"shop"}}`, strings.NewReplacer("%L", "", "%A", "").Replace(stamped(`"name":"shop",`))},
		"with labels":                 {`{"metadata":{"name":"shop","labels":{"a":"b"}}}`, strings.NewReplacer("%L", `"a":"b",`, "%A", "").Replace(stamped(`"name":"shop",`))},
		"with annotations":            {`{"metadata":{"name":"shop","annotations":{"a":"b"}}}`, strings.NewReplacer("%L", "", "%A", `"a":"b",`).Replace(stamped(`"name":"shop",`))},
		"with forged ones":            {`{"metadata":{"name":"shop","labels":{"nsinit.dev/initializing":"no"},"annotations":{"nsinit.dev/created-by":"root","nsinit.dev/created-by-groups":"system:masters"}}}`, strings.NewReplacer("%L", "", "%A", "").Replace(stamped(`"name":"shop",`))},
		"opened before it is created": {`{"metadata":{"name":"shop","annotations":{"nsinit.dev/opened-by":"root"}}}`, strings.NewReplacer("%L", "", "%A", "").Replace(stamped(`"name":"shop",`))},
		"with a name to be made":      {`{"metadata":{"generateName":"shop-"}}`, strings.NewReplacer("%L", "", "%A", "").Replace(stamped(`"generateName":"shop-",`))},
		"exempt by a forged label":    {`{"metadata":{"generateName":"x","labels":{"kubernetes.io/metadata.name":"kube-system"}}}`, strings.NewReplacer("%L", `"kubernetes.io/metadata.name":"kube-system",`, "%A", "").Replace(stamped(`"generateName":"x",`))},
	} {
		t.Run(name, func(t *testing.T) {
			response := stamp(request(test.sent), "nsinit-system", listed, nil)
			if !response.Allowed || response.UID != "u" || response.PatchType == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch {
				t.Fatalf("answered %+v", response)
			}
			patch, err := jsonpatch.DecodePatch(response.Patch)
			if err != nil {
				t.Fatal(err)
			}
			patched, err := patch.Apply([]byte(test.sent))
			if err != nil {
				t.Fatal(err)
			}
			var got, want map[string]any
			if err := errors.Join(json.Unmarshal(patched, &got), json.Unmarshal([]byte(test.want), &want)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// opening is a request that updates a namespace.
func opening(old, updated string) *admissionv1.AdmissionRequest {
	r := request(updated)
	r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(old)}
	return r
}

// TestStampOpenedBy: the user who removes the label is stored, and overwrites the value of the client.
func TestStampOpenedBy(t *testing.T) {
	const closed = `{"metadata":{"name":"shop","labels":{"nsinit.dev/initializing":"true"}}}`
	missing := func() (*corev1.ConfigMap, error) { return nil, errors.New("not found") }
	for name, test := range map[string]struct{ old, updated, want string }{
		"opened":            {closed, `{"metadata":{"name":"shop"}}`, `[{"op":"add","path":"/metadata/annotations","value":{"nsinit.dev/opened-by":"tenant"}}]`},
		"opened and forged": {closed, `{"metadata":{"name":"shop","annotations":{"a":"b","nsinit.dev/opened-by":"root"}}}`, `[{"op":"add","path":"/metadata/annotations","value":{"a":"b","nsinit.dev/opened-by":"tenant"}}]`},
		"still closed":      {closed, closed, ""},
		"it was open":       {`{}`, `{}`, ""},
		"it is closed":      {`{}`, closed, ""},
	} {
		if response := stamp(opening(test.old, test.updated), "nsinit-system", missing, nil); !response.Allowed || response.UID != "u" || string(response.Patch) != test.want {
			t.Errorf("%s: answered %+v with %s", name, response.Result, response.Patch)
		}
	}
}

// TestStampLeavesAlone: exempt namespaces are created unchanged. Without the list, none is created.
func TestStampLeavesAlone(t *testing.T) {
	by := func(user string, groups ...string) authenticationv1.UserInfo {
		return authenticationv1.UserInfo{Username: user, Groups: groups}
	}
	for name, test := range map[string]struct {
		sent   string
		user   authenticationv1.UserInfo
		exempt bool
	}{
		"of Kubernetes":                {`{"metadata":{"name":"kube-system"}}`, by("tenant"), true},
		"on the list":                  {`{"metadata":{"name":"exempt"}}`, by("tenant"), true},
		"a prefix":                     {`{"metadata":{"name":"kube-tool"}}`, by("tenant"), true},
		"a name to be made":            {`{"metadata":{"generateName":"kube-"}}`, by("tenant"), true},
		"another name to be made":      {`{"metadata":{"generateName":"kube"}}`, by("tenant"), false},
		"a forged generateName":        {`{"metadata":{"name":"shop","generateName":"kube-"}}`, by("tenant"), false},
		"a forged name":                {`{"metadata":{"name":"kube-tool","generateName":"shop-"}}`, by("tenant"), false},
		"a user":                       {`{"metadata":{"name":"shop"}}`, by("operator"), true},
		"a member of a group":          {`{"metadata":{"name":"shop"}}`, by("tenant", "operators"), true},
		"a forged creator":             {`{"metadata":{"name":"shop","annotations":{"nsinit.dev/created-by":"operator","nsinit.dev/created-by-groups":"operators"}}}`, by("tenant"), false},
		"a user on a malformed line":   {`{"metadata":{"name":"shop"}}`, by(`"quoted"`), false},
		"a group with two names":       {`{"metadata":{"name":"shop"}}`, by("tenant", "a\noperators"), false},
		"neither a name nor a creator": {`{"metadata":{}}`, by(""), false},
	} {
		r := request(test.sent)
		r.UserInfo = test.user
		if response := stamp(r, "nsinit-system", listed, nil); !response.Allowed || (response.Patch == nil) != test.exempt || response.UID != "u" {
			t.Errorf("%s: answered %+v with %s", name, response.Result, response.Patch)
		}
	}
	missing := func() (*corev1.ConfigMap, error) { return nil, errors.New("not found") }
	for name, test := range map[string]struct {
		request *admissionv1.AdmissionRequest
		want    string
	}{
		"a name to be made":   {request(`{"metadata":{"generateName":"x"}}`), "without which no namespace is created: not found"},
		"the list is missing": {request(`{"metadata":{"name":"shop"}}`), "ConfigMap nsinit-system/nsinit-exemptions, without which no namespace is created: not found"},
		"no object":           {request(`x`), "cannot decode the namespace"},
		"another operation":   {func() *admissionv1.AdmissionRequest { r := request(`{}`); r.Operation = admissionv1.Delete; return r }(), "not for DELETE of namespaces"},
		"no old object":       {opening("x", `{}`), "cannot decode the old namespace"},
		"another resource":    {func() *admissionv1.AdmissionRequest { r := request(`{}`); r.Resource.Resource = "pods"; return r }(), "not for CREATE of pods"},
	} {
		if response := stamp(test.request, "nsinit-system", missing, nil); response.Allowed || response.UID != "u" || !strings.Contains(response.Result.Message, test.want) {
			t.Errorf("%s: answered %+v", name, response.Result)
		}
	}
}

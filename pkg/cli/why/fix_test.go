/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package why_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	metadatafake "k8s.io/client-go/metadata/fake"
	restfake "k8s.io/client-go/rest/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/why"
	"github.com/nsinit/nsinit/pkg/diagnosis"
)

// answers are what a cluster answers: a refusal for a method, and whether the user may delete the namespace.
type answers struct {
	refusals map[string]*apierrors.StatusError
	mayNot   bool
}

// orphaned returns a cluster with content of the namespace gone, which does not exist. Requests are appended to sent.
func orphaned(t *testing.T, answer answers, sent *[]string) *cmdtesting.Cluster {
	t.Helper()
	cluster := cmdtesting.New()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster.Clients.Metadata = metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "gone", Name: "a"}})
	cluster.Clients.Discover = func() ([]*metav1.APIResourceList, error) {
		return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}}}}}, nil
	}
	cluster.Core.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		of := *review.Spec.ResourceAttributes
		review.Status.Allowed = !answer.mayNot && of == authorizationv1.ResourceAttributes{Namespace: "gone", Name: "gone", Verb: "delete", Version: "v1", Resource: "namespaces"}
		return true, review, nil
	})
	cluster.REST.Client = restfake.CreateHTTPClient(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		*sent = append(*sent, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		code, text := http.StatusOK, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"gone","uid":"new"}}`
		if refusal := answer.refusals[r.Method]; refusal != nil {
			status := refusal.Status()
			status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			data, err := json.Marshal(status)
			if err != nil {
				return nil, err
			}
			code, text = int(status.Code), string(data)
		}
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(text))}, err
	})
	return cluster
}

// TestFix: without a digest, and with one of another state, nothing is sent. A request for an object that another request
// created has its UID.
func TestFix(t *testing.T) {
	const namespace = `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"gone"},"spec":{},"status":{}}`
	out, _, err := orphaned(t, answers{}, &[]string{}).Run(t, why.NewCommand, "gone", "--fix", "--output=json")
	var list diagnosis.FixList
	if err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list.Items) != 1 {
		t.Fatal(out, err)
	}
	digest := list.Items[0].Digest
	posted, deleted := "POST /api/v1/namespaces?fieldManager=kubectl-nsinit-why "+namespace, `DELETE /api/v1/namespaces/gone {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"new"}}`
	refuse := func(method string, refusal *apierrors.StatusError) answers {
		return answers{refusals: map[string]*apierrors.StatusError{method: refusal}}
	}
	namespaces, confirm := corev1.Resource("namespaces"), []string{"--confirm=" + digest}
	invalid := field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), "gone", "it is reserved")}
	const exists, again = `; namespace "gone" exists again with its content, which is in use: run kubectl delete namespace gone`, "; run kubectl nsinit why gone --fix again"
	for name, test := range map[string]struct {
		args    []string
		answers answers
		// want are the requests, and out and err parts of the output and of the error.
		want     []string
		out, err string
	}{
		"shown":         {nil, answers{}, nil, "\n   To apply it:\n         kubectl nsinit why gone --fix --confirm=" + digest + "\n", ""},
		"with patience": {[]string{"--patience=2s"}, answers{}, nil, " --fix --confirm=" + digest + " --patience=2s\n", ""},
		"another state": {[]string{"--confirm=x"}, answers{}, nil, "", `the state of namespace "gone" changed, or the digest "x" is wrong; nothing was changed. The digests are now: ` + digest + " (OrphanedContent)"},
		"applied":       {confirm, answers{}, []string{posted, deleted}, "namespace/gone: applied: create the namespace again and delete it, which deletes its content: configmaps (1)\n", ""},
		"a dry run": {append(confirm, "--dry-run=server"), answers{}, []string{
			"POST /api/v1/namespaces?dryRun=All&fieldManager=kubectl-nsinit-why " + namespace,
		}, "applied (server dry run): ", ""},
		"created meanwhile": {confirm, refuse("POST", apierrors.NewAlreadyExists(namespaces, "gone")), []string{posted},
			"", `0 of 2 requests succeeded, then POST /api/v1/namespaces failed: the object has changed since the diagnosis: namespaces "gone" already exists` + again},
		"with patience, it fails": {append(confirm, "--patience=2s"), refuse("POST", apierrors.NewUnauthorized("who are you?")), []string{posted},
			"", "failed: who are you?; run kubectl nsinit why gone --fix --patience=2s again"},
		"a failed test": {confirm, refuse("POST", apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", "testing value /metadata/uid failed: test failed", 0, false)), []string{posted},
			"", "failed: the object has changed since the diagnosis: the server rejected our request due to an error in our request" + again},
		"not valid": {confirm, refuse("POST", apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "gone", invalid)), []string{posted},
			"", `failed: Namespace "gone" is invalid: metadata.name: Invalid value: "gone": it is reserved` + again},
		"not permitted": {confirm, answers{mayNot: true}, nil, "", `you have no permission to delete namespace "gone" after it is created; nothing was changed: ask an administrator for the verb delete of namespaces`},
		"not deleted": {confirm, refuse("DELETE", apierrors.NewForbidden(namespaces, "gone", errors.New("it is protected"))), []string{posted, deleted},
			"", `1 of 2 requests succeeded, then DELETE /api/v1/namespaces/gone failed: namespaces "gone" is forbidden: it is protected` + exists},
	} {
		t.Run(name, func(t *testing.T) {
			var sent []string
			out, _, err := orphaned(t, test.answers, &sent).Run(t, why.NewCommand, append([]string{"gone", "--fix"}, test.args...)...)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) || !strings.Contains(out, test.out) {
				t.Errorf("the error is %v, the output\n%s", err, out)
			}
			if diff := cmp.Diff(test.want, sent); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPatience: the commands that are proposed diagnose with the same patience.
func TestPatience(t *testing.T) {
	for name, args := range map[string][]string{"a diagnosis": {"gone"}, "a wrong digest": {"shop", "--fix", "--confirm=x"}, "no remedies": {"shop", "--fix"}} {
		t.Run(name, func(t *testing.T) {
			cluster := orphaned(t, answers{}, &[]string{})
			if err := cluster.Core.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}); err != nil {
				t.Fatal(err)
			}
			out, _, err := cluster.Run(t, why.NewCommand, append(args, "--patience=2s")...)
			if all := fmt.Sprint(out, err); !strings.Contains(all, "run kubectl nsinit why "+args[0]) || strings.Count(all, "run kubectl nsinit why ") != strings.Count(all, " --patience=2s") {
				t.Errorf("it says\n%s", all)
			}
		})
	}
}

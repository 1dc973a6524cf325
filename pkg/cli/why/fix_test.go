/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package why_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	restfake "k8s.io/client-go/rest/fake"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/why"
	"github.com/nsinit/nsinit/pkg/diagnosis"
)

// orphaned returns a cluster with content of the namespace gone, which does not exist. Requests are appended to sent.
func orphaned(t *testing.T, code int, sent *[]string) *cmdtesting.Cluster {
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
	cluster.REST.Client = restfake.CreateHTTPClient(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		*sent = append(*sent, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}},
			Body: io.NopCloser(strings.NewReader(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"gone","uid":"new"}}`))}, err
	})
	return cluster
}

// TestFix: without a digest, and with one of another state, nothing is sent. A request for an object that another request
// created has its UID.
func TestFix(t *testing.T) {
	const namespace = `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"gone"},"spec":{},"status":{}}`
	out, _, err := orphaned(t, http.StatusOK, &[]string{}).Run(t, why.NewCommand, "gone", "--fix", "--output=json")
	var list diagnosis.FixList
	if err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list.Items) != 1 {
		t.Fatal(out, err)
	}
	digest := list.Items[0].Digest
	for name, test := range map[string]struct {
		args []string
		code int
		// want are the requests, and out and err parts of the output and of the error.
		want     []string
		out, err string
	}{
		"shown":         {nil, 200, nil, "\n   To apply it:\n         kubectl nsinit why gone --fix --confirm=" + digest + "\n", ""},
		"with patience": {[]string{"--patience=2s"}, 200, nil, " --fix --confirm=" + digest + " --patience=2s\n", ""},
		"another state": {[]string{"--confirm=x"}, 200, nil, "", `the state of namespace "gone" changed, or the digest "x" is wrong; nothing was changed. The digests are now: ` + digest + " (OrphanedContent)"},
		"applied": {[]string{"--confirm=" + digest}, 200, []string{
			"POST /api/v1/namespaces?fieldManager=kubectl-nsinit-why " + namespace,
			`DELETE /api/v1/namespaces/gone {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"new"}}`,
		}, "namespace/gone: applied: create the namespace again and delete it, which deletes its content: configmaps (1)\n", ""},
		"a dry run": {[]string{"--confirm=" + digest, "--dry-run=server"}, 200, []string{
			"POST /api/v1/namespaces?dryRun=All&fieldManager=kubectl-nsinit-why " + namespace,
		}, "applied (server dry run): ", ""},
		"created meanwhile": {[]string{"--confirm=" + digest}, 409, []string{"POST /api/v1/namespaces?fieldManager=kubectl-nsinit-why " + namespace},
			"", "0 of 2 requests succeeded, then POST /api/v1/namespaces failed: the object has changed since the diagnosis: "},
	} {
		t.Run(name, func(t *testing.T) {
			var sent []string
			out, _, err := orphaned(t, test.code, &sent).Run(t, why.NewCommand, append([]string{"gone", "--fix"}, test.args...)...)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) || !strings.Contains(out, test.out) {
				t.Errorf("the error is %v, the output\n%s", err, out)
			}
			if diff := cmp.Diff(test.want, sent); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

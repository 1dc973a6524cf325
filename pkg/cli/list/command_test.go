/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package list_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/list"
)

const (
	columns = `"columnDefinitions":[{"name":"Name","type":"string"},{"name":"Phase","type":"string"},{"name":"Message","type":"string","priority":1}]`
	objects = `{"kind":"AccessibleNamespaceList","apiVersion":"nsinit.dev/v1alpha1","metadata":{},"items":[{"metadata":{"name":"shop"}}]}`
)

func table(columns string, cells ...string) string {
	rows := []string{}
	for _, c := range cells {
		rows = append(rows, `{"cells":[`+c+`]}`)
	}
	return `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},` + columns + `,"rows":[` + strings.Join(rows, ",") + `]}`
}

// TestList: text is the table of the server, once for a list and a row for each event of a watch.
func TestList(t *testing.T) {
	const shop, opened = `"shop","Initializing","waiting for b"`, `"shop","Active","<none>"`
	event := func(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object) }
	watch := event("ADDED", table(columns, shop)) + event("MODIFIED", table(`"columnDefinitions":null`, opened))
	for name, test := range map[string]struct {
		code int
		body string
		// query is asked for.
		query string
		test  cmdtesting.Test
	}{
		"text":  {http.StatusOK, table(columns, shop), "", cmdtesting.Test{Out: "NAME   PHASE\nshop   Initializing\n"}},
		"wide":  {http.StatusOK, table(columns, shop), "", cmdtesting.Test{Args: []string{"-o", "wide"}, Out: "NAME   PHASE          MESSAGE\nshop   Initializing   waiting for b\n"}},
		"none":  {http.StatusOK, table(columns), "", cmdtesting.Test{ErrOut: "You have no permission to get a namespace.\n"}},
		"all":   {http.StatusOK, table(columns, shop), "fieldSelector=status.phase%21%3D", cmdtesting.Test{Args: []string{"-A"}, Out: "NAME   PHASE\nshop   Initializing\n"}},
		"name":  {http.StatusOK, objects, "", cmdtesting.Test{Args: []string{"-o", "name"}, Out: "accessiblenamespace.nsinit.dev/shop\n"}},
		"watch": {http.StatusOK, watch, "watch=true", cmdtesting.Test{Args: []string{"--watch"}, Out: "EVENT   NAME   PHASE\nADDED   shop   Initializing\nMODIFIED   shop   Active\n"}},
		"an error in a watch": {http.StatusOK, event("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"list again"}`), "watch=true",
			cmdtesting.Test{Args: []string{"--watch"}, Err: "list again"}},
		"a broken watch": {http.StatusOK, `{"type":"ADDED","obj`, "watch=true", cmdtesting.Test{Args: []string{"--watch"}, Err: "the watch was interrupted: unexpected EOF"}},
		"forbidden": {http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"User cannot list"}`, "",
			cmdtesting.Test{Err: "User cannot list; an administrator can grant this with the ClusterRole nsinit:tenant"}},
		"forbidden watch": {http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"User cannot list"}`, "watch=true",
			cmdtesting.Test{Args: []string{"--watch"}, Err: "User cannot list; an administrator can grant this with the ClusterRole nsinit:tenant"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.test.Cluster = cmdtesting.New()
			test.test.Cluster.Respond(test.code, test.body)
			test.test.Check(t, list.NewCommand)
			if request := test.test.Cluster.REST.Req; !strings.HasSuffix(request.URL.Path, "/accessiblenamespaces") || request.URL.RawQuery != test.query {
				t.Errorf("asks for %s", request.URL)
			}
		})
	}
}

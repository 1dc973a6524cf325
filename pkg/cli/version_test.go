/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"net/http"
	"testing"

	baseversion "k8s.io/component-base/version"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
)

// answering returns a cluster whose API server answers a request for nsinit's OpenAPI document.
func answering(code int, body string) *cmdtesting.Cluster {
	cluster := cmdtesting.New()
	cluster.Respond(code, body)
	return cluster
}

func TestVersionCommand(t *testing.T) {
	mine := baseversion.Get().GitVersion
	client := "Client Version: " + mine + "\n"
	const document = `{"openapi":"3.0.0","info":{"title":"nsinit","version":"v0.0.7"},"paths":{}}`
	for name, test := range map[string]cmdtesting.Test{
		"both":             {Cluster: answering(http.StatusOK, document), Out: client + "Server Version: v0.0.7\n"},
		"another minor":    {Cluster: answering(http.StatusOK, `{"info":{"version":"v0.1.0"}}`), Out: client + "Server Version: v0.1.0\n", ErrOut: "WARNING: the minor versions of the plugin (" + mine + ") and of nsinit-apiserver (v0.1.0) differ: install the plugin of the server's version\n"},
		"no number":        {Cluster: answering(http.StatusOK, `{"info":{"version":"unversioned"}}`), Out: client + "Server Version: unversioned\n"},
		"a field":          {Cluster: answering(http.StatusOK, document), Args: []string{"--output=jsonpath={.serverVersion.gitVersion} {.clientVersion.gitVersion}"}, Out: "v0.0.7 " + mine},
		"the plugin only":  {Args: []string{"--client"}, Out: client},
		"the plugin, JSON": {Args: []string{"--client", "-o", "jsonpath={.kind}{.serverVersion}"}, Out: "Version"},

		"not installed": {Cluster: answering(http.StatusNotFound, ""), Out: client, Err: "cannot read the version of nsinit-apiserver: the API of nsinit is not registered: nsinit is not installed, or does not work"},
		"forbidden": {Cluster: answering(http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"forbidden: User \"jane\" cannot get path"}`), Out: client,
			Err: `cannot read the version of nsinit-apiserver: forbidden: User "jane" cannot get path`},
		"does not answer": {Cluster: answering(http.StatusServiceUnavailable, ""), Out: client, Err: "cannot read the version of nsinit-apiserver: the server is currently unable to handle the request"},
		"answers HTML":    {Cluster: answering(http.StatusOK, "<html>"), Out: client, Err: "cannot read the version of nsinit-apiserver: invalid character"},
		"an argument":     {Args: []string{"x"}, Err: `unexpected argument "x"; for example:`},
		"no such format":  {Args: []string{"-o", "name"}, Err: `output format "name", allowed formats are:`},
	} {
		t.Run(name, func(t *testing.T) {
			test.Check(t, newVersionCommand)
			if test.Cluster != nil && test.Cluster.REST.Req.URL.Path != "/openapi/v3/apis/nsinit.dev/v1alpha1" {
				t.Errorf("asks for %s", test.Cluster.REST.Req.URL)
			}
		})
	}
}

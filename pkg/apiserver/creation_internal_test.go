/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestWithCreation: requests that may create a NamespaceLifecycle have a deadline, and no others.
func TestWithCreation(t *testing.T) {
	for name, test := range map[string]struct {
		info  genericapirequest.RequestInfo
		bound bool
	}{
		"a creation":           {genericapirequest.RequestInfo{Verb: "create", APIGroup: "nsinit.dev", Resource: "namespacelifecycles"}, true},
		"server-side apply":    {genericapirequest.RequestInfo{Verb: "patch", APIGroup: "nsinit.dev", Resource: "namespacelifecycles"}, true},
		"a subresource":        {genericapirequest.RequestInfo{Verb: "create", APIGroup: "nsinit.dev", Resource: "namespacelifecycles", Subresource: "finalize"}, false},
		"a watch":              {genericapirequest.RequestInfo{Verb: "watch", APIGroup: "nsinit.dev", Resource: "namespacelifecycles"}, false},
		"another resource":     {genericapirequest.RequestInfo{Verb: "create", APIGroup: "nsinit.dev", Resource: "namespacepopulations"}, false},
		"one of another group": {genericapirequest.RequestInfo{Verb: "create", APIGroup: "example.com", Resource: "namespacelifecycles"}, false},
	} {
		handler := withCreation(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			if _, bound := request.Context().Deadline(); bound != test.bound {
				t.Errorf("%s: has a deadline: %v", name, bound)
			}
		}))
		request := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(), &test.info), http.MethodPost, "/", nil)
		handler.ServeHTTP(httptest.NewRecorder(), request)
	}
}

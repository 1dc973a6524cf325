/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"net/http"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/nsinit/nsinit/pkg/admission/plugin/namespaceinitializers"
	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// withCreation bounds requests that may create a NamespaceLifecycle. Server-side apply creates objects, too.
func withCreation(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(request.Context())
		if ok && info.APIGroup == nsinit.GroupName && info.Resource == "namespacelifecycles" && info.Subresource == "" && (info.Verb == "create" || info.Verb == "patch") {
			ctx, cancel := namespaceinitializers.WithCreation(request.Context())
			defer cancel()
			request = request.WithContext(ctx)
		}
		handler.ServeHTTP(w, request)
	})
}

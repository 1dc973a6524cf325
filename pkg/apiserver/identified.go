/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/accessiblenamespace"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

// withIdentifiedStorage refuses requests for NamespaceLifecycles, and LIST and WATCH of every kind,
// while the storage must not be trusted. It ends running watches when that begins, so their clients
// list again once the storage is trusted: they neither keep objects of a lost storage nor wait for a
// revision of another one. Objects of the other kinds can be read and written by name, so that an
// administrator can create them again.
func withIdentifiedStorage(handler http.Handler, config *ExtraConfig) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(request.Context())
		if !ok {
			responsewriters.InternalError(w, request, errors.New("the request has no RequestInfo"))
			return
		}
		trust := config.Identity.Trust()
		reason := context.Cause(trust)
		switch {
		case !info.IsResourceRequest || info.APIGroup != nsinit.GroupName || info.Resource == accessiblenamespace.Resource: // nothing is stored
		case reason != nil && (info.Resource == "namespacelifecycles" || info.Verb == "list" || info.Verb == "watch"):
			responsewriters.ErrorNegotiated(utilapierrors.NewUnavailable(reason), config.Codecs, v1alpha1.SchemeGroupVersion, w, request)
			return
		case info.Verb == "watch":
			ctx, cancel := context.WithCancel(request.Context())
			defer cancel()
			defer context.AfterFunc(trust, cancel)()
			request = request.WithContext(ctx)
		}
		handler.ServeHTTP(w, request)
	})
}

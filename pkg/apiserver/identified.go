/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/unavailable"
)

// withIdentifiedStorage refuses requests for a record while the storage must not be trusted.
// Lists and watches pass, with a warning: nobody decides anything by them alone, and the
// controllers could not start without. Configurations pass, so that they can be created
// again.
func withIdentifiedStorage(handler http.Handler, problem func() error, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		ctx := request.Context()
		info, ok := genericapirequest.RequestInfoFrom(ctx)
		if !ok {
			responsewriters.InternalError(w, request, errors.New("the request carries no information about itself"))
			return
		}
		reason := problem()
		switch {
		case reason == nil || !info.IsResourceRequest || info.APIGroup != nsinit.GroupName || info.Resource != "namespacelifecycles":
			handler.ServeHTTP(w, request)
		case info.Verb == "list" || info.Verb == "watch":
			warning.AddWarning(ctx, "", reason.Error())
			handler.ServeHTTP(w, request)
		default:
			responsewriters.ErrorNegotiated(unavailable.New(reason), codecs, v1alpha1.SchemeGroupVersion, w, request)
		}
	})
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// maxStrategicPatch is the length, in bytes, of the longest strategic merge patch of a subresource. The time to merge lists of
// named entries grows with the square of their length: 64 KiB take 0.1 seconds, and 800 KiB take 13.
const maxStrategicPatch = 64 << 10

// withShortPatches refuses long strategic merge patches of subresources, which initializers can write.
func withShortPatches(handler http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(request.Context())
		kind, _, _ := strings.Cut(request.Header.Get("Content-Type"), ";") // as k8s.io/apiserver does
		if ok && info.Verb == "patch" && info.Subresource != "" && kind == string(types.StrategicMergePatchType) &&
			(request.ContentLength < 0 || request.ContentLength > maxStrategicPatch) {
			responsewriters.ErrorNegotiated(apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
				"a strategic merge patch of a subresource has at most %d bytes, and a Content-Length: patch only the entries of your initializer, or send a patch of type %s",
				maxStrategicPatch, types.ApplyYAMLPatchType)), codecs, v1alpha1.SchemeGroupVersion, w, request)
			return
		}
		handler.ServeHTTP(w, request)
	})
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// Stamp is the name of the webhook.
const Stamp = "stamp"

// NewStamp returns the webhook. namespace is that of nsinit. The webhook reads the list of exemptions there, live, so that a change
// applies immediately. The checker knows who may create a namespace on behalf of another user.
func NewStamp(configMaps typedcorev1.ConfigMapsGetter, namespace string, checker *authorization.Checker) Answer {
	return func(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return stamp(request, namespace, func() (*corev1.ConfigMap, error) {
			return configMaps.ConfigMaps(namespace).Get(ctx, installation.Exemptions, metav1.GetOptions{})
		}, func(name string) error { return checker.MayImpersonate(ctx, request.UserInfo, name) })
	}
}

// stamp admits the creation of a namespace with the stamp, or unchanged if it is exempt. It admits an
// update that opens a namespace with the name of the user. It refuses a creation if the list of exemptions
// cannot be read, or if it cannot be checked whether the user may create it on behalf of another one.
func stamp(request *admissionv1.AdmissionRequest, namespaceOfList string, list func() (*corev1.ConfigMap, error), mayImpersonate func(string) error) *admissionv1.AdmissionResponse {
	var namespace corev1.Namespace
	if request.Resource.Resource != "namespaces" || request.Resource.Group != "" ||
		request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		return refuse(request, http.StatusBadRequest, "the stamp is for namespaces that are created or opened, not for "+string(request.Operation)+" of "+request.Resource.Resource)
	}
	if err := json.Unmarshal(request.Object.Raw, &namespace); err != nil {
		return refuse(request, http.StatusBadRequest, fmt.Sprintf("cannot decode the namespace: %v", err))
	}
	if request.Operation == admissionv1.Update {
		return answerUpdate(request, &namespace)
	}
	exemptions, err := list()
	if err != nil {
		return refuse(request, http.StatusForbidden, fmt.Sprintf("cannot read the list of exemptions, ConfigMap %s/%s, without which no namespace is created: %v",
			namespaceOfList, installation.Exemptions, err))
	}
	if installation.ParseExemptions(exemptions).Exempt(installation.Creation{Name: namespace.Name, GenerateName: namespace.GenerateName,
		Creator: request.UserInfo.Username, Groups: request.UserInfo.Groups}) != nil {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	}
	// The name of a group with several lines would be read as several groups.
	groups := slices.DeleteFunc(slices.Clone(request.UserInfo.Groups), func(group string) bool { return strings.Contains(group, "\n") })
	annotations := with(namespace.Annotations, v1alpha1.AnnotationCreatedBy, request.UserInfo.Username)
	annotations[v1alpha1.AnnotationCreatedByGroups] = strings.Join(groups, "\n")
	delete(annotations, v1alpha1.AnnotationOpenedBy)
	if name, named := annotations[v1alpha1.AnnotationOnBehalfOf]; named && isValidCreator(name) {
		switch err := mayImpersonate(name); {
		case apierrors.IsServiceUnavailable(err):
			return refuse(request, http.StatusServiceUnavailable, err.Error())
		case err != nil:
			delete(annotations, v1alpha1.AnnotationOnBehalfOf)
		}
	}
	return patch(request,
		operation{"add", "/metadata/labels", with(namespace.Labels, v1alpha1.LabelInitializing, "true")},
		operation{"add", "/metadata/annotations", annotations})
}

// isValidCreator says whether a user can be named as the creator. The guard refuses other names to every client.
func isValidCreator(name string) bool {
	return name != "" && utf8.RuneCountInString(name) <= 512 && !strings.HasPrefix(name, "system:")
}

// answerUpdate stores the user who removes the label. kube-apiserver calls the webhook only for updates
// that remove it. The webhook checks this again, because another update must not store its user.
func answerUpdate(request *admissionv1.AdmissionRequest, namespace *corev1.Namespace) *admissionv1.AdmissionResponse {
	var oldNamespace corev1.Namespace
	if err := json.Unmarshal(request.OldObject.Raw, &oldNamespace); err != nil {
		return refuse(request, http.StatusBadRequest, fmt.Sprintf("cannot decode the old namespace: %v", err))
	}
	if !helper.IsClosed(&oldNamespace) || helper.IsClosed(namespace) {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	}
	return patch(request, operation{"add", "/metadata/annotations", with(namespace.Annotations, v1alpha1.AnnotationOpenedBy, request.UserInfo.Username)})
}

// operation is an operation of a JSON patch. An add replaces a member that exists.
type operation struct {
	Op    string            `json:"op"`
	Path  string            `json:"path"`
	Value map[string]string `json:"value"`
}

// patch admits a request with changes.
func patch(request *admissionv1.AdmissionRequest, operations ...operation) *admissionv1.AdmissionResponse {
	data, err := json.Marshal(operations)
	if err != nil {
		return refuse(request, http.StatusInternalServerError, err.Error())
	}
	return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true, Patch: data, PatchType: new(admissionv1.PatchTypeJSONPatch)}
}

// with returns a copy of a map, which may be nil, with another value of a key.
func with(values map[string]string, key, value string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, values)
	result[key] = value
	return result
}

func refuse(request *admissionv1.AdmissionRequest, code int32, message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: request.UID, Result: &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: metav1.StatusReasonForbidden, Message: message}}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package stamp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/installation"
)

// answer lets a namespace be created with the stamp, or as it is if it is exempt. It refuses it where
// nobody can tell.
func answer(request *admissionv1.AdmissionRequest, list func() (*corev1.ConfigMap, error)) *admissionv1.AdmissionResponse {
	var namespace corev1.Namespace
	if request.Resource.Resource != "namespaces" || request.Resource.Group != "" || request.Operation != admissionv1.Create {
		return refuse(request, http.StatusBadRequest, "the stamp is for new namespaces alone, not for "+string(request.Operation)+" of "+request.Resource.Resource)
	}
	if err := json.Unmarshal(request.Object.Raw, &namespace); err != nil {
		return refuse(request, http.StatusBadRequest, fmt.Sprintf("the namespace cannot be read: %v", err))
	}
	// A request that lets the server generate a name has none yet, and is never exempt.
	if namespace.Name != "" {
		exemptions, err := list()
		if err != nil {
			return refuse(request, http.StatusForbidden, fmt.Sprintf("cannot read the list of exempt namespaces, ConfigMap %s/%s, without which no namespace is created: %v",
				installation.Namespace, installation.Exemptions, err))
		}
		if installation.Exempt(exemptions).Has(namespace.Name) {
			return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
		}
	}
	patch, err := json.Marshal(operations(&namespace, request))
	if err != nil {
		return refuse(request, http.StatusInternalServerError, err.Error())
	}
	kind := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true, Patch: patch, PatchType: &kind}
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// operations overwrite what the user sent.
func operations(namespace *corev1.Namespace, request *admissionv1.AdmissionRequest) []operation {
	// A group whose name has several lines could pass for others, so it is left out.
	groups := slices.DeleteFunc(slices.Clone(request.UserInfo.Groups), func(group string) bool { return strings.Contains(group, "\n") })
	var all []operation
	set := func(field string, present map[string]string, key, value string) {
		if present == nil && !slices.ContainsFunc(all, func(o operation) bool { return o.Path == field }) {
			all = append(all, operation{"add", field, map[string]string{}})
		}
		all = append(all, operation{"add", field + "/" + strings.ReplaceAll(key, "/", "~1"), value})
	}
	set("/metadata/labels", namespace.Labels, v1alpha1.LabelInitializing, "true")
	set("/metadata/annotations", namespace.Annotations, v1alpha1.AnnotationCreatedBy, request.UserInfo.Username)
	set("/metadata/annotations", namespace.Annotations, v1alpha1.AnnotationCreatedByGroups, strings.Join(groups, "\n"))
	return all
}

func refuse(request *admissionv1.AdmissionRequest, code int32, why string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: request.UID, Result: &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: metav1.StatusReasonForbidden, Message: why}}
}

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

// answer lets a namespace be created with the stamp, or as it is if it is exempt, and be opened by
// hand with the name of the user. It refuses a creation where nobody can tell.
func answer(request *admissionv1.AdmissionRequest, list func() (*corev1.ConfigMap, error)) *admissionv1.AdmissionResponse {
	var namespace corev1.Namespace
	if request.Resource.Resource != "namespaces" || request.Resource.Group != "" ||
		request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		return refuse(request, http.StatusBadRequest, "the stamp is for namespaces that are created or opened, not for "+string(request.Operation)+" of "+request.Resource.Resource)
	}
	if err := json.Unmarshal(request.Object.Raw, &namespace); err != nil {
		return refuse(request, http.StatusBadRequest, fmt.Sprintf("the namespace cannot be read: %v", err))
	}
	if request.Operation == admissionv1.Update {
		return answerUpdate(request, &namespace)
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
	return patch(request, stamped(&namespace, request))
}

// answerUpdate records who removes the label. kube-apiserver asks only where it is removed by hand;
// that it is removed at all is looked at again, because the name would be wrong otherwise.
func answerUpdate(request *admissionv1.AdmissionRequest, namespace *corev1.Namespace) *admissionv1.AdmissionResponse {
	var old corev1.Namespace
	if err := json.Unmarshal(request.OldObject.Raw, &old); err != nil {
		return refuse(request, http.StatusBadRequest, fmt.Sprintf("the namespace as it was cannot be read: %v", err))
	}
	_, was := old.Labels[v1alpha1.LabelInitializing]
	if _, is := namespace.Labels[v1alpha1.LabelInitializing]; !was || is {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	}
	var o operations
	o.set("/metadata/annotations", namespace.Annotations, v1alpha1.AnnotationOpenedBy, request.UserInfo.Username)
	return patch(request, o)
}

// patch lets a request pass with changes.
func patch(request *admissionv1.AdmissionRequest, changes operations) *admissionv1.AdmissionResponse {
	data, err := json.Marshal(changes)
	if err != nil {
		return refuse(request, http.StatusInternalServerError, err.Error())
	}
	kind := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true, Patch: data, PatchType: &kind}
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// operations are a JSON patch.
type operations []operation

// set writes a key of a map, which may not be there.
func (o *operations) set(field string, present map[string]string, key, value string) {
	if present == nil && !slices.ContainsFunc(*o, func(o operation) bool { return o.Path == field }) {
		*o = append(*o, operation{"add", field, map[string]string{}})
	}
	*o = append(*o, operation{"add", pathOf(field, key), value})
}

func pathOf(field, key string) string { return field + "/" + strings.ReplaceAll(key, "/", "~1") }

// stamped returns what overwrites what the user sent.
func stamped(namespace *corev1.Namespace, request *admissionv1.AdmissionRequest) operations {
	// A group whose name has several lines could pass for others, so it is left out.
	groups := slices.DeleteFunc(slices.Clone(request.UserInfo.Groups), func(group string) bool { return strings.Contains(group, "\n") })
	var o operations
	o.set("/metadata/labels", namespace.Labels, v1alpha1.LabelInitializing, "true")
	o.set("/metadata/annotations", namespace.Annotations, v1alpha1.AnnotationCreatedBy, request.UserInfo.Username)
	o.set("/metadata/annotations", namespace.Annotations, v1alpha1.AnnotationCreatedByGroups, strings.Join(groups, "\n"))
	if _, forged := namespace.Annotations[v1alpha1.AnnotationOpenedBy]; forged {
		o = append(o, operation{Op: "remove", Path: pathOf("/metadata/annotations", v1alpha1.AnnotationOpenedBy)})
	}
	return o
}

func refuse(request *admissionv1.AdmissionRequest, code int32, why string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: request.UID, Result: &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: metav1.StatusReasonForbidden, Message: why}}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// FixListKind is the kind of a FixList.
const FixListKind = "NamespaceFixList"

// fixRequests bounds the requests of one fix. The next call has the rest.
const fixRequests = 100

// FixList has the fixes of a namespace.
type FixList struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string    `json:"namespace"`
	UID             types.UID `json:"uid,omitempty"`
	Items           []Fix     `json:"items"`
}

// Fix is a remedy that a program can apply: requests of the caller, each of which changes only the object that was diagnosed.
type Fix struct {
	Cause       Cause  `json:"cause"`
	Description string `json:"description"`
	// Risk is what is lost, or "".
	Risk string `json:"risk,omitempty"`
	// Requests are sent in this order, until one fails.
	Requests []Request `json:"requests"`
	// Controller is the program that is dead, with the evidence, if the remedy is what it has to do.
	Controller *Controller `json:"controller,omitempty"`
	// Digest identifies the UID of the namespace, the cause, the description, the controller and the requests, and with them the UID and
	// the resourceVersion of each object. For OrphanedContent, it identifies the UIDs of the content instead.
	Digest string `json:"digest"`
	// Applied means that the requests succeeded.
	Applied bool `json:"applied,omitempty"`
	// Content is what is deleted with the namespace.
	Content []types.UID `json:"-"`
}

// Request is a request to kube-apiserver. It fails if the object is not the one that was diagnosed, or has changed. For
// OrphanedContent, it fails if the namespace exists again, or is not the one that was created.
type Request struct {
	Verb        string `json:"verb"`
	Path        string `json:"path"`
	ContentType string `json:"contentType"`
	// Body is JSON.
	Body string `json:"body"`
	// Created requests are for the object that the request before created. For adds its UID.
	Created bool `json:"created,omitempty"`
}

// Fixes returns the remedies of a namespace that a program can apply. The errors are those of Diagnose.
//
// Finalizers are removed, and initializers and participants are skipped, only if the program that has to act is Dead.
func (d Diagnoser) Fixes(ctx context.Context, name string) (*FixList, error) {
	diagnosis, err := d.Diagnose(ctx, name)
	if err != nil {
		return nil, err
	}
	list := &FixList{TypeMeta: metav1.TypeMeta{Kind: FixListKind, APIVersion: APIVersion}, Namespace: name, UID: diagnosis.UID, Items: fixesOf(diagnosis.Findings)}
	for i, fix := range list.Items {
		list.Items[i].Digest = fix.digest(list)
	}
	if diagnosis.Phase == Gone && len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return list, nil
}

// fixesOf returns the fixes of findings, in the order of their causes.
func fixesOf(findings []Finding) []Fix {
	all, table := []Fix{}, causes()
	for _, finding := range findings {
		all = append(all, finding.Fixes...)
	}
	slices.SortStableFunc(all, func(a, b Fix) int { return cmp.Compare(indexOf(table, a.Cause), indexOf(table, b.Cause)) })
	return all
}

// digest returns the digest of a fix.
func (f Fix) digest(of *FixList) string {
	data, err := json.Marshal([]any{of.Namespace, of.UID, f.Cause, f.Description, f.Controller, f.Requests, f.Content})
	if err != nil { // strings can always be encoded
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch returns a request that changes an object if it is the one that was read.
func patch(path string, object metav1.Object, operations ...operation) Request {
	all := append([]operation{
		{"test", "/metadata/uid", object.GetUID()}, {"test", "/metadata/resourceVersion", object.GetResourceVersion()},
	}, operations...)
	return request(http.MethodPatch, path, string(types.JSONPatchType), all)
}

// removeEntry returns the operations that remove an entry of a list, if it is still there.
func removeEntry(list string, i int, field string, value any) []operation {
	entry := fmt.Sprintf("%s/%d", list, i)
	return []operation{{"test", path.Join(entry, field), value}, {Op: "remove", Path: entry}}
}

// remove returns a request that deletes an object if it is the one that was read. Without a resourceVersion, it was not read.
func remove(path string, object metav1.Object, gracePeriodSeconds *int64) Request {
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, GracePeriodSeconds: gracePeriodSeconds}
	if uid, version := object.GetUID(), object.GetResourceVersion(); version != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
	}
	return request(http.MethodDelete, path, "application/json", options)
}

func request(verb, path, contentType string, body any) Request {
	data, err := json.Marshal(body)
	if err != nil {
		data = []byte(err.Error()) // kube-apiserver refuses it
	}
	return Request{Verb: verb, Path: path, ContentType: contentType, Body: string(data)}
}

// For returns the body of the request. Created is the UID of the object that the request before created. Only deletions have it
// and the option for a dry run in their bodies.
func (r Request) For(created types.UID, dryRun bool) (string, error) {
	if r.Verb != http.MethodDelete {
		return r.Body, nil
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal([]byte(r.Body), &options); err != nil {
		return "", err
	}
	if r.Created {
		options.Preconditions = &metav1.Preconditions{UID: &created}
	}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	data, err := json.Marshal(options)
	return string(data), err
}

// pathOf returns the path of an object in the namespace.
func (o Observation) pathOf(resource schema.GroupVersionResource, name string) string {
	root := "/apis/" + resource.Group
	if resource.Group == "" {
		root = "/api"
	}
	return path.Join(root, resource.Version, "namespaces", o.Name, resource.Resource, name)
}

func (o Observation) namespacePath() string { return "/api/v1/namespaces/" + o.Name }

// newFix returns a fix with the first of these requests, because a program is dead, if one is given.
func newFix(cause Cause, dead *Controller, description, risk string, requests ...Request) Fix {
	if more := len(requests) - fixRequests; more > 0 {
		description += fmt.Sprintf(" (the first %d; %d more remain)", fixRequests, more)
	}
	return Fix{Cause: cause, Controller: dead, Description: description, Risk: risk, Requests: slices.Clip(requests[:min(len(requests), fixRequests)])}
}

// isDead reports whether a program has to act that does not run any more.
func (f *Finding) isDead() bool { return f.Controller != nil && f.Controller.State == Dead }

// fix adds a fix to a finding.
func (f *Finding) fix(description, risk string, requests ...Request) {
	f.Fixes = append(f.Fixes, newFix(f.Cause, f.Controller, description, risk, requests...))
}

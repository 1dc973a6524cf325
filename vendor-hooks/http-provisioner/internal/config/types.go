/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package config reads what http-provisioner provisions: a file that names a server, and the
// requests that are sent to it for each namespace.
package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// APIVersion and Kind are those of the file.
	APIVersion = "http-provisioner.nsinit.dev/v1alpha1"
	Kind       = "HTTPProvisioner"
)

// HTTPProvisioner is the content of the file. Texts may hold CEL expressions in ${...}, which see
// namespaceObject, creator, creatorGroups and idempotencyKey and, once there was an answer,
// response (the last one) and operation (the first one), with the fields status, headers (by
// lower-case names), body (what JSON it is, or null) and text.
type HTTPProvisioner struct {
	metav1.TypeMeta `json:",inline"`

	// Initializer is the name under which it is registered. Required.
	Initializer string `json:"initializer"`
	// Configuration is the NamespaceInitializerConfiguration in which it registers itself.
	// Empty: somebody else does.
	Configuration string `json:"configuration,omitempty"`
	// Server is where requests are sent. Required.
	Server Server `json:"server"`
	// Provision is what is done before a namespace opens. Required.
	Provision Operation `json:"provision"`
	// Deprovision is what is done before a namespace disappears. Its expressions should need
	// the name and the UID of the namespace alone: of one that was removed by force, nothing
	// else is known. Absent: nothing is done.
	Deprovision *Operation `json:"deprovision,omitempty"`
	// Publish is what namespaces get to know.
	Publish []Publication `json:"publish,omitempty"`
}

// Server is where requests are sent.
type Server struct {
	// URL has a scheme, a host, and perhaps a path before the paths of requests. Where requests
	// carry credentials, from Secret or in a header, the scheme is https, except for a server on
	// a loopback address. Required.
	URL string `json:"url"`
	// Secret holds credentials and certificates. It is read for each namespace.
	Secret *SecretReference `json:"secret,omitempty"`
	// IdempotencyHeader is sent with each request. It holds the same key for each try of one
	// operation for one namespace. Idempotency-Key, unless it is set.
	IdempotencyHeader string `json:"idempotencyHeader,omitempty"`
	// Timeout bounds one request, 30s unless it is set.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// SecretReference names a Secret, of which these keys are used: username and password for basic
// authentication, token as a bearer token, ca.crt to verify the server, and tls.crt and tls.key as
// the client's certificate.
type SecretReference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Operation is a request, and what has to come of it.
type Operation struct {
	Request `json:",inline"`
	// Poll asks for the end of an operation that goes on after its request was answered.
	Poll *Poll `json:"poll,omitempty"`
}

// Request is one request.
type Request struct {
	// Method is that of HTTP. Required.
	Method string `json:"method"`
	// Path is what follows the server's URL, with a query perhaps. What its expressions yield is
	// escaped.
	Path string `json:"path,omitempty"`
	// Headers are more headers.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is sent as JSON. Absent: there is none.
	Body any `json:"body,omitempty"`
	// Expect is a CEL expression that says whether the answer is good. Unless it is set, a status
	// from 200 to 299 is, and 404 to take away what is not there.
	Expect string `json:"expect,omitempty"`
	// FailWhen is a CEL expression that says of an answer that is not good that no other try would
	// be, so that the initialization fails, and the namespace with it. Absent: it is tried again.
	FailWhen string `json:"failWhen,omitempty"`
}

// Poll is a request that is sent again and again.
type Poll struct {
	Request `json:",inline"`
	// Location is a text instead of a path, what the server answered for instance, that yields a
	// URL of the same server, or a path on it. It is not escaped.
	Location string `json:"location,omitempty"`
	// Until is a CEL expression that says of a good answer whether this is the end. Required.
	Until string `json:"until"`
	// Interval is the time between two requests, 2s unless it is set.
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Timeout is the time after which the whole operation is tried again, 10m unless it is set.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Publication is an object in the namespace that tells of what was provisioned.
type Publication struct {
	// Kind is ConfigMap or Secret. Required.
	Kind string `json:"kind"`
	// Name is the name of the object. Required.
	Name string `json:"name"`
	// Data are its values.
	Data map[string]string `json:"data"`
}

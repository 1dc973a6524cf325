/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/expressions"
)

const (
	// APIVersion and Kind are those of the file.
	APIVersion = "http-provisioner.nsinit.dev/v1alpha1"
	Kind       = "HTTPProvisioner"
)

// HTTPProvisioner is the content of the file. Strings can contain CEL expressions in ${...}. Their
// variables are namespaceObject, creator, creatorGroups, requester and idempotencyKey and, after the first response,
// operation (the first response) and response (the last one). A response has the fields status, headers
// (with lower-case names), body (parsed JSON, or null) and text. Load sets the defaults, and the fields that are not exported: the
// compiled expressions.
type HTTPProvisioner struct {
	metav1.TypeMeta `json:",inline"`

	// Initializer is the name of the registered initializer. Required.
	Initializer string `json:"initializer"`
	// Configuration is the NamespaceInitializerConfiguration in which http-provisioner registers
	// itself. Empty: an administrator registers it.
	Configuration string `json:"configuration,omitempty"`
	// Server receives the requests. Required.
	Server Server `json:"server"`
	// Provision is the operation before a namespace opens. Required.
	Provision Operation `json:"provision"`
	// Deprovision is the operation before a namespace is removed. Its expressions should use only
	// the name and the UID of the namespace: after a removal by force, the other fields are
	// unknown. Absent: there is nothing to do.
	Deprovision *Operation `json:"deprovision,omitempty"`
	// Publish lists objects to write into the namespace.
	Publish []Publication `json:"publish,omitempty"`
}

// Server receives the requests.
type Server struct {
	// URL has a scheme, a host, and optionally a path before the paths of requests. If requests
	// have credentials, from Secret or in a header, the scheme is https, except for a loopback
	// address. Required.
	URL string `json:"url"`
	// Secret has credentials and certificates. It is read for each namespace.
	Secret *SecretReference `json:"secret,omitempty"`
	// IdempotencyHeader is the name of the header with the idempotency key, which is the same for
	// each try of one operation for one namespace. The default is Idempotency-Key.
	IdempotencyHeader string `json:"idempotencyHeader,omitempty"`
	// Timeout bounds one request. The default is 30s.
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	url *url.URL
}

// SecretReference names a Secret with these optional keys: username and password for basic
// authentication, token for a bearer token, ca.crt to verify the server, and tls.crt and tls.key for the
// client certificate.
type SecretReference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Operation is a request, and how to wait for its completion.
type Operation struct {
	Request `json:",inline"`
	// Poll is for an operation that continues after the response to its request.
	Poll *Poll `json:"poll,omitempty"`
}

// Request is one request.
type Request struct {
	// Method is the HTTP method. Required.
	Method string `json:"method"`
	// Path follows the URL of the server, optionally with a query. The values of its expressions
	// are escaped.
	Path string `json:"path,omitempty"`
	// Headers are additional headers.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is sent as JSON. Absent: the request has no body.
	Body any `json:"body,omitempty"`
	// Expect is a CEL expression that is true for a successful response. By default, a status from
	// 200 to 299 is successful, and 404 of Deprovision.
	Expect string `json:"expect,omitempty"`
	// FailWhen is a CEL expression that is true if a retry after an unsuccessful response is
	// useless. Then the initialization fails, and the namespace is deleted. Absent: every
	// unsuccessful response is retried.
	FailWhen string `json:"failWhen,omitempty"`

	path             *expressions.Text
	headers          map[string]*expressions.Text
	body             *expressions.Template // nil: there is none
	expect, failWhen *expressions.Condition
}

// Poll is a request that is repeated until an operation is complete.
type Poll struct {
	Request `json:",inline"`
	// Location is used instead of Path. It yields a URL of the same server, or a path on it, for
	// example from a header of the response. Its values are not escaped.
	Location string `json:"location,omitempty"`
	// Until is a CEL expression that is true if a successful response completes the operation. Required.
	Until string `json:"until"`
	// Interval is the time between two requests. The default is 2s.
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Timeout is the time after which the whole operation is retried. The default is 10m.
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	location *expressions.Text // nil: use the path
	until    *expressions.Condition
}

// Publication is an object in the namespace with data of the provisioned resource.
type Publication struct {
	// Kind is ConfigMap or Secret. Required.
	Kind string `json:"kind"`
	// Name is the name of the object. Required.
	Name string `json:"name"`
	// Data are its values.
	Data map[string]string `json:"data"`

	data map[string]*expressions.Text
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"strings"
	"testing"
)

const minimal = `
apiVersion: http-provisioner.nsinit.dev/v1alpha1
kind: HTTPProvisioner
initializer: a.example.com
server: {url: "https://x.example.com"}
provision: {method: PUT, path: /a}
`

// TestDocumented: the example is valid, and has what is documented.
func TestDocumented(t *testing.T) {
	p, err := LoadFile("../../manifests/log-index.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if p.Initializer != "log-index.example.com" || p.Configuration != "20-log-index" || p.Provision.Body == nil || p.Provision.Poll != nil || p.Deprovision.Method != "DELETE" ||
		len(p.Publish) != 1 || p.Server.IdempotencyHeader != "Idempotency-Key" || p.Server.Timeout.Duration != defaultTimeout {
		t.Errorf("loaded %+v", p)
	}
}

// TestPlainHTTP: a server without TLS gets no credentials, except on this machine.
func TestPlainHTTP(t *testing.T) {
	for _, server := range []string{
		`{url: "http://x.example.com"}`,
		`{url: "http://localhost:8080", secret: {namespace: a, name: b}}`,
		`{url: "http://127.1.2.3", secret: {namespace: a, name: b}}`,
		`{url: "http://[::1]:8080", secret: {namespace: a, name: b}}`,
	} {
		if _, err := Load([]byte(strings.Replace(minimal, `{url: "https://x.example.com"}`, server, 1))); err != nil {
			t.Errorf("%s: %v", server, err)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	if _, err := Load([]byte(minimal)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		old, new string
		want     []string
	}{
		"not YAML":               {"apiVersion", "{", []string{"yaml"}},
		"an unknown field":       {"provision: {", "provision: {verb: x, ", []string{`unknown field "verb"`}},
		"another kind":           {"kind: HTTPProvisioner", "kind: Pod", []string{"must be a file of kind HTTPProvisioner"}},
		"no name":                {"initializer: a.example.com", "", []string{"initializer: Required"}},
		"no URL":                 {"https://x.example.com", "", []string{"server.url: Invalid"}},
		"a scheme":               {"https://x", "ftp://x", []string{"server.url: Invalid", "give a URL such as"}},
		"credentials in the URL": {"https://x", "https://user:secret@x", []string{"server.url: Invalid", "credentials belong in the Secret"}},
		"plain HTTP, a Secret":   {`server: {url: "https://x.example.com"}`, `server: {url: "http://x.example.com", secret: {namespace: a, name: b}}`, []string{"server.url: Invalid", "credentials are sent over TLS only"}},
		"plain HTTP, an address": {`server: {url: "https://x.example.com"}`, `server: {url: "http://10.0.0.1:80", secret: {namespace: a, name: b}}`, []string{"server.url: Invalid", "credentials are sent over TLS only"}},
		"plain HTTP, a header":   {`https://x.example.com"}`, `http://x.example.com"}` + "\ndeprovision: {method: DELETE, headers: {authorization: Bearer x}}", []string{"server.url: Invalid", "credentials are sent over TLS only"}},
		"a timeout":              {`server: {`, `server: {timeout: -1s, `, []string{"server.timeout: Invalid", "positive"}},
		"a header's name":        {`server: {`, `server: {idempotencyHeader: "a b", `, []string{"server.idempotencyHeader: Invalid"}},
		"a Secret":               {`server: {`, `server: {secret: {name: ""}, `, []string{"server.secret.namespace: Required", "server.secret.name: Required"}},
		"a method":               {"method: PUT", "method: FETCH", []string{"provision.method: Unsupported"}},
		"a path":                 {"path: /a", "path: a", []string{"provision.path: Invalid", "must begin with /"}},
		"an expression":          {"path: /a", `path: "/${unknown}"`, []string{"provision.path: Invalid", "undeclared reference"}},
		"a body":                 {"path: /a", `body: {a: ["${creator +}"]}`, []string{"provision.body.a[0]: Invalid"}},
		"headers":                {"path: /a", `headers: {"a b": x, c: "${d}"}`, []string{"provision.headers: Invalid", "provision.headers[c]: Invalid"}},
		"conditions":             {"path: /a", `expect: creator, failWhen: "1"`, []string{"provision.expect: Invalid", "provision.failWhen: Invalid"}},
		"a poll without end":     {"path: /a", "poll: {method: GET}", []string{"provision.poll.until: Required"}},
		"a poll of two places":   {"path: /a", "poll: {method: GET, path: /a, location: /b, until: 'true', interval: 0s}", []string{"provision.poll.path: Forbidden", "provision.poll.interval: Invalid"}},
		"a publication":          {"provision:", "publish: [{kind: Pod, name: A_B, data: {'a/b': x, c: '${d}'}}]\nprovision:", []string{"publish[0].kind: Unsupported", "publish[0].name: Invalid", "publish[0].data: Invalid", "publish[0].data[c]: Invalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load([]byte(strings.Replace(minimal, test.old, test.new, 1)))
			if err == nil {
				t.Fatal("it is valid")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "secret@") {
				t.Errorf("the error contains the password: %v", err)
			}
		})
	}
}

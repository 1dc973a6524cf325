/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/pkg/expressions"
)

const (
	defaultIdempotencyHeader = "Idempotency-Key"
	defaultTimeout           = 30 * time.Second
	defaultInterval          = 2 * time.Second
	defaultPollTimeout       = 10 * time.Minute

	good       = "response.status >= 200 && response.status <= 299"
	goodIfGone = good + " || response.status == 404"
)

// Compiled is an HTTPProvisioner whose expressions were compiled, with defaults.
type Compiled struct {
	Initializer, Configuration string
	URL                        *url.URL
	Secret                     *SecretReference
	IdempotencyHeader          string
	Timeout                    time.Duration
	Provision                  *CompiledOperation
	Deprovision                *CompiledOperation // nil: there is nothing to do
	Publish                    []CompiledPublication
}

// CompiledOperation is an Operation.
type CompiledOperation struct {
	CompiledRequest
	Poll *CompiledPoll // nil: the first response completes the operation
}

// CompiledRequest is a Request.
type CompiledRequest struct {
	Method   string
	Path     *expressions.Text
	Headers  map[string]*expressions.Text
	Body     *expressions.Template // nil: there is none
	Expect   *expressions.Condition
	FailWhen *expressions.Condition // nil: never
}

// CompiledPoll is a Poll.
type CompiledPoll struct {
	CompiledRequest
	Location          *expressions.Text // nil: use the path
	Until             *expressions.Condition
	Interval, Timeout time.Duration
}

// CompiledPublication is a Publication.
type CompiledPublication struct {
	Kind, Name string
	Data       map[string]*expressions.Text
}

// LoadFile reads and compiles a file.
func LoadFile(path string) (*Compiled, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the administrator names the file
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	provisioner, err := Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s is not valid: %w", path, err)
	}
	return provisioner, nil
}

// Load compiles the content of a file, and returns all errors in it.
func Load(data []byte) (*Compiled, error) {
	var file HTTPProvisioner
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, err
	}
	c := compiler{}
	var err error
	if c.Environment, err = expressions.NewEnvironment("idempotencyKey", "response", "operation"); err != nil {
		return nil, err
	}
	provisioner := c.compile(&file)
	return provisioner, c.errs.ToAggregate()
}

// compiler collects errors.
type compiler struct {
	*expressions.Environment
	errs field.ErrorList
	// credentials is true if a request has a header with credentials.
	credentials bool
}

func (c *compiler) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

func (c *compiler) compile(file *HTTPProvisioner) *Compiled {
	if file.APIVersion != APIVersion || file.Kind != Kind {
		c.add(field.Invalid(field.NewPath("apiVersion"), file.APIVersion, fmt.Sprintf("must be a file of kind %s of %s", Kind, APIVersion)))
	}
	p := &Compiled{
		Initializer: file.Initializer, Configuration: file.Configuration, Secret: file.Server.Secret,
		IdempotencyHeader: defaultIdempotencyHeader, Timeout: c.duration(file.Server.Timeout, defaultTimeout, field.NewPath("server", "timeout")),
		Provision: c.operation(&file.Provision, good, field.NewPath("provision")),
	}
	if file.Initializer == "" {
		c.add(field.Required(field.NewPath("initializer"), "give the name of the registered initializer"))
	}
	if file.Deprovision != nil {
		p.Deprovision = c.operation(file.Deprovision, goodIfGone, field.NewPath("deprovision"))
	}
	c.server(p, &file.Server)
	for i, publication := range file.Publish {
		p.Publish = append(p.Publish, c.publication(&publication, field.NewPath("publish").Index(i)))
	}
	return p
}

func (c *compiler) server(p *Compiled, server *Server) {
	path := field.NewPath("server")
	var err error
	p.URL, err = url.Parse(server.URL)
	switch {
	case err != nil:
		c.add(field.Invalid(path.Child("url"), server.URL, err.Error()))
	case p.URL.Scheme != "https" && p.URL.Scheme != "http" || p.URL.Host == "":
		c.add(field.Invalid(path.Child("url"), server.URL, "give a URL such as https://logs.example.com:9200"))
	case p.URL.User != nil || p.URL.RawQuery != "" || p.URL.Fragment != "":
		c.add(field.Invalid(path.Child("url"), p.URL.Redacted(), "leave out user, query and fragment: credentials belong in the Secret"))
	case p.URL.Scheme == "http" && !isLoopback(p.URL.Hostname()) && (server.Secret != nil || c.credentials):
		c.add(field.Invalid(path.Child("url"), server.URL, "credentials are sent over TLS only: use https, or remove server.secret and the headers with credentials"))
	}
	if server.IdempotencyHeader != "" {
		p.IdempotencyHeader = server.IdempotencyHeader
		if !httpguts.ValidHeaderFieldName(server.IdempotencyHeader) {
			c.add(field.Invalid(path.Child("idempotencyHeader"), server.IdempotencyHeader, "it is not a valid name of a header"))
		}
	}
	if secret := server.Secret; secret != nil {
		if secret.Namespace == "" {
			c.add(field.Required(path.Child("secret", "namespace"), "give the namespace of the Secret"))
		}
		if secret.Name == "" {
			c.add(field.Required(path.Child("secret", "name"), "give the name of the Secret"))
		}
	}
}

// isLoopback returns whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// holdsCredentials returns whether HTTP defines a header for credentials.
func holdsCredentials(header string) bool {
	return slices.Contains([]string{"Authorization", "Proxy-Authorization", "Cookie"}, http.CanonicalHeaderKey(header))
}

func (c *compiler) operation(o *Operation, expect string, path *field.Path) *CompiledOperation {
	compiled := &CompiledOperation{CompiledRequest: c.request(&o.Request, expect, path)}
	if o.Poll == nil {
		return compiled
	}
	pollPath := path.Child("poll")
	poll := &CompiledPoll{
		CompiledRequest: c.request(&o.Poll.Request, good, pollPath),
		Interval:        c.duration(o.Poll.Interval, defaultInterval, pollPath.Child("interval")),
		Timeout:         c.duration(o.Poll.Timeout, defaultPollTimeout, pollPath.Child("timeout")),
	}
	if o.Poll.Location != "" {
		poll.Location = c.text(o.Poll.Location, pollPath.Child("location"))
		if o.Poll.Path != "" {
			c.add(field.Forbidden(pollPath.Child("path"), "give a path or a location, not both"))
		}
	}
	if o.Poll.Until == "" {
		c.add(field.Required(pollPath.Child("until"), "give an expression that is true at the end, such as response.body.completed"))
	} else {
		poll.Until = c.condition(o.Poll.Until, pollPath.Child("until"))
	}
	compiled.Poll = poll
	return compiled
}

func (c *compiler) request(r *Request, expect string, path *field.Path) CompiledRequest {
	compiled := CompiledRequest{Method: r.Method, Path: c.text(r.Path, path.Child("path")), Headers: map[string]*expressions.Text{}}
	if methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}; !slices.Contains(methods, r.Method) {
		c.add(field.NotSupported(path.Child("method"), r.Method, methods))
	}
	if r.Path != "" && !strings.HasPrefix(r.Path, "/") {
		c.add(field.Invalid(path.Child("path"), r.Path, "it must begin with /"))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if !httpguts.ValidHeaderFieldName(name) {
			c.add(field.Invalid(path.Child("headers"), name, "it is not a valid name of a header"))
		}
		c.credentials = c.credentials || holdsCredentials(name)
		compiled.Headers[name] = c.text(r.Headers[name], path.Child("headers").Key(name))
	}
	if r.Body != nil {
		body, errs := c.Template(r.Body, path.Child("body"))
		compiled.Body = body
		c.add(errs...)
	}
	if r.Expect != "" {
		expect = r.Expect
	}
	compiled.Expect = c.condition(expect, path.Child("expect"))
	if r.FailWhen != "" {
		compiled.FailWhen = c.condition(r.FailWhen, path.Child("failWhen"))
	}
	return compiled
}

func (c *compiler) publication(p *Publication, path *field.Path) CompiledPublication {
	compiled := CompiledPublication{Kind: p.Kind, Name: p.Name, Data: map[string]*expressions.Text{}}
	if kinds := []string{"ConfigMap", "Secret"}; !slices.Contains(kinds, p.Kind) {
		c.add(field.NotSupported(path.Child("kind"), p.Kind, kinds))
	}
	for _, problem := range validation.NameIsDNSSubdomain(p.Name, false) {
		c.add(field.Invalid(path.Child("name"), p.Name, problem))
	}
	for _, key := range slices.Sorted(maps.Keys(p.Data)) {
		for _, problem := range utilvalidation.IsConfigMapKey(key) {
			c.add(field.Invalid(path.Child("data"), key, problem))
		}
		compiled.Data[key] = c.text(p.Data[key], path.Child("data").Key(key))
	}
	return compiled
}

func (c *compiler) text(source string, path *field.Path) *expressions.Text {
	text, errs := c.Text(source, path)
	c.add(errs...)
	return text
}

func (c *compiler) condition(source string, path *field.Path) *expressions.Condition {
	condition, err := c.Condition(source)
	if err != nil {
		c.add(field.Invalid(path, source, err.Error()))
	}
	return condition
}

func (c *compiler) duration(given *metav1.Duration, otherwise time.Duration, path *field.Path) time.Duration {
	if given == nil {
		return otherwise
	}
	if given.Duration <= 0 {
		c.add(field.Invalid(path, given.Duration.String(), "give a positive duration"))
	}
	return given.Duration
}

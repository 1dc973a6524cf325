/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"cmp"
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

// LoadFile reads and compiles a file.
func LoadFile(path string) (*HTTPProvisioner, error) {
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
func Load(data []byte) (*HTTPProvisioner, error) {
	provisioner := &HTTPProvisioner{}
	if err := yaml.UnmarshalStrict(data, provisioner); err != nil {
		return nil, err
	}
	environment, err := expressions.NewEnvironment("idempotencyKey", "response", "operation")
	if err != nil {
		return nil, err
	}
	c := compiler{Environment: environment}
	c.compile(provisioner)
	return provisioner, c.errs.ToAggregate()
}

// compiler sets defaults and compiles expressions. It collects errors.
type compiler struct {
	*expressions.Environment
	errs field.ErrorList
	// credentials is true if a request has a header with credentials.
	credentials bool
}

func (c *compiler) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

func (c *compiler) required(value string, path *field.Path, help string) {
	if value == "" {
		c.add(field.Required(path, help))
	}
}

func (c *compiler) compile(p *HTTPProvisioner) {
	if p.APIVersion != APIVersion || p.Kind != Kind {
		c.add(field.Invalid(field.NewPath("apiVersion"), p.APIVersion, fmt.Sprintf("must be a file of kind %s of %s", Kind, APIVersion)))
	}
	c.required(p.Initializer, field.NewPath("initializer"), "give the name of the registered initializer")
	c.operation(&p.Provision, good, field.NewPath("provision"))
	if p.Deprovision != nil {
		c.operation(p.Deprovision, goodIfGone, field.NewPath("deprovision"))
	}
	c.server(&p.Server, field.NewPath("server"))
	for i := range p.Publish {
		c.publication(&p.Publish[i], field.NewPath("publish").Index(i))
	}
}

func (c *compiler) server(s *Server, path *field.Path) {
	var err error
	s.url, err = url.Parse(s.URL)
	switch {
	case err != nil:
		c.add(field.Invalid(path.Child("url"), s.URL, err.Error()))
	case s.url.Scheme != "https" && s.url.Scheme != "http" || s.url.Host == "":
		c.add(field.Invalid(path.Child("url"), s.URL, "give a URL such as https://logs.example.com:9200"))
	case s.url.User != nil || s.url.RawQuery != "" || s.url.Fragment != "":
		c.add(field.Invalid(path.Child("url"), s.url.Redacted(), "leave out user, query and fragment: credentials belong in the Secret"))
	case s.url.Scheme == "http" && !isLoopback(s.url.Hostname()) && (s.Secret != nil || c.credentials):
		c.add(field.Invalid(path.Child("url"), s.URL, "credentials are sent over TLS only: use https, or remove server.secret and the headers with credentials"))
	}
	c.duration(&s.Timeout, defaultTimeout, path.Child("timeout"))
	s.IdempotencyHeader = cmp.Or(s.IdempotencyHeader, defaultIdempotencyHeader)
	if !httpguts.ValidHeaderFieldName(s.IdempotencyHeader) {
		c.add(field.Invalid(path.Child("idempotencyHeader"), s.IdempotencyHeader, "it is not a valid name of a header"))
	}
	if s.Secret != nil {
		c.required(s.Secret.Namespace, path.Child("secret", "namespace"), "give the namespace of the Secret")
		c.required(s.Secret.Name, path.Child("secret", "name"), "give the name of the Secret")
	}
}

// isLoopback returns whether a host is this machine.
func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// holdsCredentials returns whether HTTP defines a header for credentials.
func holdsCredentials(header string) bool {
	return slices.Contains([]string{"Authorization", "Proxy-Authorization", "Cookie"}, http.CanonicalHeaderKey(header))
}

func (c *compiler) operation(o *Operation, expect string, path *field.Path) {
	c.request(&o.Request, expect, path)
	if o.Poll == nil {
		return
	}
	poll, path := o.Poll, path.Child("poll")
	c.request(&poll.Request, good, path)
	c.duration(&poll.Interval, defaultInterval, path.Child("interval"))
	c.duration(&poll.Timeout, defaultPollTimeout, path.Child("timeout"))
	if poll.Location != "" {
		poll.location = c.text(poll.Location, path.Child("location"))
		if poll.Path != "" {
			c.add(field.Forbidden(path.Child("path"), "give a path or a location, not both"))
		}
	}
	c.required(poll.Until, path.Child("until"), "give an expression that is true at the end, such as response.body.completed")
	poll.until = c.condition(poll.Until, path.Child("until"))
}

func (c *compiler) request(r *Request, expect string, path *field.Path) {
	if methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}; !slices.Contains(methods, r.Method) {
		c.add(field.NotSupported(path.Child("method"), r.Method, methods))
	}
	if r.Path != "" && !strings.HasPrefix(r.Path, "/") {
		c.add(field.Invalid(path.Child("path"), r.Path, "it must begin with /"))
	}
	r.path = c.text(r.Path, path.Child("path"))
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if !httpguts.ValidHeaderFieldName(name) {
			c.add(field.Invalid(path.Child("headers"), name, "it is not a valid name of a header"))
		}
		c.credentials = c.credentials || holdsCredentials(name)
	}
	r.headers = c.texts(r.Headers, path.Child("headers"))
	if r.Body != nil {
		body, errs := c.Template(r.Body, path.Child("body"))
		r.body = body
		c.add(errs...)
	}
	r.expect = c.condition(cmp.Or(r.Expect, expect), path.Child("expect"))
	r.failWhen = c.condition(r.FailWhen, path.Child("failWhen"))
}

func (c *compiler) publication(p *Publication, path *field.Path) {
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
	}
	p.data = c.texts(p.Data, path.Child("data"))
}

func (c *compiler) texts(sources map[string]string, path *field.Path) map[string]*expressions.Text {
	texts := map[string]*expressions.Text{}
	for _, key := range slices.Sorted(maps.Keys(sources)) {
		texts[key] = c.text(sources[key], path.Key(key))
	}
	return texts
}

func (c *compiler) text(source string, path *field.Path) *expressions.Text {
	text, errs := c.Text(source, path)
	c.add(errs...)
	return text
}

// condition returns nil for an empty source.
func (c *compiler) condition(source string, path *field.Path) *expressions.Condition {
	if source == "" {
		return nil
	}
	condition, err := c.Condition(source)
	if err != nil {
		c.add(field.Invalid(path, source, err.Error()))
	}
	return condition
}

func (c *compiler) duration(given **metav1.Duration, otherwise time.Duration, path *field.Path) {
	if *given == nil {
		*given = &metav1.Duration{Duration: otherwise}
	}
	if (*given).Duration <= 0 {
		c.add(field.Invalid(path, (*given).Duration.String(), "give a positive duration"))
	}
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/expressions"
)

// The keys of the Secret.
const (
	keyUsername = "username"
	keyPassword = "password"
	keyToken    = "token"
	keyCA       = "ca.crt"
)

// server sends requests with credentials.
type server struct {
	config *Server
	client *http.Client
	// version is that of the Secret.
	version string
}

// server returns the server with the current content of the Secret.
func (p *Provisioner) server(ctx context.Context) (*server, error) {
	config, secret := &p.config.Server, &corev1.Secret{}
	if reference := config.Secret; reference != nil {
		var err error
		secret, err = p.core.CoreV1().Secrets(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot read the Secret with the credentials: %w", err)
		}
	}
	version := string(secret.UID) + "/" + secret.ResourceVersion
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && p.current.version == version {
		return p.current, nil
	}
	transport, err := newTransport(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s is not valid: %w", secret.Namespace, secret.Name, err)
	}
	if p.current != nil {
		utilnet.CloseIdleConnectionsFor(p.current.client.Transport)
	}
	p.current = &server{config: config, version: version, client: &http.Client{
		Transport: transport,
		Timeout:   config.Timeout.Duration,
		// Credentials are sent only to the configured server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return p.current, nil
}

// newTransport returns a transport with the credentials and certificates of a Secret. A token takes
// precedence over a password.
func newTransport(secret map[string][]byte) (http.RoundTripper, error) {
	if ca, given := secret[keyCA]; given && len(ca) == 0 {
		return nil, fmt.Errorf("%s is empty", keyCA)
	}
	if (len(secret[corev1.TLSCertKey]) == 0) != (len(secret[corev1.TLSPrivateKeyKey]) == 0) {
		return nil, fmt.Errorf("it needs both or none of %s and %s", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	config := &rest.Config{
		BearerToken: strings.TrimSpace(string(secret[keyToken])),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: secret[keyCA], CertData: secret[corev1.TLSCertKey], KeyData: secret[corev1.TLSPrivateKeyKey],
		},
	}
	if config.BearerToken == "" {
		config.Username, config.Password = string(secret[keyUsername]), string(secret[keyPassword])
	}
	return rest.TransportFor(config)
}

// nothing stands for an empty result of an expression. No escaped result contains it.
const nothing = "<nothing>"

// path returns the URL of a path on the server. No value of an expression can change the server or the
// segments of the path.
func (s *server) path(path *expressions.Text, variables map[string]any) (*url.URL, error) {
	rendered, err := path.Render(variables, func(value string) string {
		return cmp.Or(strings.ReplaceAll(url.QueryEscape(value), "+", "%20"), nothing)
	})
	if err != nil {
		return nil, err
	}
	location, _, _ := strings.Cut(rendered, "?")
	if strings.Contains(location, nothing) {
		return nil, fmt.Errorf("the path %q has an expression without a value (%s), which leads to another path: use an expression that always has a value", rendered, nothing)
	}
	rendered = strings.ReplaceAll(rendered, nothing, "") // in the query
	if slices.ContainsFunc(strings.Split(location, "/"), func(segment string) bool { return segment == "." || segment == ".." }) {
		return nil, fmt.Errorf("the path %q has a segment . or .., which can lead to another path: remove it", rendered)
	}
	target, err := url.Parse(strings.TrimSuffix(s.config.url.String(), "/") + rendered)
	if err != nil {
		return nil, fmt.Errorf("the path %q: %w", rendered, err)
	}
	return target, nil
}

// target returns the URL of a poll.
func (s *server) target(poll *Poll, variables map[string]any) (*url.URL, error) {
	if poll.location == nil {
		return s.path(poll.path, variables)
	}
	location, err := poll.location.Render(variables, nil)
	if err != nil {
		return nil, err
	}
	relative, err := url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("the location %q: %w", location, err)
	}
	target := s.config.url.ResolveReference(relative)
	if target.Scheme != s.config.url.Scheme || target.Host != s.config.url.Host || target.User != nil {
		return nil, errors.New("the location " + target.Redacted() + " is on another server, to which credentials are not sent")
	}
	return target, nil
}

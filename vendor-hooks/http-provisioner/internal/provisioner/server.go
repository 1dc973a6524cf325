/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/vendor-hooks/http-provisioner/internal/config"
)

// The keys of the Secret.
const (
	keyUsername = "username"
	keyPassword = "password"
	keyToken    = "token"
	keyCA       = "ca.crt"
)

// server is where requests are sent, with credentials.
type server struct {
	config *config.Provisioner
	client *http.Client
	secret map[string][]byte
}

// serverCache keeps connections as long as the Secret stays as it is.
type serverCache struct {
	mu      sync.Mutex
	version string
	server  *server
}

// server returns the server, with what the Secret holds now.
func (p *Provisioner) server(ctx context.Context) (*server, error) {
	secret := &corev1.Secret{}
	if reference := p.config.Secret; reference != nil {
		var err error
		secret, err = p.core.CoreV1().Secrets(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot read the Secret with the credentials: %w", err)
		}
	}
	version := string(secret.UID) + "/" + secret.ResourceVersion
	p.servers.mu.Lock()
	defer p.servers.mu.Unlock()
	if p.servers.server != nil && p.servers.version == version {
		return p.servers.server, nil
	}
	transport, err := newTransport(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if old := p.servers.server; old != nil {
		old.client.CloseIdleConnections()
	}
	p.servers.version = version
	p.servers.server = &server{config: p.config, secret: secret.Data, client: &http.Client{
		Transport: transport,
		Timeout:   p.config.Timeout,
		// Credentials go to the server that was configured, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return p.servers.server, nil
}

// newTransport returns a transport with the certificates of a Secret.
func newTransport(secret map[string][]byte) (*http.Transport, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 16,
	}
	if ca, given := secret[keyCA]; given {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", keyCA)
		}
	}
	certificate, key := secret[corev1.TLSCertKey], secret[corev1.TLSPrivateKeyKey]
	if len(certificate) == 0 && len(key) == 0 {
		return transport, nil
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	return transport, nil
}

// authenticate adds the credentials of the Secret to a request.
func (s *server) authenticate(request *http.Request) {
	if token, given := s.secret[keyToken]; given {
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		return
	}
	if username, given := s.secret[keyUsername]; given {
		request.SetBasicAuth(string(username), string(s.secret[keyPassword]))
	}
}

// path returns the URL of a path on the server. Nothing that an expression yields can lead
// elsewhere.
func (s *server) path(path *expressions.Text, variables map[string]any) (*url.URL, error) {
	rendered, err := path.Render(variables, func(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") })
	if err != nil {
		return nil, err
	}
	location, _, _ := strings.Cut(rendered, "?")
	if slices.ContainsFunc(strings.Split(location, "/"), func(segment string) bool { return segment == "." || segment == ".." }) {
		return nil, fmt.Errorf("the path %q leads elsewhere: one of its segments is . or .., as if it were a folder", rendered)
	}
	target, err := url.Parse(strings.TrimSuffix(s.config.URL.String(), "/") + rendered)
	if err != nil {
		return nil, fmt.Errorf("the path %q: %w", rendered, err)
	}
	return target, nil
}

// target returns the URL of a poll.
func (s *server) target(poll *config.CompiledPoll, variables map[string]any) (*url.URL, error) {
	if poll.Location == nil {
		return s.path(poll.Path, variables)
	}
	location, err := poll.Location.Render(variables, nil)
	if err != nil {
		return nil, err
	}
	relative, err := url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("the location %q: %w", location, err)
	}
	target := s.config.URL.ResolveReference(relative)
	if target.Scheme != s.config.URL.Scheme || target.Host != s.config.URL.Host || target.User != nil {
		return nil, errors.New("the location " + target.Redacted() + " is on another server: credentials are not sent there")
	}
	return target, nil
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
)

// startLogStore starts a log store, gives http-provisioner its credentials and its documented
// configuration for that server, and starts it.
func (s *story) startLogStore(ctx context.Context) (string, error) {
	if err := s.ensure(ctx, "logstore", func() error {
		_, err := s.indices(ctx)
		return err
	}); err != nil {
		return "", err
	}
	manifests := filepath.Join(s.Root, "vendor-hooks", "http-provisioner", "manifests")
	if _, err := s.Admin(ctx, "apply", "--server-side", "-f", filepath.Join(manifests, "rbac.yaml")); err != nil {
		return "", err
	}
	if _, err := s.Admin(ctx, "create", "secret", "generic", "log-store", "--namespace=nsinit-system", "--from-literal=username=elastic",
		"--from-literal=password="+logStorePassword, "--from-file=ca.crt="+s.PKI().Cert("nsinit-ca")); err != nil {
		return "", err
	}
	config, err := os.ReadFile(filepath.Join(manifests, "log-index.yaml"))
	if err != nil {
		return "", err
	}
	config = []byte(strings.Replace(string(config), "https://logs.example.com:9200", s.logStoreURL(), 1))
	if err := os.WriteFile(s.path("log-index.yaml"), config, 0o600); err != nil {
		return "", err
	}
	if err := s.ensure(ctx, "http-provisioner", func() error {
		_, err := s.Admin(ctx, "get", "namespaceinitializerconfiguration", "20-log-index")
		return err
	}); err != nil {
		return "", err
	}
	return "PostgreSQL behind " + s.logStoreURL() + "; its configuration: vendor-hooks/http-provisioner/manifests/log-index.yaml", nil
}

// indexed compares the ConfigMap in the namespace with the log store.
func (s *story) indexed(ctx context.Context) (string, error) {
	index, err := s.Admin(ctx, "get", "configmap", "log-index", "--namespace", secondNamespace, "-o", "jsonpath={.data.index}")
	if err != nil {
		return "", err
	}
	indices, err := s.indices(ctx)
	return "the log store has " + indices, expect(err, indices, `"index":"`+index+`"`, `"owner":"`+secondNamespace+`"`)
}

func (c *Cluster) logStoreURL() string {
	return fmt.Sprintf("https://localhost:%d", c.Ports["logstore"])
}

// indices returns the indices of the log store, in JSON.
func (c *Cluster) indices(ctx context.Context) (string, error) {
	body, err := get(ctx, "/_cat/indices", &rest.Config{Host: c.logStoreURL(), Username: "elastic", Password: logStorePassword,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.PKI().Cert("nsinit-ca")}})
	return strings.TrimSpace(string(body)), err
}

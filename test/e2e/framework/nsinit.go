/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// APIService is the name of nsinit's APIService.
const APIService = "v1alpha1.nsinit.dev"

// Available returns an error unless kube-apiserver reports that nsinit's API is available.
func (c *Cluster) Available(ctx context.Context, t *testing.T) error {
	service, err := aggregator.NewForConfigOrDie(c.Admin).ApiregistrationV1().APIServices().Get(ctx, APIService, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available) {
		return fmt.Errorf("conditions: %s", JSON(t, service.Status.Conditions))
	}
	return nil
}

// Metrics returns the metrics of nsinit-apiserver.
func (c *Cluster) Metrics(t *testing.T) ([]byte, error) {
	t.Helper()
	return Scrape(context.Background(), c.Direct(t))
}

// Scrape returns the metrics of the program that a client configuration is for.
func Scrape(ctx context.Context, config *rest.Config) ([]byte, error) {
	return versioned.NewForConfigOrDie(config).Discovery().RESTClient().Get().AbsPath("/metrics").MaxRetries(0).DoRaw(ctx)
}

// Overlay writes a kustomization of an overlay in artifacts/deploy/overlays whose service is on loopback. It returns the
// folder. more continues the list of patches, or adds fields.
func (c *Cluster) Overlay(t *testing.T, name, more string, components ...string) string {
	t.Helper()
	if !c.StampsByPolicy(t) {
		components = append(components, "../../components/stamp-webhook")
	}
	copied, err := os.MkdirTemp(c.Dir, "artifacts") // removed with the control plane
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(c.Root, "artifacts"))); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(copied, "deploy", "overlays", "e2e")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c.kustomization(t, dir, "../"+name, more, components)
	return dir
}

// WordsHA are the values of the words in documents that install overlays/ha on an etcd cluster with the certificates of Kubernetes'
// etcd. more is as in Overlay.
func (c *Cluster) WordsHA(t *testing.T, more string, servers ...string) map[string]string {
	t.Helper()
	words := map[string]string{"artifacts/deploy/overlays/ha": c.Overlay(t, "ha", fmt.Sprintf(`
- patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: nsinit-apiserver, namespace: nsinit-system}
    spec: {template: {spec: {containers: [{name: nsinit-apiserver, env: [{name: ETCD_SERVERS, value: %q}]}]}}}
%s`, strings.Join(servers, ","), more))}
	for word, file := range map[string]string{"ETCD_CA": "etcd-ca.crt", "ETCD_CERTIFICATE": "etcd.crt", "ETCD_KEY": "etcd.key"} {
		words[word] = filepath.Join(c.Dir, "pki", file)
	}
	return words
}

// Rendered writes a kustomization of a rendered overlay whose service is on loopback. It returns the folder.
func (c *Cluster) Rendered(t *testing.T, manifest string) string {
	t.Helper()
	dir, err := os.MkdirTemp(c.Dir, "rendered") // removed with the control plane
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "install.yaml"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	c.kustomization(t, dir, "install.yaml", "", nil)
	return dir
}

// kustomization writes a kustomization of an installation whose service is on loopback.
func (c *Cluster) kustomization(t *testing.T, dir, resource, more string, components []string) {
	t.Helper()
	kustomization := fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
sortOptions: {order: fifo}
resources: [%s]
components: [%s]
patches:
- patch: |-
    apiVersion: v1
    kind: Service
    metadata: {name: nsinit-apiserver, namespace: nsinit-system}
    spec:
      type: ExternalName
      externalName: localhost
      selector: null
      ports: [{name: https, port: %d, protocol: TCP}, {$patch: replace}]
%s`, resource, strings.Join(components, ", "), c.Ports(t)["nsinit-apiserver"], more)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
}

// onLoopback is a policy that puts the service of nsinit-apiserver on loopback.
const onLoopback = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: e2e-on-loopback}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [apiregistration.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [apiservices], resourceNames: [%[1]s]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/spec/service/port", value: %[2]d}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: e2e-on-loopback}
spec: {policyName: e2e-on-loopback}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: e2e-service-on-loopback}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services], resourceNames: [nsinit-apiserver]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/spec", value: {"type": "ExternalName", "externalName": "localhost"}}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: e2e-service-on-loopback}
spec: {policyName: e2e-service-on-loopback}
`

// PutOnLoopback puts the service of nsinit-apiserver on loopback, for an installation that is not a kustomization. It needs
// Kubernetes 1.36 or later.
func (c *Cluster) PutOnLoopback(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "loopback.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, onLoopback, APIService, c.Ports(t)["nsinit-apiserver"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl("apply", "--server-side", "-f", file); err != nil {
		t.Fatal(err, out)
	}
}

// WaitServing waits until nsinit-apiserver is ready and answers through the aggregator.
func (c *Cluster) WaitServing(t *testing.T) {
	t.Helper()
	Eventually(t, "nsinit-apiserver serves", func(ctx context.Context) error {
		direct := versioned.NewForConfigOrDie(c.Direct(t)).Discovery().RESTClient()
		said, err := direct.Get().AbsPath("/readyz").Param("verbose", "true").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		_, err = c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// StampsByPolicy reports whether the stamp is a policy. Before Kubernetes 1.36 it is a webhook.
func (c *Cluster) StampsByPolicy(t *testing.T) bool {
	t.Helper()
	served, err := c.Core.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == "mutatingadmissionpolicies" })
}

// AskToRetry installs the webhook in artifacts/early-writes, which asks early writers to retry, until the test ends.
func (c *Cluster) AskToRetry(t *testing.T) {
	t.Helper()
	dir := filepath.Join(c.Root, "artifacts", "early-writes")
	if out, err := c.Kubectl("apply", "--server-side", "--force-conflicts", "-k", dir); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if out, err := c.Kubectl("delete", "-k", dir); err != nil {
			t.Error(err, out)
		}
	})
}

// AskTenantToRetry calls AskToRetry, and waits until the webhook acts, and at the end until it does not. It needs a registered
// initializer that does not act.
func (c *Cluster) AskTenantToRetry(t *testing.T, tenant *rest.Config) {
	t.Helper()
	closed := c.CreateNamespace(t, c.Admin)
	probe := func(answered func(error) bool) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := WriteOnce(ctx, tenant, closed.Name); !answered(err) {
				return fmt.Errorf("a write was answered with: %w", cmp.Or(err, errors.New("success")))
			}
			return nil
		}
	}
	t.Cleanup(func() { Eventually(t, "the webhook is gone", probe(apierrors.IsForbidden)) })
	c.AskToRetry(t)
	Eventually(t, "the webhook is in force", probe(apierrors.IsTooManyRequests))
}

// AskAlways sends requests through the aggregator without retries, until the returned function is called, which checks that none
// failed.
func (c *Cluster) AskAlways(t *testing.T) (noneFailed func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var work sync.WaitGroup
	counted := map[string]*Failures{
		"condition Available": Repeat(ctx, &work, func(ctx context.Context) error { return c.Available(ctx, t) }),
		"discovery of the group": Repeat(ctx, &work, func(ctx context.Context) error {
			return c.Core.Discovery().RESTClient().Get().AbsPath("/apis/nsinit.dev/v1alpha1").MaxRetries(0).Do(ctx).Error()
		}),
		"lists": Repeat(ctx, &work, func(ctx context.Context) error {
			return c.Nsinit.NsinitV1alpha1().RESTClient().Get().Resource("namespacelifecycles").MaxRetries(0).Do(ctx).Error()
		}),
	}
	return func() {
		t.Helper()
		const least = 20
		Eventually(t, "every request is repeated", func(context.Context) error { return Tried(counted, least) })
		cancel()
		work.Wait()
		for what, f := range counted {
			f.None(t, what, least)
		}
	}
}

// ServedCertificate returns the certificate that nsinit-apiserver serves, in PEM.
func (c *Cluster) ServedCertificate(t *testing.T) ([]byte, error) {
	t.Helper()
	connection, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", c.Ports(t)["nsinit-apiserver"]), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // to read it
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	data, err := cert.EncodeCertificates(connection.ConnectionState().PeerCertificates[0])
	return bytes.TrimSpace(data), err
}

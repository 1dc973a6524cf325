/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// startLimit is how long a program may take to be ready, much longer than on two busy cores.
const startLimit = 2 * time.Minute

// Up builds the missing programs, starts those that do not run, and applies the manifests. It returns when the API
// of nsinit is available and the policies are in force.
func (c *Cluster) Up(ctx context.Context) error {
	return c.up(ctx, "nsinit", c.Build, c.kubernetes, c.nsinit)
}

// UpKubernetes does the same without nsinit.
func (c *Cluster) UpKubernetes(ctx context.Context) error {
	return c.up(ctx, "Kubernetes", c.BuildKubernetes, c.kubernetes)
}

// UpBare starts a control plane without kube-controller-manager, and nsinit, which empties
// namespaces there.
func (c *Cluster) UpBare(ctx context.Context) error {
	c.Bare = true
	if err := os.WriteFile(c.bareFile(), nil, 0o600); err != nil {
		return err
	}
	return c.Up(ctx)
}

func (c *Cluster) up(ctx context.Context, what string, build step, starts ...step) error {
	if err := build(ctx); err != nil {
		return err
	}
	unlock, err := c.lock(ctx, c.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.claimPorts(); err != nil {
		return err
	}
	if err := c.Identities(); err != nil {
		return err
	}
	if err := inOrder(ctx, starts...); err != nil {
		return err
	}
	c.say("%s is up: export KUBECONFIG=%s", what, c.AdminKubeconfig())
	return nil
}

// Identities makes every certificate and kubeconfig.
func (c *Cluster) Identities() error {
	pki := c.PKI()
	systemAccount := func(name string) error {
		return c.ensureKubeconfig(name, "system:serviceaccount:nsinit-system:"+name,
			"system:serviceaccounts", "system:serviceaccounts:nsinit-system")
	}
	if err := errors.Join(
		pki.EnsureCA("ca"),
		pki.EnsureCA("front-proxy-ca"),
		pki.EnsureCA("etcd-ca"),
		pki.EnsureCA("nsinit-ca"),
		pki.EnsureServing("etcd", "etcd-ca"),
		pki.EnsureServing("kube-apiserver", "ca", "kubernetes", "kubernetes.default.svc"),
		pki.EnsureServing("nsinit-apiserver", "nsinit-ca", "nsinit-apiserver.nsinit-system.svc"),
		pki.EnsureServing("logstore", "nsinit-ca"),
		pki.EnsureClient("front-proxy-client", "front-proxy-ca", "front-proxy-client"),
		pki.EnsureKey("service-account"),
		c.ensureKubeconfig("admin", "kubernetes-admin", "system:masters"),
		c.ensureKubeconfig("kube-controller-manager", "system:kube-controller-manager"),
		c.ensureKubeconfig(Scheduler, "system:kube-scheduler"),
		systemAccount("nsinit-apiserver"),
		systemAccount("nsinit-controller-manager"),
		systemAccount("policy-population"),
		systemAccount("http-provisioner"),
		c.writeUserKubeconfigs(),
	); err != nil {
		return fmt.Errorf("cannot make identities: %w", err)
	}
	return nil
}

// maxRestarts is how often a program may exit before ensure returns an error: once or twice can
// happen on a busy machine.
const maxRestarts = 3

// starts returns a step that starts a program and waits until a check succeeds.
func (c *Cluster) starts(name string, ready step) step {
	return func(ctx context.Context) error { return c.ensure(ctx, name, ready) }
}

// itRuns is the check of a program that is ready as soon as it runs, or for which another one waits.
func itRuns(context.Context) error { return nil }

// ensure starts a program and waits until a check succeeds. One that runs an older build
// or other arguments is restarted, and one that waits for its restart is started immediately.
func (c *Cluster) ensure(ctx context.Context, name string, ready step) error {
	process := c.Process(name)
	if !process.Current() {
		if process.Pid() != 0 {
			c.say("restarting %s: it has changed", name)
		} else {
			c.say("starting %s", name)
		}
		if err := process.Stop(ctx, 30*time.Second); err != nil {
			return err
		}
	}
	restarts := len(process.Restarts())
	if err := process.Start(); err != nil {
		return err
	}
	err := poll(ctx, startLimit, 100*time.Millisecond, func() error {
		if exited := process.Restarts(); len(exited) >= restarts+maxRestarts {
			return final{errors.New(exited[len(exited)-1])}
		}
		if !process.Supervised() {
			return final{errors.New("it was stopped")}
		}
		return ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w\nlast lines of %s:\n%s", name, err, process.LogFile(), process.LogTail(15))
	}
	return nil
}

func (c *Cluster) kubernetes(ctx context.Context) error {
	steps := []step{c.starts("etcd", c.etcdHealthy), c.starts("kube-apiserver", c.answers("/readyz"))}
	if !c.Bare {
		steps = append(steps, c.starts("kube-controller-manager", c.answers("/api/v1/namespaces/default/serviceaccounts/default")))
	}
	return inOrder(ctx, steps...)
}

// etcdHealthy connects to etcd with a client certificate.
func (c *Cluster) etcdHealthy(ctx context.Context) error {
	pki := c.PKI()
	_, err := get(ctx, "/health", &rest.Config{Host: c.url("etcd-http"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: pki.Cert("etcd-ca"), CertFile: pki.Cert("etcd"), KeyFile: pki.Key("etcd")}})
	return err
}

// lifecycles is the path of the NamespaceLifecycles.
const lifecycles = "/apis/" + v1alpha1.GroupName + "/v1alpha1/namespacelifecycles"

// AdminConfig returns the configuration of an administrator's clients. A client takes much less CPU time than kubectl, so
// it checks what is checked again and again.
func (c *Cluster) AdminConfig() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
}

// answers returns a check that kube-apiserver answers a GET of the administrator with 200.
func (c *Cluster) answers(path string) step {
	return func(ctx context.Context) error {
		config, err := c.AdminConfig()
		if err != nil {
			return err
		}
		_, err = get(ctx, path, config)
		return err
	}
}

// get sends a request.
func get(ctx context.Context, path string, config *rest.Config) ([]byte, error) {
	config.NegotiatedSerializer, config.Timeout = scheme.Codecs, 5*time.Second
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return client.Get().RequestURI(path).DoRaw(ctx)
}

// nsinit installs and starts nsinit. The controller comes last, because it opens the namespace that shows the
// gate. It brings the stamp into force.
func (c *Cluster) nsinit(ctx context.Context) error {
	return inOrder(ctx, c.ApplyBase, c.starts("nsinit-etcd", itRuns), c.starts("nsinit-apiserver", c.Served),
		c.removeEarlyWrites, c.ApplyPolicies, c.gateActsAndOpens, c.stampActs)
}

// ApplyBase applies the manifests of nsinit without its policies and programs.
func (c *Cluster) ApplyBase(ctx context.Context) error {
	if err := c.writeOverlays(); err != nil {
		return err
	}
	if _, err := c.apply(ctx, "-k", c.path("manifests")); err != nil || !c.Bare {
		return err
	}
	_, err := c.apply(ctx, "-f", filepath.Join(c.Root, "artifacts", "deploy", "namespace-termination.yaml"))
	return err
}

// apply applies manifests of this checkout. kubectl takes half of its CPU time to read the OpenAPI documents that it needs to
// look for unknown fields, which the end-to-end tests of the installation do.
func (c *Cluster) apply(ctx context.Context, manifests ...string) (string, error) {
	return c.Admin(ctx, append([]string{"apply", "--server-side", "--force-conflicts", "--validate=ignore"}, manifests...)...)
}

// ApplyPolicies applies the policies, and waits until the guard is in force.
func (c *Cluster) ApplyPolicies(ctx context.Context) error {
	if _, err := c.apply(ctx, "-k", c.path("policies")); err != nil {
		return err
	}
	c.say("waiting for the policies to be in force")
	return c.guardActs(ctx)
}

// Served returns an error until the API of nsinit is available through kube-apiserver.
func (c *Cluster) Served(ctx context.Context) error {
	config, err := c.AdminConfig()
	if err != nil {
		return err
	}
	data, err := get(ctx, "/apis/apiregistration.k8s.io/v1/apiservices/"+installation.APIService, config)
	if err != nil {
		return err
	}
	var service apiregistrationv1.APIService
	if err := json.Unmarshal(data, &service); err != nil {
		return err
	}
	if available := apiregistrationv1helper.GetAPIServiceConditionByType(&service, apiregistrationv1.Available); available == nil || available.Status != apiregistrationv1.ConditionTrue {
		return fmt.Errorf("APIService %s is not available: %+v", service.Name, available)
	}
	_, err = get(ctx, lifecycles+"?limit=1", config)
	return err
}

func (c *Cluster) earlyWrites() string { return filepath.Join(c.Root, "artifacts", "early-writes") }

// AskToRetry installs the webhook that asks clients to retry early writes.
func (c *Cluster) AskToRetry(ctx context.Context) error {
	_, err := c.Admin(ctx, "apply", "--server-side", "--force-conflicts", "-k", c.earlyWrites())
	return err
}

// writeOverlays writes the kustomizations of this control plane: the base, reached on loopback,
// and the policies.
func (c *Cluster) writeOverlays() error {
	ca, err := os.ReadFile(c.PKI().Cert("nsinit-ca"))
	if err != nil {
		return err
	}
	artifacts := filepath.Join(c.Root, "artifacts")
	// nsinit-controller-manager registers the API of a server that runs in pods.
	apiService := fmt.Sprintf(`patches:
- patch: |-
    apiVersion: apiregistration.k8s.io/v1
    kind: APIService
    metadata:
      name: v1alpha1.nsinit.dev
      labels: {app.kubernetes.io/managed-by: null}
    spec:
      caBundle: %s
      service: {port: %d}
`, base64.StdEncoding.EncodeToString(ca), c.Ports["nsinit-apiserver"])
	const service = `patches:
- patch: |-
    apiVersion: v1
    kind: Service
    metadata: {name: nsinit-apiserver, namespace: nsinit-system}
    spec: {type: ExternalName, externalName: localhost, selector: null, ports: null}
`
	policies := ""
	if c.webhookStamps() {
		policies = "components: " + c.relative("policies", filepath.Join(artifacts, "deploy", "components", "stamp-webhook")) + "\n"
	}
	return errors.Join(
		c.writeOverlay("manifests/apiservice", apiService, filepath.Join(artifacts, "deploy", "base", "in-force")),
		c.writeOverlay("manifests", service, filepath.Join(artifacts, "deploy", "base"), filepath.Join(c.Root, "hack", "dev", "manifests"),
			c.path("manifests/apiservice")),
		c.writeOverlay("policies", policies, filepath.Join(artifacts, "policies")))
}

// writeOverlay writes a kustomization of folders into a folder of this control plane.
func (c *Cluster) writeOverlay(name, more string, folders ...string) error {
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nsortOptions: {order: fifo}\nresources: " + c.relative(name, folders...) + "\n" + more
	return errors.Join(os.MkdirAll(c.path(name), 0o755), os.WriteFile(filepath.Join(c.path(name), "kustomization.yaml"), []byte(text), 0o600))
}

// relative returns a list of folders in YAML, relative to a folder of this control plane: kustomize takes no absolute paths.
func (c *Cluster) relative(name string, folders ...string) string {
	for i, folder := range folders {
		folders[i], _ = filepath.Rel(c.path(name), folder) // both are absolute
	}
	return "[" + strings.Join(folders, ", ") + "]"
}

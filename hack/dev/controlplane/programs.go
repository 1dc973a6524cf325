/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// ProgramNames lists the programs in the order in which they start.
func ProgramNames() []string { return append(runPrograms(), "logstore", "http-provisioner") }

// runPrograms are those of make run. The demo starts more.
func runPrograms() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "nsinit-etcd", "nsinit-apiserver", "nsinit-controller-manager", "policy-population"}
}

// Process returns a program of this control plane with its arguments, or nil.
func (c *Cluster) Process(name string) *Process {
	arguments := map[string]func() []string{
		"etcd":                      c.etcdArgs,
		"kube-apiserver":            c.kubeAPIServerArgs,
		"kube-controller-manager":   c.kubeControllerManagerArgs,
		"nsinit-etcd":               c.nsinitEtcdArgs,
		"nsinit-apiserver":          c.nsinitAPIServerArgs,
		"nsinit-controller-manager": c.nsinitControllerManagerArgs,
		"policy-population":         c.policyPopulationArgs,
		"logstore":                  c.logStoreArgs,
		"http-provisioner":          c.httpProvisionerArgs,
	}[name]
	if arguments == nil {
		return nil
	}
	program := c.program(name)
	if name == "nsinit-etcd" {
		program = c.program("nsinit-apiserver")
	}
	return &Process{Name: name, Program: program, Args: arguments(), Env: c.Env[name], StateDir: c.Dir, Dev: c.program("dev")}
}

func (c *Cluster) path(name string) string { return filepath.Join(c.Dir, name) }

func (c *Cluster) url(port string) string { return fmt.Sprintf("https://127.0.0.1:%d", c.Ports[port]) }

func flags(pairs ...string) []string {
	var args []string
	for i := 0; i < len(pairs); i += 2 {
		args = append(args, "--"+pairs[i]+"="+pairs[i+1])
	}
	return args
}

func (c *Cluster) port(name string) string { return fmt.Sprint(c.Ports[name]) }

func (c *Cluster) etcdArgs() []string {
	pki := c.PKI()
	return flags(
		"name", "dev",
		"data-dir", c.path("etcd"),
		"listen-client-urls", c.url("etcd"),
		"listen-client-http-urls", c.url("etcd-http"), // with HTTP on the same port, gRPC takes much more CPU time
		"advertise-client-urls", c.url("etcd"),
		"listen-peer-urls", c.url("etcd-peer"),
		"initial-advertise-peer-urls", c.url("etcd-peer"),
		"initial-cluster", "dev="+c.url("etcd-peer"),
		"client-cert-auth", "true",
		"trusted-ca-file", pki.Cert("etcd-ca"),
		"cert-file", pki.Cert("etcd"),
		"key-file", pki.Key("etcd"),
		"peer-client-cert-auth", "true",
		"peer-trusted-ca-file", pki.Cert("etcd-ca"),
		"peer-cert-file", pki.Cert("etcd"),
		"peer-key-file", pki.Key("etcd"),
		"log-level", "warn",
		"unsafe-no-fsync", "true", // the state need not survive a crash of the machine
	)
}

func (c *Cluster) kubeAPIServerArgs() []string {
	pki := c.PKI()
	return flags(
		"bind-address", "127.0.0.1",
		"advertise-address", "127.0.0.1",
		"secure-port", c.port("kube-apiserver"),
		"endpoint-reconciler-type", "none",
		"etcd-servers", c.url("etcd"),
		"etcd-cafile", pki.Cert("etcd-ca"),
		"etcd-certfile", pki.Cert("etcd"),
		"etcd-keyfile", pki.Key("etcd"),
		"client-ca-file", pki.Cert("ca"),
		"tls-cert-file", pki.Cert("kube-apiserver"),
		"tls-private-key-file", pki.Key("kube-apiserver"),
		"service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"service-account-key-file", pki.Key("service-account"),
		"service-account-signing-key-file", pki.Key("service-account"),
		"service-cluster-ip-range", "10.96.0.0/16",
		"authorization-mode", "Node,RBAC",
		"requestheader-client-ca-file", pki.Cert("front-proxy-ca"),
		"requestheader-allowed-names", "front-proxy-client",
		"requestheader-username-headers", "X-Remote-User",
		"requestheader-group-headers", "X-Remote-Group",
		"requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"proxy-client-cert-file", pki.Cert("front-proxy-client"),
		"proxy-client-key-file", pki.Key("front-proxy-client"),
		"admission-control-config-file", filepath.Join(c.Root, "hack", "dev", "manifests", "admission.yaml"),
		"audit-policy-file", filepath.Join(c.Root, "hack", "dev", "manifests", "audit-policy.yaml"),
		"audit-log-path", c.path("audit.log"),
	)
}

func (c *Cluster) kubeControllerManagerArgs() []string {
	pki := c.PKI()
	kubeconfig := c.path("kube-controller-manager.kubeconfig")
	args := flags(
		"bind-address", "127.0.0.1",
		"secure-port", c.port("kube-controller-manager"),
		"kubeconfig", kubeconfig,
		"authentication-kubeconfig", kubeconfig,
		"authorization-kubeconfig", kubeconfig,
		"root-ca-file", pki.Cert("ca"),
		"service-account-private-key-file", pki.Key("service-account"),
		"use-service-account-credentials", "true",
		"leader-elect", "false",
	)
	if c.DefaultRates {
		return args
	}
	// By default, each controller sends 20 requests per second. When the program starts, this delays the requests for the
	// tokens of all controllers by seconds.
	return append(args, flags("kube-api-qps", "500", "kube-api-burst", "1000")...)
}

// nsinitEtcdDir is the folder of the etcd of nsinit-apiserver.
func (c *Cluster) nsinitEtcdDir() string { return c.path("nsinit-etcd") }

func (c *Cluster) nsinitEtcdArgs() []string {
	return append([]string{"etcd"}, flags("embedded-etcd-dir", c.nsinitEtcdDir())...)
}

func (c *Cluster) nsinitAPIServerArgs() []string {
	pki := c.PKI()
	return append(flags(
		"bind-address", "127.0.0.1",
		"secure-port", c.port("nsinit-apiserver"),
		"tls-cert-file", pki.Cert("nsinit-apiserver"),
		"tls-private-key-file", pki.Key("nsinit-apiserver"),
		"kubeconfig", c.path("nsinit-apiserver.kubeconfig"),
		"embedded-etcd-dir", c.nsinitEtcdDir(),
	), "-v=2")
}

func (c *Cluster) nsinitControllerManagerArgs() []string {
	pki := c.PKI()
	more := []string{"-v=2"}
	if c.Bare {
		more = append(more, "--required-objects=") // kube-controller-manager creates them
	}
	return append(flags(
		"namespace-termination", fmt.Sprint(c.Bare),
		"bind-address", "127.0.0.1",
		"secure-port", c.port("nsinit-controller-manager"),
		"tls-cert-file", pki.Cert("nsinit-apiserver"),
		"tls-private-key-file", pki.Key("nsinit-apiserver"),
		"kubeconfig", c.path("nsinit-controller-manager.kubeconfig"),
		// A lease expires soon after kill -9.
		"leader-elect-lease-duration", "5s",
		"leader-elect-renew-deadline", "3s",
		"leader-elect-retry-period", "1s",
		// Soon enough for a test or a trial.
		"stalled-after", "10s",
	), more...)
}

func (c *Cluster) policyPopulationArgs() []string {
	return append(flags("kubeconfig", c.path("policy-population.kubeconfig")), "-v=2")
}

// logStoreDir is the folder with the data of the log store. PostgreSQL needs a short path, and runs as another user if
// this one is root.
func (c *Cluster) logStoreDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("nsinit-%08x", crc32.ChecksumIEEE([]byte(c.Dir))))
}

func (c *Cluster) logStoreArgs() []string {
	pki := c.PKI()
	return flags(
		"data-dir", c.logStoreDir(),
		"listen", fmt.Sprintf("localhost:%d", c.Ports["logstore"]),
		"tls-cert-file", pki.Cert("logstore"),
		"tls-private-key-file", pki.Key("logstore"),
		"password", "demo-password",
	)
}

func (c *Cluster) httpProvisionerArgs() []string {
	return append(flags("kubeconfig", c.path("http-provisioner.kubeconfig"), "config", c.path("log-index.yaml")), "-v=2")
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// Cluster is a control plane on which a test runs.
type Cluster struct {
	// Root is the folder of the project, and Dir the state directory of the control plane. hack/dev/README.md describes it.
	Root, Dir string
	// Admin is the configuration of a cluster administrator's clients. Core and Nsinit are such clients.
	Admin  *rest.Config
	Core   kubernetes.Interface
	Nsinit versioned.Interface
	// prefix begins the names of the test's namespaces. It is empty if no other test uses the control plane.
	prefix string
}

// Name returns a name for a namespace of this test that no other namespace has.
func (c *Cluster) Name(prefix string) string { return UniqueName(c.prefix + prefix) }

// load makes the clients.
func (c *Cluster) load(t *testing.T) {
	t.Helper()
	var err error
	c.Admin, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatalf("there is no control plane in %s: run make e2e or make dev-up: %v", c.Dir, err)
	}
	c.Admin.QPS = -1
	c.Core, c.Nsinit = kubernetes.NewForConfigOrDie(c.Admin), versioned.NewForConfigOrDie(c.Admin)
	if _, err := c.Core.Discovery().ServerVersion(); err != nil {
		t.Fatalf("the control plane in %s does not answer: run make e2e or make dev-up: %v", c.Dir, err)
	}
}

// Kubeconfig returns the path of the kubeconfig of a cluster administrator.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "admin.kubeconfig") }

// Environ returns the environment of a process that uses this control plane only: kubectl, a shell or a test.
func (c *Cluster) Environ() []string {
	return append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "HOME="+c.Dir, "PATH="+BinDir()+":"+os.Getenv("PATH"),
		dirVariable+"="+c.Dir, planesVariable+"=")
}

// As returns the configuration of a user's clients. The user has the rights that RBAC grants to the name and the groups.
func (c *Cluster) As(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(c.Admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return config
}

// Direct returns the configuration of an administrator's client that connects to nsinit-apiserver itself, not through the
// aggregator. nsinit-apiserver asks for client certificates once it has read their CA. A connection that was made before
// stays anonymous, so each request makes a connection.
func (c *Cluster) Direct(t *testing.T) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(c.Admin)
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", c.Ports(t)["nsinit-apiserver"])
	config.CAData, config.CAFile = nil, filepath.Join(c.Dir, "pki", "nsinit-ca.crt")
	config.Dial = (&net.Dialer{}).DialContext
	return config
}

// DirectController returns the configuration of an administrator's client of nsinit-controller-manager.
func (c *Cluster) DirectController(t *testing.T) *rest.Config {
	t.Helper()
	config := c.Direct(t)
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", c.Ports(t)["nsinit-controller-manager"])
	config.ServerName = "nsinit-apiserver.nsinit-system.svc" // both have the same certificate here
	return config
}

// Ports returns the ports of the control plane by program.
func (c *Cluster) Ports(t *testing.T) map[string]int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Dir, "ports.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ports map[string]int
	if err := json.Unmarshal(data, &ports); err != nil {
		t.Fatal(err)
	}
	return ports
}

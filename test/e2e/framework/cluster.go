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

	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

// Cluster is the control plane that the tests run on.
type Cluster struct {
	Root, Dir string
	Admin     *rest.Config
	Core      kubernetes.Interface
	Nsinit    versioned.Interface
}

// load makes the clients of the control plane in the cluster's folder.
func (c *Cluster) load(t *testing.T) {
	t.Helper()
	var err error
	c.Admin, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatalf("there is no control plane in %s, run make e2e or make dev-up: %v", c.Dir, err)
	}
	c.Admin.QPS = -1
	c.Core, c.Nsinit = kubernetes.NewForConfigOrDie(c.Admin), versioned.NewForConfigOrDie(c.Admin)
	if _, err := c.Core.Discovery().ServerVersion(); err != nil {
		t.Fatalf("the control plane in %s does not answer, run make e2e or make dev-up: %v", c.Dir, err)
	}
}

func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "admin.kubeconfig") }

// As returns the configuration of a user, who has what RBAC gives the name and the groups.
func (c *Cluster) As(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(c.Admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return config
}

// Direct returns the configuration of an administrator's client that reaches nsinit-apiserver
// itself, not through the aggregator. A server asks for client certificates once it has read
// which authority signs them, and a connection from before stays anonymous, so each request
// makes its own.
func (c *Cluster) Direct(t *testing.T) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(c.Admin)
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", c.Ports(t)["nsinit-apiserver"])
	config.CAData, config.CAFile = nil, filepath.Join(c.Dir, "pki", "nsinit-ca.crt")
	config.Dial = (&net.Dialer{}).DialContext
	return config
}

// Ports returns the ports of the control plane, by program.
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

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package topology

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
	"github.com/nsinit/nsinit/pkg/embeddedetcd"
	"github.com/nsinit/nsinit/test/faults/fault"
	"github.com/nsinit/nsinit/test/faults/history"
)

// A dead connection to an etcd is noticed soon: a member may be paused.
const (
	dialTimeout = 3 * time.Second
	keepAlive   = 2 * time.Second
)

// Single is the development control plane: one of each program, without proxies between them.
type Single struct {
	cluster *controlplane.Cluster
	dir     string
	admin   *rest.Config
}

var _ fault.Topology = (*Single)(nil)

// StartSingle starts the development control plane in a directory, or takes over one that runs there.
func StartSingle(ctx context.Context, dir string) (*Single, error) {
	cluster, err := controlplane.NewCluster(dir, "")
	if err != nil {
		return nil, err
	}
	if err := cluster.Up(ctx); err != nil {
		return nil, err
	}
	admin, err := clientcmd.BuildConfigFromFlags("", cluster.AdminKubeconfig())
	if err != nil {
		return nil, err
	}
	return &Single{cluster: cluster, dir: cluster.Dir, admin: admin}, nil
}

// Down stops it.
func (s *Single) Down(ctx context.Context) error { return s.cluster.Down(ctx) }

// Servers implements fault.Topology.
func (s *Single) Servers() []*rest.Config { return []*rest.Config{s.admin} }

// Initializers implements fault.Topology.
func (s *Single) Initializers() *rest.Config { return s.admin }

// Etcd implements fault.Topology.
func (s *Single) Etcd(store history.Store) (*clientv3.Client, error) {
	config := clientv3.Config{DialTimeout: dialTimeout, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAlive, Logger: zap.NewNop()}
	if store == history.Nsinit {
		endpoint, err := embeddedetcd.Endpoint(filepath.Join(s.dir, "nsinit-etcd"))
		if err != nil {
			return nil, err
		}
		config.Endpoints = []string{endpoint}
		return clientv3.New(config)
	}
	pki := func(name string) string { return filepath.Join(s.dir, "pki", name) }
	tls, err := transport.TLSInfo{TrustedCAFile: pki("etcd-ca.crt"), CertFile: pki("etcd.crt"), KeyFile: pki("etcd.key")}.ClientConfig()
	if err != nil {
		return nil, err
	}
	config.TLS = tls
	config.Endpoints = []string{fmt.Sprintf("https://127.0.0.1:%d", s.cluster.Ports["etcd"])}
	return clientv3.New(config)
}

// Programs implements fault.Topology.
func (s *Single) Programs() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "nsinit-apiserver", "nsinit-controller-manager"}
}

// Kill implements fault.Topology.
func (s *Single) Kill(ctx context.Context, program string) error {
	return s.cluster.Control(ctx, "kill", program)
}

// Stop implements fault.Topology.
func (s *Single) Stop(ctx context.Context, program string) error {
	return s.cluster.Control(ctx, "stop", program)
}

// Run implements fault.Topology.
func (s *Single) Run(ctx context.Context, program string) error {
	return s.cluster.Control(ctx, "start", program)
}

// Pause implements fault.Topology.
func (s *Single) Pause(_ context.Context, program string) error {
	return s.signal(program, syscall.SIGSTOP)
}

// Resume implements fault.Topology.
func (s *Single) Resume(_ context.Context, program string) error {
	return s.signal(program, syscall.SIGCONT)
}

func (s *Single) signal(program string, signal syscall.Signal) error {
	data, err := os.ReadFile(filepath.Join(s.dir, program+".pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, signal)
}

// Links implements fault.Topology.
func (s *Single) Links() []string { return nil }

// Link implements fault.Topology.
func (s *Single) Link(string) fault.Link { return nil }

// Can says whether it has a capability.
func (s *Single) Can(capability string) bool { return capability == fault.LoseStorage }

// LoseStorage replaces the storage of nsinit by an empty one.
func (s *Single) LoseStorage(ctx context.Context) error {
	if err := s.Kill(ctx, "nsinit-apiserver"); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "nsinit-etcd")); err != nil {
		return err
	}
	return s.Run(ctx, "nsinit-apiserver")
}

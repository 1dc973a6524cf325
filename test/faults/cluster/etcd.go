/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/nsinit/nsinit/pkg/embeddedetcd"
)

// KubeEtcd returns a client of the etcd of Kubernetes. The caller closes it.
func (c *Cluster) KubeEtcd() (*clientv3.Client, error) { return c.etcdClient(c.url(etcd)) }

// NsinitEtcd returns a client of all members of nsinit's etcd. The caller closes it. The keys are below
// /registry/nsinit.dev.
func (c *Cluster) NsinitEtcd() (*clientv3.Client, error) {
	var endpoints []string
	for i := range c.options.Topology.nsinitEtcds() {
		endpoints = append(endpoints, c.etcdEndpoint(replicaName(nsinitEtcd, i)))
	}
	return c.etcdClient(endpoints...)
}

// NsinitEtcdLeader returns the program that is the leader of nsinit's etcd.
func (c *Cluster) NsinitEtcdLeader(ctx context.Context) (program string, err error) {
	var errs []error
	for i := range c.options.Topology.nsinitEtcds() {
		name := replicaName(nsinitEtcd, i)
		status, err := c.etcdStatus(ctx, name)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		case status.Leader == status.Header.MemberId:
			return name, nil
		}
	}
	return "", errors.Join(append(errs, errors.New("no member of nsinit's etcd is the leader"))...)
}

// ReplaceEtcd replaces the data of a member of nsinit's etcd, which does not run, by none, or by the snapshot in a file. After that, no
// revision is used again, and watches of former revisions end.
func (c *Cluster) ReplaceEtcd(program, file string) error {
	dir := filepath.Join(c.Dir, program) // it may be a volume
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	switch {
	case file == "":
		return nil
	case c.options.Topology.NsinitEtcds == 0:
		from, err := os.Open(file) //nolint:gosec // the test names it
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }()
		return embeddedetcd.Restore(dir, from)
	}
	value := func(flag string) string {
		for _, arg := range c.process(program).Args {
			if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
				return value
			}
		}
		return ""
	}
	return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: program, OutputDataDir: dir, PeerURLs: []string{value("initial-advertise-peer-urls")},
		InitialCluster: value("initial-cluster"), InitialClusterToken: "nsinit", RevisionBump: 1_000_000_000, MarkCompacted: true,
	})
}

// etcdEndpoint returns the address of one etcd process.
func (c *Cluster) etcdEndpoint(program string) string {
	if program != etcd && c.options.Topology.NsinitEtcds == 0 {
		return "unix://" + filepath.Join(c.volume(), "client.sock")
	}
	return c.url(program)
}

// etcdStatus asks one etcd process.
func (c *Cluster) etcdStatus(ctx context.Context, program string) (*clientv3.StatusResponse, error) {
	client, err := c.etcdClient(c.etcdEndpoint(program))
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return client.Status(ctx, c.etcdEndpoint(program))
}

func (c *Cluster) etcdClient(endpoints ...string) (*clientv3.Client, error) {
	pki := c.base.PKI()
	// Without a limit, the recorder would see changes minutes late after its etcd was killed several times.
	retry := backoff.DefaultConfig
	retry.MaxDelay = time.Second
	config := clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second})},
	}
	if strings.HasPrefix(endpoints[0], "https:") {
		tls, err := transport.TLSInfo{CertFile: pki.Cert("etcd"), KeyFile: pki.Key("etcd"), TrustedCAFile: pki.Cert("etcd-ca")}.ClientConfig()
		if err != nil {
			return nil, err
		}
		config.TLS = tls
	}
	return clientv3.New(config)
}

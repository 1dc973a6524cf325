/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

var names atomic.Int64 //nolint:gochecknoglobals // makes names of tests unique

// uniqueName returns a name that no other test of the package uses.
func uniqueName() string { return fmt.Sprintf("ns-%d", names.Add(1)) }

// currentOf returns the initializers that have their turn, separated by spaces.
func currentOf(lifecycle *v1alpha1.NamespaceLifecycle) string {
	return strings.Join(lifecycle.Status.CurrentInitializers, " ")
}

// etcdClient returns a client of the etcd of a server.
func etcdClient(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

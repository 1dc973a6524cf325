/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func client(t *testing.T, dir string) *clientv3.Client {
	t.Helper()
	endpoint, err := Endpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // the path of a socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestSnapshot: a restore has the keys of the snapshot and no later ones, and no revision is used twice.
func TestSnapshot(t *testing.T) {
	ctx := context.Background()
	dir := temporary(t)
	server, err := Start(ctx, dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	put := func(dir, key string) int64 {
		t.Helper()
		response, err := client(t, dir).Put(ctx, key, key)
		if err != nil {
			t.Fatal(err)
		}
		return response.Header.Revision
	}
	put(dir, "before")
	var saved bytes.Buffer
	if size, err := Save(ctx, dir, &saved); err != nil || size != int64(saved.Len()) || size == 0 {
		t.Fatalf("saved %d bytes, %v", size, err)
	}
	last := put(dir, "after")
	if err := Restore(dir, bytes.NewReader(saved.Bytes())); err == nil || !strings.Contains(err.Error(), "already has data") {
		t.Errorf("over data: %v", err)
	}
	server.Stop()
	if _, err := Save(ctx, dir, &saved); err == nil || !strings.Contains(err.Error(), "no etcd member runs in") {
		t.Errorf("of a member that does not run: %v", err)
	}
	killed := temporary(t)
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(killed, clientSocket)})
	if err != nil {
		t.Fatal(err)
	}
	socket.SetUnlinkOnClose(false)
	_ = socket.Close()
	if _, err := Save(ctx, killed, &saved); err == nil || !strings.Contains(err.Error(), "no etcd member runs in") {
		t.Errorf("of a member that was killed: %v", err)
	}

	other := temporary(t)
	if err := Restore(other, bytes.NewReader(saved.Bytes()[:saved.Len()-10])); err == nil || !strings.Contains(err.Error(), "the snapshot is incomplete") {
		t.Errorf("of a part: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(other, "*")); err != nil || len(left) > 0 {
		t.Errorf("what was refused leaves %v, %v", left, err)
	}
	if err := os.MkdirAll(filepath.Join(other, "data.restoring", "member", "wal"), 0o700); err != nil { // by a restore that was killed
		t.Fatal(err)
	}
	if err := Restore(other, bytes.NewReader(saved.Bytes())); err != nil {
		t.Fatal(err)
	}
	if server, err = Start(ctx, other, 0); err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	for key, want := range map[string]int64{"before": 1, "after": 0} {
		if response, err := client(t, other).Get(ctx, key); err != nil || response.Count != want {
			t.Errorf("%s: %v %v", key, response, err)
		}
	}
	if revision := put(other, "new"); revision <= last {
		t.Errorf("revision %d comes again after %d", revision, last)
	}
}

// TestRecover: a member that ran out of space takes writes again.
func TestRecover(t *testing.T) {
	ctx := context.Background()
	dir := temporary(t)
	server, err := Start(ctx, dir, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	c := client(t, dir)
	value := strings.Repeat("x", 100<<10)
	for err == nil {
		_, err = c.Put(ctx, "key", value) // each is a revision, of which the last alone is needed
	}
	if !strings.Contains(err.Error(), "database space exceeded") {
		t.Fatal(err)
	}
	before, after, err := Recover(ctx, dir)
	if err != nil || after >= before {
		t.Fatalf("%d bytes became %d, %v", before, after, err)
	}
	if _, err := c.Put(ctx, "key", "x"); err != nil {
		t.Error(err)
	}
}

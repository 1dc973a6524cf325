/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// substitute listens on the socket of etcd, and answers each call with the reason why etcd does not run.
// So the API server starts without etcd, and its clients reconnect to etcd without the back-off that
// grows while no process listens. The returned function ends it.
func (m *Member) substitute(ctx context.Context) (func(), error) {
	held, err := lock(ctx, m.dir, 0) // the socket can be that of an earlier process, which still runs
	if err != nil {
		return func() {}, err
	}
	release := func() { _ = held.Close() }
	path, err := filepath.Abs(filepath.Join(m.dir, clientSocket))
	if err != nil {
		return release, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return release, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return release, fmt.Errorf("cannot listen on the socket of etcd: %w", err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		// On Unavailable, clients would retry 40 times a second, and log each time.
		return status.Errorf(codes.FailedPrecondition, "%v", m.Problem())
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Stop
	}()
	return func() {
		server.Stop()
		<-done
		release()
	}, nil
}

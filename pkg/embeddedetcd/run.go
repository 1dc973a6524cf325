/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// answerInterval is the time between two checks of whether etcd can be started.
	answerInterval = time.Second
	// failedFor is how long Run answers calls after a failed start. A kubelet restarts its process with a growing delay.
	failedFor = time.Minute
)

// Run runs a member in the given directory until the context ends. The quota is as in Start. Run returns an error when etcd stops by
// itself. etcd also exits by itself, for example when it cannot write. While the volume is full, and for some time after a failed start,
// Run answers each call of etcd with the reason.
func Run(ctx context.Context, dir string, quota int64) error {
	config, err := prepare(dir)
	if err != nil {
		return err
	}
	held, err := fileutil.TryLockFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600) // a second process would take the socket
	if err != nil {
		return fmt.Errorf("cannot lock %q, which another process may use: %w", dir, err)
	}
	defer func() { _ = held.Close() }()
	if err := removeInterrupted(config.Dir); err != nil {
		return err
	}
	if full := volumeFull(dir); full != nil {
		if err := answer(ctx, dir, full, func() bool { return volumeFull(dir) == nil }); err != nil {
			return err
		}
	}
	wal.SegmentSizeBytes = walSegmentBytes
	server, err := Start(ctx, dir, quota)
	if err != nil {
		end := time.Now().Add(failedFor)
		return errors.Join(err, answer(ctx, dir, err, func() bool { return time.Now().After(end) }))
	}
	defer server.Stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Failed():
		return fmt.Errorf("etcd failed: %w", err)
	}
}

// answer answers each call of etcd with the reason why etcd does not run, until done returns true. So clients report the reason, an API
// server can start, and clients reconnect to etcd without the back-off of up to two minutes that grows while no process listens.
func answer(ctx context.Context, dir string, reason error, done func() bool) error {
	klog.FromContext(ctx).Error(reason, "etcd does not run")
	endpoint, err := Endpoint(dir)
	if err != nil {
		return err
	}
	listener, err := transport.NewUnixListener(strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return fmt.Errorf("cannot listen on the socket of etcd: %w", err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		// On Unavailable, clients would retry 40 times a second, and log each time.
		return status.Error(codes.FailedPrecondition, reason.Error())
	}))
	go func() { _ = server.Serve(listener) }() // ends with Stop
	defer server.Stop()
	return wait.PollUntilContextCancel(ctx, answerInterval, false, func(context.Context) (bool, error) { return done(), nil })
}

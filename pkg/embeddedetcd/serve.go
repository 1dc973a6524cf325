/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// readySign is what the process writes to its standard output when etcd serves.
const readySign = "ready\n"

// lockTimeout is how long a process waits for an earlier one, which stops in less than a second. Meanwhile, the server does not start.
const lockTimeout = 5 * time.Second

// Serve is the process of a Member: it runs etcd in the given directory until its input ends. The
// quota is as in Start. It waits for an earlier process that still uses the directory, for some seconds.
func Serve(ctx context.Context, dir string, quota int64, input io.Reader, output io.Writer) error {
	if _, err := prepare(dir); err != nil {
		return err
	}
	// When an earlier process stops, it removes the socket, which must not be the one of this process.
	held, err := lock(ctx, dir, lockTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	wal.SegmentSizeBytes = walSegmentBytes
	server, err := Start(ctx, dir, quota)
	if err != nil {
		return err
	}
	defer server.Stop()
	if _, err := io.WriteString(output, readySign); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, input)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case err := <-server.Failed():
		return fmt.Errorf("etcd failed: %w", err)
	}
}

// lock locks a directory until the returned file is closed, or until this process ends.
func lock(ctx context.Context, dir string, timeout time.Duration) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a file descriptor
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("cannot lock %q, which another process may still use: %w", dir, err)
	}
	return file, nil
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"context"
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"
)

// readySign is what the process writes to its standard output when etcd serves.
const readySign = "ready\n"

// Serve is the process of a Member: it runs etcd in the given directory until its input ends. The
// quota is as in Start. It waits for an earlier process that still uses the directory.
func Serve(ctx context.Context, dir string, quota int64, input io.Reader, output io.Writer) error {
	if _, err := prepare(dir); err != nil {
		return err
	}
	// When an earlier process stops, it removes the socket, which must not be the one of this process.
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { //nolint:gosec // a file descriptor
		return fmt.Errorf("cannot lock %q: %w", dir, err)
	}
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

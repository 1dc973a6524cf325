/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"
)

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("it never came true that %s", what)
		}
	}
}

// TestRun: a member runs until its context ends. Meanwhile, no second process uses its directory.
func TestRun(t *testing.T) {
	segment := wal.SegmentSizeBytes
	t.Cleanup(func() { wal.SegmentSizeBytes = segment })
	dir := temporary(t)
	interrupted := filepath.Join(dir, "data", "member", "snap", "db.tmp.1")
	if err := errors.Join(os.MkdirAll(filepath.Dir(interrupted), 0o700), os.WriteFile(interrupted, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	stop := run(t, dir)
	if _, err := os.Stat(interrupted); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a defragmentation left that was killed: %v", err)
	}
	if _, err := client(t, dir).Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), dir, 0); err == nil || !strings.Contains(err.Error(), "which another process may use") {
		t.Errorf("a second process: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "data", "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("there are the logs %v, %v", logs, err)
	}
	if info, err := os.Stat(logs[0]); err != nil || info.Size() != walSegmentBytes {
		t.Errorf("a log is %v, %v", info, err)
	}
}

// TestForeignDirectory: a directory of another program is refused, and stays as it is.
func TestForeignDirectory(t *testing.T) {
	for _, name := range []string{"member", "database"} {
		dir := temporary(t)
		if err := errors.Join(os.Mkdir(filepath.Join(dir, name), 0o700), os.Chmod(dir, 0o755)); err != nil { //nolint:gosec // others can enter it
			t.Fatal(err)
		}
		if err := Run(t.Context(), dir, 0); err == nil || !strings.Contains(err.Error(), `has files of another program, such as "`+name+`": name an empty directory with --embedded-etcd-dir`) {
			t.Error(err)
		}
		info, err := os.Stat(dir)
		entries, readErr := os.ReadDir(dir)
		if errors.Join(err, readErr) != nil || info.Mode().Perm() != 0o755 || len(entries) != 1 {
			t.Errorf("afterwards: %v, %v", info, entries)
		}
	}
}

// TestFailedStart: calls are answered with the reason.
func TestFailedStart(t *testing.T) {
	dir := temporary(t)
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	failsToStart(t, dir, "cannot start etcd in")
}

// failsToStart checks that etcd cannot start, that calls are answered with the reason, and what Run returns.
func failsToStart(t *testing.T, dir, says string) {
	t.Helper()
	stop := run(t, dir)
	c := client(t, dir)
	eventually(t, "calls are answered with the reason", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Get(ctx, "key")
		return err != nil && strings.Contains(err.Error(), "code = FailedPrecondition desc = cannot start etcd in")
	})
	if err := stop(); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("afterwards: %v", err)
	}
}

// TestDamagedData: etcd panics because its log is damaged. Calls are answered with the reason.
func TestDamagedData(t *testing.T) {
	intact := temporary(t)
	stop := run(t, intact)
	c := client(t, intact)
	for range 50 {
		if _, err := c.Put(t.Context(), "key", "value"); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(data []byte) []byte{
		"an empty log":  func([]byte) []byte { return nil },
		"a damaged log": func(data []byte) []byte { return append([]byte("xxxxxxxxxxxxxxxx"), data[16:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := temporary(t)
			file := filepath.Join(dir, "data", "member", "wal", "0000000000000000-0000000000000000.wal")
			if err := os.CopyFS(filepath.Join(dir, "data"), os.DirFS(filepath.Join(intact, "data"))); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, damage(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			failsToStart(t, dir, "see \"When etcd cannot start\"")
		})
	}

	// Without its log, etcd becomes ready only after as many writes as its database has, and can be stopped before.
	if err := os.RemoveAll(filepath.Join(intact, "data", "member", "wal")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := Start(ctx, intact, 0); err == nil || !strings.Contains(err.Error(), "stopped while it started") {
		t.Errorf("without the log: %v", err)
	}
}

// run calls Run, and returns when it listens. The returned function ends it.
func run(t *testing.T, dir string) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, dir, 0) }()
	listens(t, dir)
	return func() error {
		cancel()
		return <-ended
	}
}

func listens(t *testing.T, dir string) {
	t.Helper()
	eventually(t, "it listens", func() bool {
		_, err := os.Stat(filepath.Join(dir, clientSocket))
		return err == nil
	})
}

// TestAnswer: while a volume is full, calls are answered with the reason. Clients use etcd soon after it has started.
func TestAnswer(t *testing.T) {
	dir := temporary(t)
	var space atomic.Bool
	answered := make(chan error, 1)
	full := errors.New("the volume is full")
	go func() { answered <- answer(t.Context(), dir, full, space.Load) }()
	listens(t, dir)
	c := client(t, dir)
	for range 2 {
		if _, err := c.Get(t.Context(), "key"); err == nil || err.Error() != "rpc error: code = FailedPrecondition desc = the volume is full" {
			t.Errorf("a call: %v", err)
		}
	}
	space.Store(true)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	server, err := Start(t.Context(), dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	began := time.Now()
	if _, err := c.Put(t.Context(), "key", "value"); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("a call after %s: %v", time.Since(began), err)
	}
}

// TestVolumeFull: a full volume is an error with a stable text.
func TestVolumeFull(t *testing.T) {
	if err := volumeFull(t.TempDir()); err != nil {
		t.Error(err)
	}
	full := temporary(t)
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=15m"); err != nil {
		t.Skipf("cannot mount a small volume: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(full, unix.MNT_DETACH) })
	err := volumeFull(full)
	want := "the volume of etcd is full (" + full + "): free space on it or enlarge it, and etcd starts: no space left on device"
	if err == nil || err.Error() != want || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestQuotaFor: two copies of the database, and the write-ahead log, have room on the volume.
func TestQuotaFor(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for volume, want := range map[int64]int64{5 * gib: 2 * gib, 1 * gib: 1 * gib * 2 / 5, 192 * mib: 64 * mib, 96 * mib: 16 * mib, 20 * gib: 8 * gib, 500 * gib: 8 * gib, 0: -32 * mib} {
		got := quotaFor(volume)
		if got != want {
			t.Errorf("on %d MiB, the quota is %d MiB, want %d MiB", volume/mib, got/mib, want/mib)
		}
		if left := volume - 2*got; left < minimumReserve && left >= 0 && volume > 0 {
			t.Errorf("on %d MiB, %d MiB are left for the write-ahead log", volume/mib, left/mib)
		}
	}
	if quota, err := volumeQuota(t.TempDir()); err != nil || quota < minimumQuota {
		t.Errorf("here, the quota is %d, %v", quota, err)
	}
}

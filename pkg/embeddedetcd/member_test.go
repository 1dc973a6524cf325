/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serveDir is the variable that makes this test program the process of a member, in a directory.
const serveDir = "NSINIT_TEST_SERVE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveDir); dir != "" {
		if err := Serve(context.Background(), dir, 0, os.Stdin, os.Stdout); err != nil {
			_, _ = os.Stderr.WriteString("fatal error: " + err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestMember: etcd is started again when its process has ended, with what was written. Meanwhile calls
// are answered with the reason.
func TestMember(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for many seconds")
	}
	dir := temporary(t)
	var mu sync.Mutex
	var process *exec.Cmd
	broken := false
	member, err := StartMember(t.Context(), dir, func() *exec.Cmd {
		mu.Lock()
		defer mu.Unlock()
		process = exec.Command(os.Args[0])
		process.Env = append(os.Environ(), serveDir+"="+dir)
		if broken {
			process = exec.Command("sh", "-c", "echo 'fatal error: broken' >&2; exit 1")
		}
		return process
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(member.Stop)
	t.Cleanup(stop)
	if err := member.Problem(); err != nil {
		t.Fatal(err)
	}
	c := client(t, dir)
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for began := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("it never came true that %s: %v", what, member.Problem())
			}
		}
	}
	mu.Lock()
	broken = true
	killed := process
	mu.Unlock()
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually("the member says why it does not run", func() bool {
		problem := member.Problem()
		return problem != nil && strings.Contains(problem.Error(), "fatal error: broken")
	})
	eventually("calls are answered with the reason", func() bool {
		_, err := c.Get(t.Context(), "key")
		return err != nil && strings.Contains(err.Error(), "fatal error: broken")
	})
	mu.Lock()
	broken = false
	mu.Unlock()
	eventually("it runs again", func() bool { return member.Problem() == nil })
	eventually("the written key exists", func() bool {
		got, err := c.Get(t.Context(), "key")
		return err == nil && got.Count == 1
	})
	stop()
	mu.Lock()
	defer mu.Unlock()
	if process.ProcessState == nil || !process.ProcessState.Success() {
		t.Errorf("after Stop the process is %v", process.ProcessState)
	}
}

// TestExplain: the cause is found in what etcd logs, and for a full volume it is the same each time.
func TestExplain(t *testing.T) {
	exit := errors.New("exit status 1")
	for name, test := range map[string]struct{ logged, want string }{
		"a full volume": {`{"level":"fatal","ts":1,"msg":"failed to commit tx","error":"write /x/db: no space left on device"}`,
			"the volume of etcd is full (dir): free space on it or enlarge it, and etcd restarts: no space left on device"},
		"a full volume, at the start": {`E1122 04:00:00.000000 1 run.go:72] "command failed" err="cannot start etcd: write: no space left on device"`,
			"the volume of etcd is full (dir): free space on it or enlarge it, and etcd restarts: no space left on device"},
		"an error of etcd": {"{\"level\":\"fatal\",\"ts\":1,\"msg\":\"failed\",\"error\":\"why\"}\n{\"level\":\"warn\",\"msg\":\"other\"}", "etcd exited (exit status 1): failed: why"},
		"a panic":          {"panic: broken\n\ngoroutine 1 [running]:\nmain.main()", "etcd exited (exit status 1): panic: broken"},
		"an error of ours": {`E1122 04:00:00.000000 1 run.go:72] "command failed" err="x"`, `etcd exited (exit status 1): "command failed" err="x"`},
		"nothing":          {"", "etcd exited: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			var passed bytes.Buffer
			words := &lastWords{to: &passed}
			if _, err := words.Write([]byte(strings.Repeat("-", maxLastWords) + "\n" + test.logged)); err != nil {
				t.Fatal(err)
			}
			if got := words.explain("dir", exit).Error(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if !strings.HasSuffix(passed.String(), test.logged) || len(words.kept) > maxLastWords {
				t.Errorf("%d bytes passed, %d are kept", passed.Len(), len(words.kept))
			}
		})
	}
	if err := (&lastWords{kept: []byte("no space left on device")}).explain("", exit); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v is not ENOSPC", err)
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

// TestLock: a process waits for an earlier one that uses its directory, but not indefinitely: the server would never start.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	earlier, err := lock(t.Context(), dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(t.Context(), dir, 200*time.Millisecond); err == nil || !strings.Contains(err.Error(), "which another process may still use") {
		t.Errorf("while it is locked: %v", err)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = earlier.Close() })
	own, err := lock(t.Context(), dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_ = own.Close()
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startPostgres starts a PostgreSQL server on a directory, which it fills if it is empty. The
// server is reached by a socket in that directory alone, and ends with this process, however
// that ends.
func startPostgres(ctx context.Context, dir string) (*sql.DB, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	attributes, err := asPostgres(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata="+data, "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8")
		initdb.SysProcAttr, initdb.Dir = attributes, dir
		if out, err := initdb.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("initdb: %w: %s", err, out)
		}
	}
	if err := waitFormer(ctx, data); err != nil {
		return nil, err
	}
	// The signal at the end of this process is sent when the thread ends that started it.
	runtime.LockOSThread()
	attributes.Pdeathsig = syscall.SIGQUIT
	server := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "max_connections=50")
	server.SysProcAttr, server.Dir, server.Stdout, server.Stderr = attributes, dir, os.Stderr, os.Stderr
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGINT) }
	if err := server.Start(); err != nil {
		return nil, err
	}
	db, err := sql.Open("pgx", fmt.Sprintf("host=%s user=postgres dbname=postgres sslmode=disable", dir))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(20)
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	for db.PingContext(ctx) != nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case err := <-ended:
			return nil, fmt.Errorf("the server has ended: %w", errors.Join(err, errors.New("see above")))
		case <-time.After(50 * time.Millisecond):
		}
	}
	return db, nil
}

// waitFormer waits until the server of a process that was killed has ended, which takes it a moment.
func waitFormer(ctx context.Context, data string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		lock, err := os.ReadFile(filepath.Join(data, "postmaster.pid")) //nolint:gosec // of the server's own folder
		if err != nil {
			return nil //nolint:nilerr // there was none
		}
		line, _, _ := strings.Cut(string(lock), "\n")
		pid, err := strconv.Atoi(line)
		if err != nil || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return nil //nolint:nilerr // it is being written, or its process is gone
		}
		// Its exit code may not have been read yet.
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") { //nolint:gosec // a process
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the former server, process %d, does not end: %w", pid, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// postgresBin returns the folder of PostgreSQL's programs, which Debian keeps out of PATH.
func postgresBin() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		return "", errors.New("there is no PostgreSQL server: run hack/install-system-packages.sh, or install the package postgresql")
	}
	return found[len(found)-1], nil
}

// asPostgres lets the server run as the user postgres where this process is root, as whom it does
// not run.
func asPostgres(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(account.Gid)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

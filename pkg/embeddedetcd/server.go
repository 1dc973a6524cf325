/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package embeddedetcd runs a single etcd member for installations without an etcd cluster. It
// listens on unix sockets in a directory that only the user of the process can enter, so no other
// user can bypass the API server.
//
// etcd exits when it cannot write, for example on a full volume. Run is therefore a separate process, which the kubelet restarts.
package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

const (
	clientSocket = "client.sock"
	peerSocket   = "peer.sock"
	dataDir      = "data"
	lockFile     = "lock"
	// maxSocketPath is the length of the longest path of a unix socket on Linux.
	maxSocketPath = 107
	// startTimeout bounds a start: etcd replays its log, which takes time for a large store.
	startTimeout  = 5 * time.Minute
	documentation = `if its data is damaged, see "When etcd cannot start" in docs/storage.md`
)

// Server is a running etcd member.
type Server struct {
	etcd     *embed.Etcd
	logLevel zap.AtomicLevel
}

// Endpoint returns the client endpoint of a member in the given directory.
func Endpoint(dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, clientSocket))
	if err != nil {
		return "", fmt.Errorf("cannot resolve the etcd directory %q: %w", dir, err)
	}
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("the path of the etcd socket, %q, has %d bytes, and at most %d are possible: choose a directory with a shorter path",
			path, len(path), maxSocketPath)
	}
	return "unix://" + path, nil
}

// Start starts a member in this process that keeps its data in the given directory, and
// returns when it serves. The directory is created if needed. The quota is the size in
// bytes from which etcd refuses writes; 0 derives it from the size of the volume. The
// member runs until Stop.
func Start(ctx context.Context, dir string, quota int64) (*Server, error) {
	config, err := prepare(dir)
	if err != nil {
		return nil, err
	}
	if quota == 0 {
		if quota, err = volumeQuota(dir); err != nil {
			return nil, err
		}
	}
	config.QuotaBackendBytes = quota
	logLevel := zap.NewAtomicLevelAt(zap.WarnLevel)
	if err := logTo(config, logLevel); err != nil {
		return nil, err
	}
	logger := klog.FromContext(ctx)
	logger.Info("Starting embedded etcd", "dir", dir, "endpoint", config.AdvertiseClientUrls[0].String(), "quotaBytes", config.QuotaBackendBytes)
	etcd, err := startEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("cannot start etcd in %q (is another process using the directory?): %w; %s", dir, err, documentation)
	}
	server := &Server{etcd: etcd, logLevel: logLevel}
	select {
	case <-etcd.Server.ReadyNotify():
		logger.Info("Embedded etcd is ready", "dir", dir)
		return server, nil
	case err = <-etcd.Err():
		err = fmt.Errorf("etcd in %q failed to start: %w", dir, err)
	case <-time.After(startTimeout):
		err = fmt.Errorf("etcd in %q was not ready after %s; %s", dir, startTimeout, documentation)
	case <-ctx.Done():
		err = errors.Join(errors.New("etcd was stopped while it started"), ctx.Err())
	}
	etcd.Server.HardStop() // otherwise, Stop waits until a member is ready, which one without its log may never be
	server.Stop()
	return nil, err
}

// startEtcd starts etcd. With damaged data, etcd can panic. startEtcd returns an error instead, so that Run answers with it. It cannot do so
// for panics in other goroutines, such as those for damaged pages of the database.
func startEtcd(config *embed.Config) (etcd *embed.Etcd, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("etcd failed: %v", cause)
		}
	}()
	return embed.StartEtcd(config)
}

// removeInterrupted removes what defragmentations left that were killed: each a file as large as the database, which etcd keeps.
func removeInterrupted(data string) error {
	left, err := filepath.Glob(filepath.Join(data, "member", "snap", "db.tmp*"))
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// prepare creates the directory of a member, and returns its configuration.
func prepare(dir string) (*embed.Config, error) {
	endpoint, err := Endpoint(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the etcd directory: %w; name another with --embedded-etcd-dir", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the etcd directory: %w", err)
	}
	if file := foreign(entries); file != "" {
		return nil, fmt.Errorf("%q has files of another program, such as %q: name an empty directory with --embedded-etcd-dir", dir, file)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory needs the execute bit
		return nil, fmt.Errorf("cannot protect the etcd directory: %w", err)
	}
	return newConfig(dir, endpoint)
}

// foreign returns a file of another program, or "" if the directory is that of a member, or empty.
func foreign(entries []os.DirEntry) (file string) {
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == lockFile, name == dataDir, strings.HasPrefix(name, dataDir+"."):
			return ""
		case name == clientSocket, name == peerSocket, name == "lost+found", strings.HasPrefix(name, "."):
		default:
			file = name
		}
	}
	return file
}

// Failed delivers an error when the member stops by itself.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Stop stops the member and waits for it. Every acknowledged write is on disk.
func (s *Server) Stop() {
	// etcd reports each listener that it closes as an error.
	s.logLevel.SetLevel(zap.FatalLevel)
	s.etcd.Close()
}

func newConfig(dir, endpoint string) (*embed.Config, error) {
	client, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	peer := *client
	peer.Path = filepath.Join(filepath.Dir(client.Path), peerSocket)
	config := embed.NewConfig()
	config.Name = "nsinit"
	config.Dir = filepath.Join(dir, dataDir)
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.SnapshotCount, config.MaxWalFiles = snapshotCount, maxWALFiles
	return config, nil
}

func logTo(config *embed.Config, logLevel zap.AtomicLevel) error {
	logConfig := zap.NewProductionConfig()
	logConfig.Level = logLevel
	logConfig.Sampling = nil
	logger, err := logConfig.Build(zap.WithCaller(false), zap.AddStacktrace(zap.DPanicLevel))
	if err != nil {
		return fmt.Errorf("cannot set up etcd's logging: %w", err)
	}
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger.Named("etcd"))
	return nil
}

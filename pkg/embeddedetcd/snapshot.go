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
	"net"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// dialTimeout bounds the time until a member answers.
	dialTimeout = 10 * time.Second
	// commitInterval and commitTimeout are those of compact.
	commitInterval = 100 * time.Millisecond
	commitTimeout  = 2 * time.Second
	// revisionBump is more than the number of writes between a snapshot and its restore, so that no
	// revision that a client has seen is used again.
	revisionBump = 1_000_000_000
)

// Save writes a snapshot of the member that runs in a directory. It returns the number of bytes.
func Save(ctx context.Context, dir string, to io.Writer) (int64, error) {
	client, err := dial(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }()
	stream, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return 0, fmt.Errorf("no etcd member in %q answers: %w", dir, err)
	}
	defer func() { _ = stream.Snapshot.Close() }()
	written, err := io.Copy(to, stream.Snapshot)
	if err != nil {
		return written, fmt.Errorf("the snapshot is incomplete: %w", err)
	}
	return written, nil
}

// Restore creates the data of a member from a snapshot, in a directory without data. If the snapshot is
// incomplete, it returns an error and leaves no data.
func Restore(dir string, from io.Reader) error {
	config, err := prepare(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(config.Dir); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s already has data: stop nsinit-apiserver, and move the data to another place", config.Dir), err)
	}
	// The data gets its name once it is complete. A restore that was killed may have left the other names.
	restoring := config.Dir + ".restoring"
	if err := os.RemoveAll(restoring); err != nil {
		return err
	}
	// etcd verifies the checksum of a snapshot before it uses it, so it needs a file.
	file, err := os.OpenFile(restoring+".db", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the user names the directory
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = io.Copy(file, from)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("cannot read the snapshot: %w", err)
	}
	var peers []string
	for _, url := range config.AdvertisePeerUrls {
		peers = append(peers, url.String())
	}
	if err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file.Name(), Name: config.Name, OutputDataDir: restoring,
		PeerURLs: peers, InitialCluster: config.InitialCluster, InitialClusterToken: config.InitialClusterToken,
		RevisionBump: revisionBump, MarkCompacted: true,
	}); err != nil {
		return errors.Join(fmt.Errorf("the snapshot is incomplete or damaged: %w", err), os.RemoveAll(restoring))
	}
	return os.Rename(restoring, config.Dir)
}

// Recover compacts and defragments a member, and clears the NOSPACE alarm, in which it refuses writes. It
// returns the size of the database before and after.
func Recover(ctx context.Context, dir string) (before, after int64, err error) {
	client, err := dial(ctx, dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = client.Close() }()
	if before, after, err = Reclaim(ctx, client, client.Endpoints()[0], func(*clientv3.StatusResponse) bool { return true }); err != nil {
		return before, after, fmt.Errorf("etcd in %q: %w", dir, err)
	}
	return before, after, nil
}

// Reclaim compacts the member behind a client, which frees space inside its database. If its status then
// says so to fragmented, Reclaim also defragments the member, which makes the database smaller, and clears
// its alarms. The member does not answer meanwhile. Reclaim returns the size of the database before and after.
func Reclaim(ctx context.Context, client *clientv3.Client, endpoint string, fragmented func(*clientv3.StatusResponse) bool) (before, after int64, err error) {
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot read its status: %w", err)
	}
	compacted, err := compact(ctx, client, endpoint, status.Header.Revision, fragmented)
	if err != nil {
		return status.DbSize, 0, fmt.Errorf("cannot compact: %w", err)
	}
	if !fragmented(compacted) {
		return status.DbSize, compacted.DbSize, nil
	}
	if _, err := client.Defragment(ctx, endpoint); err != nil {
		return status.DbSize, 0, fmt.Errorf("cannot defragment: %w", err)
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return status.DbSize, 0, fmt.Errorf("cannot clear the alarm: %w", err)
	}
	now, err := client.Status(ctx, endpoint)
	if err != nil {
		return status.DbSize, 0, fmt.Errorf("cannot read its status: %w", err)
	}
	return status.DbSize, now.DbSize, nil
}

// compact compacts the member, and returns its status once it says so to fragmented, or after some time. The status has what a compaction
// freed only after one or more later commits. Each compaction commits, a repeated one, too, and an idle member makes no other commit.
func compact(ctx context.Context, client *clientv3.Client, endpoint string, revision int64, fragmented func(*clientv3.StatusResponse) bool) (status *clientv3.StatusResponse, err error) {
	err = wait.PollUntilContextTimeout(ctx, commitInterval, commitTimeout, true, func(context.Context) (bool, error) {
		if _, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return false, err
		}
		status, err = client.Status(ctx, endpoint)
		return err == nil && fragmented(status), err
	})
	if wait.Interrupted(err) {
		err = ctx.Err()
	}
	return status, err
}

// dial returns a client of the member that runs in a directory. The socket of one that was killed may still exist.
func dial(ctx context.Context, dir string) (*clientv3.Client, error) {
	endpoint, err := Endpoint(dir)
	if err != nil {
		return nil, err
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, clientSocket))
	if err != nil {
		return nil, fmt.Errorf("no etcd member runs in %q: %w", dir, err)
	}
	_ = connection.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, err := client.Status(ctx, endpoint); err != nil {
		return nil, errors.Join(fmt.Errorf("no etcd member in %q answers: %w", dir, err), client.Close())
	}
	return client, nil
}

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"fmt"

	"go.etcd.io/etcd/server/v3/storage"
	"golang.org/x/sys/unix"
)

const (
	// walSegmentBytes is the size of a file of etcd's write-ahead log. etcd preallocates the current
	// and the next file. Its default, 64 MB, is for larger stores.
	walSegmentBytes = 16 << 20
	// maxWALFiles is how many obsolete files of the write-ahead log etcd keeps.
	maxWALFiles = 2
	// snapshotCount is the number of writes after which etcd takes a snapshot and no longer needs
	// their log. A request has at most 1.5 MiB, so these writes take at most 150 MiB.
	snapshotCount = 100
	// minimumReserve is the space for the write-ahead log of a store with objects of usual size: the
	// current file, the next one, and the obsolete ones.
	minimumReserve = (2 + maxWALFiles) * walSegmentBytes
	// minimumQuota is the smallest quota that is derived from a volume.
	minimumQuota = 16 << 20
)

// volumeQuota returns the quota for a database on the volume of a directory, in bytes.
func volumeQuota(dir string) (int64, error) {
	size, _, err := volume(dir)
	if err != nil {
		return 0, err
	}
	quota := quotaFor(size)
	if quota < minimumQuota {
		return 0, fmt.Errorf("the volume of %q has %d MiB, and etcd needs %d MiB: enlarge the volume, or set --embedded-etcd-quota-bytes",
			dir, size>>20, (2*minimumQuota+minimumReserve)>>20)
	}
	return quota, nil
}

// volumeFull returns an error if the volume of a directory has no space for the next file of the write-ahead log. The message does not
// change, because it becomes a condition of namespaces.
func volumeFull(dir string) error {
	_, free, err := volume(dir)
	if err == nil && free < walSegmentBytes {
		err = fmt.Errorf("the volume of etcd is full (%s): free space on it or enlarge it, and etcd starts: %w", dir, unix.ENOSPC)
	}
	return err
}

// volume returns the size and the free space of the volume of a directory, in bytes.
func volume(dir string) (size, free int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, 0, fmt.Errorf("cannot read the size of the volume of %q: %w", dir, err)
	}
	//nolint:gosec,unconvert // types differ between systems; no volume has 8 EiB
	return int64(stat.Blocks) * int64(stat.Bsize), int64(stat.Bavail) * int64(stat.Bsize), nil
}

// quotaFor returns the quota for a volume of a size: two fifths of it. Defragmentation needs space for
// a second copy of the database. The last fifth is for the write-ahead log and snapshots. A database of
// more than 8 GiB is slow.
func quotaFor(volume int64) int64 {
	return min(volume*2/5, (volume-minimumReserve)/2, storage.MaxQuotaBytes)
}

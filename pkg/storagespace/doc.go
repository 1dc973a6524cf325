/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storagespace monitors how full the storage is. It reports why no object can be created, and
// it reclaims unused space of the embedded etcd.
//
// etcd refuses every write once its database has the size of its quota. That includes deletions,
// because Kubernetes begins a deletion with an update. A Monitor of the embedded etcd therefore keeps a
// reserve for updates and deletions: it reports that nothing can be created when 90 percent of the quota
// is in use. Updates and deletions also add to the database, until old revisions are compacted and
// the database is defragmented. The Monitor does both when it is worth it, and clears the alarm that
// etcd raises at the quota. The Monitor only observes an external etcd cluster, which its operator maintains.
package storagespace
